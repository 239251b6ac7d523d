"""Read the batches in the checkpoint of a job: the folders `offsets`, `commits`, and `sources`.

Spark keeps the last 100 batches. It may add and remove files meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backstream.errors import SpecError
from backstream.storage.stores import Stores, explain_reading, is_in_store
from backstream.structured_streaming.batches import Batch, BatchLog

_NO_OFFSET = "-"
_COMPACT = ".compact"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def read_checkpoint(address: str, stores: Stores) -> BatchLog:
    """Return the batches of a checkpoint.

    Args:
        address: folder, or address in an object store.
        stores: the object stores.

    Raises:
        SpecError: when it is no checkpoint, or a file has an unknown form.
    """
    names = _list_names(address, stores)
    if not any(name.startswith("offsets/") for name in names):
        msg = f"no checkpoint of Structured Streaming: there is no folder `offsets` with batches ({address})"
        raise SpecError(msg)
    texts = dict(_read_texts(address, names, stores))
    commits = {name: text for name, text in texts.items() if name.startswith("commits/")}
    batches = [
        _parse_batch(int(name.removeprefix("offsets/")), text, commits, f"{address}/{name}")
        for name, text in texts.items()
        if name.startswith("offsets/")
    ]
    metadata = _parse_object(texts["metadata"], f"{address}/metadata") if "metadata" in texts else {}
    ids = frozenset([str(metadata["id"])] if "id" in metadata else [])
    batches.sort(key=lambda batch: batch.number)
    last = [f"offsets/{batch.number}" for batch in batches[-1:]]
    policy = next((_find_policy(texts[name], f"{address}/{name}") for name in last), None)
    return BatchLog(ids, tuple(batches), _read_files(texts, address), address, policy)


def has_batches(address: str, stores: Stores) -> bool:
    """Return whether a folder or an address is a checkpoint with batches.

    Raises:
        StorageError: when a store cannot be read.
    """
    return any(name.startswith("offsets/") for name in _list_names(address, stores))


def _list_names(address: str, stores: Stores) -> list[str]:
    """Return the names of the files of a checkpoint that have batches; drafts have other names."""
    if is_in_store(address):
        with explain_reading(address):  # not the state, which has most of the objects
            names = [
                f"{folder}/{name}"
                for folder in ("offsets", "commits", "sources")
                for name in stores.list_versions(f"{address}/{folder}")
            ]
        names.append("metadata")
    else:
        root = Path(address)
        folders = [root / "offsets", root / "commits", *root.glob("sources/*")]
        names = [str(file.relative_to(root)) for folder in folders for file in folder.glob("*")]
        names += [name for name in ("metadata",) if (root / name).exists()]
    return sorted(name for name in names if _is_log(name))


def _is_log(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    is_known = folder in ("offsets", "commits") or folder.startswith("sources/")
    return name == "metadata" or (is_known and last.removesuffix(_COMPACT).isdecimal())


def _read_texts(address: str, names: list[str], stores: Stores) -> Iterator[tuple[str, str]]:
    """Yield the names with the texts of the files that are still there."""
    for name in names:
        location = f"{address.rstrip('/')}/{name}"
        try:
            with explain_reading(location), stores.open_file(location) as file:
                yield name, file.read().decode()
        except FileNotFoundError:
            continue  # Spark has removed it


def _parse_batch(number: int, text: str, commits: Mapping[str, str], where: str) -> Batch:
    version, header, *lines = [*text.splitlines(), "", ""]
    if version not in ("v1", "v2"):
        msg = f"unknown version {version!r} of the log of offsets; v1 and v2 are known ({where})"
        raise SpecError(msg)
    lines = lines[:-2]
    named = [line.partition(":")[::2] for line in lines] if version == "v2" else enumerate(lines)
    ends = {str(name): _parse_object(line, where) for name, line in named if line != _NO_OFFSET}
    commit = commits.get(f"commits/{number}")
    next_ms = None
    if commit is not None:
        version, *content = commit.splitlines() or [""]
        if version != "v1":
            msg = f"unknown version {version!r} of the log of commits; v1 is known ({where})"
            raise SpecError(msg)
        next_ms = _parse_object("".join(content) or "{}", where).get("nextBatchWatermarkMs")
    metadata = _parse_object(header, where)
    watermark_ms, began_ms = metadata.get("batchWatermarkMs"), metadata.get("batchTimestampMs")
    if not isinstance(watermark_ms, int):
        msg = f"no batchWatermarkMs in the log of offsets: {header[:100]} ({where})"
        raise SpecError(msg)
    known_ms = began_ms if isinstance(began_ms, int) else 0
    return Batch(number, watermark_ms, ends, next_ms, is_finished=commit is not None, began_ms=known_ms)


def _find_policy(text: str, where: str) -> str | None:
    """Return the policy of several watermarks in the settings of a batch; None if it is not there."""
    conf = _parse_object(text.splitlines()[1], where).get("conf")
    return conf.get(_POLICY) if isinstance(conf, dict) else None


def _parse_object(text: str, where: str) -> dict[str, Any]:
    """Return a JSON object; a number of the sources `rate` and `socket` is one, too.

    Raises:
        SpecError: when the text is something else.
    """
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if isinstance(content, int):
        return {"logOffset": content}
    if not isinstance(content, dict):
        msg = f"not a JSON object: {text[:100]!r} ({where})"
        raise SpecError(msg)
    return content


def _read_files(texts: Mapping[str, str], address: str) -> dict[str, dict[str, int]]:
    """Return the files of each file source with the source's own number of a batch."""
    files: dict[str, dict[str, int]] = {}
    for name, text in texts.items():
        folder, source, _ = f"{name}//".split("/")[:3]
        if folder != "sources" or "\0" in text[:1]:  # a source of topics has its first offsets there
            continue
        for line in text.splitlines()[1:]:
            entry = _parse_object(line, f"{address}/{name}")
            if not {"path", "batchId"} <= entry.keys():
                msg = f"no file and batch: {line[:100]!r} ({address}/{name})"
                raise SpecError(msg)
            files.setdefault(source, {})[entry["path"]] = entry["batchId"]
    return files
