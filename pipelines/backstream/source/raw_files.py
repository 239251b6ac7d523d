"""List the raw files of a source: those that lie under its path, before any of them is prepared."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from backstream.definition.source_section import Source
from backstream.errors import PlanError
from backstream.runs.input_files import HIDDEN, SUFFIXES, FileList
from backstream.source.wildcards import has_wildcard, is_hidden, parts_below, split_pattern, walk_files
from backstream.storage.object_stores import StoreAccess, explain_store_errors, require_known_store
from backstream.storage.stores import is_in_store

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson", ".log", ".txt", "")
SUFFIXES_BY_FORMAT = {
    "parquet": SUFFIXES,
    "json": JSON_SUFFIXES,
    "csv": (".csv", ".tsv", ".txt", ""),
    "orc": (".orc", ""),
    "avro": (".avro", ""),
}
"""Suffixes of the files of a format. Flink's file sink writes names without a suffix."""
TEXT_FORMATS = ("json", "csv")
UNCHECKED_SUFFIXES = (".lz4", ".snappy", ".deflate", ".xz")
"""Suffixes of compressions whose bytes backstream does not check, so it reads no text in them."""
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst", *UNCHECKED_SUFFIXES)


@dataclass(frozen=True, slots=True, order=True)
class RawFile:
    """A raw file, with the values by which a changed file is recognized."""

    path: str
    size_bytes: int
    modified_ms: int
    identity: str = ""
    """Version or entity tag of an object; empty for a local file."""


def path_of_uri(uri: str) -> str:
    """Return the path of a raw file, or its address, by its name in prepared files."""
    return path_in_records(unquote(uri))


def path_in_records(path: str) -> str:
    """Return a path as records name it: without the scheme of local files, which Iceberg tables may have."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


@dataclass(frozen=True, slots=True)
class RawListing:
    """The data files of a source, sorted, and by reason the files that are not data."""

    files: Sequence[RawFile]
    ignored: Mapping[str, FileList]


_IgnoredPaths = defaultdict[str, set[str]]
"""The paths of files that are not data, by reason."""


def list_source(source: Source, where: str) -> RawListing:
    """List the files under the paths of a source.

    Raises:
        PlanError: when a path does not exist, or no path has a data file.
    """
    ignored: _IgnoredPaths = defaultdict(set)
    files = [file for path in source.paths for file in _list_path(path, source.format, where, ignored)]
    by_reason = {reason: FileList.from_paths(paths) for reason, paths in sorted(ignored.items())}
    if not files:
        others = "".join(f"\n  {found.count_text} with {reason}: {found}" for reason, found in by_reason.items())
        msg = f"no {source.format} files under {', '.join(source.paths)} ({where}, source.path){others}"
        raise PlanError(msg)
    return RawListing(sorted({file.path: file for file in files}.values(), key=lambda file: file.path), by_reason)


def reason_unchecked(path: str) -> str | None:
    """Return why the text in a file is not read, by its suffix; None: it is read."""
    suffix = Path(path).suffix.lower()
    if suffix not in UNCHECKED_SUFFIXES:
        return None
    return f"backstream reads no text with the suffix {suffix}: compress it with gzip, bzip2, or zstd"


def list_raw_files(source: Source, where: str) -> Sequence[RawFile]:
    """Return the data files under the paths of a source, sorted; hidden ones and other formats are left out.

    Raises:
        PlanError: when a path does not exist, or no path has a data file.
    """
    return list_source(source, where).files


def root_of_paths(paths: Sequence[str]) -> str:
    """Return the deepest folder, or the file, that all paths of a source have in common."""
    roots = [split_pattern(path)[0] for path in paths]
    if len(roots) == 1:
        return roots[0]
    common = os.path.commonpath(roots)
    return common.replace(":/", "://", 1) if is_in_store(roots[0]) else common


def _list_path(path: str, format_name: str, where: str, ignored: _IgnoredPaths) -> Iterator[RawFile]:
    if is_in_store(path):
        yield from _list_stored_files(path, format_name, where, ignored)
        return
    for root in expand_path(path, where):
        yield from _list_root(root, format_name, ignored)


def expand_path(path: str, where: str) -> list[Path]:
    """Return the visible files and folders that a path names, sorted; without a wildcard, one that must exist.

    Raises:
        PlanError: when the path does not exist, or is the folder of an Iceberg table.
    """
    if has_wildcard(path):
        root, pattern = split_pattern(path)
        found = Path(root).glob(pattern)
        return sorted(path for path in found if not is_hidden(path.relative_to(root).parts))
    if not Path(path).exists():
        msg = f"no file or folder at {path} ({where}, source.path)"
        raise PlanError(msg)
    _require_no_table(Path(path), where)
    return [Path(path)]


def _require_no_table(folder: Path, where: str) -> None:
    """Refuse the folder of an Iceberg table, which also has files with removed rows.

    Raises:
        PlanError: with the way to read the table.
    """
    for root in (folder, folder.parent):
        if next((root / "metadata").glob("*.metadata.json"), None) is not None:
            msg = (
                f"{root} is the folder of an Iceberg table, which also has files with removed records"
                f" ({where}, source.path)\n\n"
                'hint: set source.format = "iceberg", and source.path to the name of the table, e.g.,'
                ' "catalog.namespace.table"'
            )
            raise PlanError(msg)


def _list_root(root: Path, format_name: str, ignored: _IgnoredPaths) -> Iterator[RawFile]:
    """Yield one file whatever its suffix, or the data files of a folder."""
    if root.is_file():
        yield _describe(str(root), root.stat())
        return
    for parts, entry in walk_files(root):
        if reason := _reason_no_data(parts, format_name):
            ignored[reason].add(entry.path)
            continue
        with suppress(FileNotFoundError):  # it was removed meanwhile
            yield _describe(entry.path, entry.stat())


def _reason_no_data(parts: Sequence[str], format_name: str) -> str | None:
    """Return why a file is not data of a format, by the parts of its path below a folder; None: it is data."""
    if is_hidden(parts):
        return HIDDEN
    path = Path(parts[-1])
    while path.suffix.lower() in COMPRESSED_SUFFIXES:
        path = path.with_suffix("")
    known = SUFFIXES_BY_FORMAT[format_name]
    return None if path.suffix.lower() in known else f"another suffix than {', '.join(filter(None, known))}"


def is_data_file(parts: Sequence[str], format_name: str) -> bool:
    """Return whether a file below a folder is data of a format, by the parts of its path below the folder."""
    return _reason_no_data(parts, format_name) is None


def _describe(path: str, status: os.stat_result) -> RawFile:
    return RawFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _list_stored_files(address: str, format_name: str, where: str, ignored: _IgnoredPaths) -> Iterator[RawFile]:
    """Yield the data files of an address in an object store.

    An object that the address or its pattern names is data, whatever its suffix. Objects below a prefix are data
    if they have a suffix of the format, and no part of their names begins with `_` or `.`. The others are added to
    `ignored`.

    Raises:
        SpecError: when the store is unknown, or the address contains a key.
        PlanError: when nothing has the address.
        StorageError: when the store cannot be read.
    """
    require_known_store(address, where)
    root, pattern = split_pattern(address)
    scheme = address.partition("://")[0]
    with explain_store_errors("list", address):
        filesystem, path = StoreAccess.from_environment().open(root)
        infos = _list_objects(filesystem, path)
    if not infos and not pattern:
        msg = f"no file or folder at {address} ({where}, source.path)"
        raise PlanError(msg)
    for info in infos:
        parts = tuple(info.path.removeprefix(path).strip("/").split("/"))
        if info.path == path or is_wanted(parts, pattern, format_name):
            yield RawFile(f"{scheme}://{info.path}", info.size, (info.mtime_ns or 0) // 1_000_000)
        elif below := parts if not pattern else parts_below(parts, pattern):
            ignored[_reason_no_data(below, format_name) or HIDDEN].add(f"{scheme}://{info.path}")


def _list_objects(filesystem: Any, path: str) -> list[Any]:
    """Return the objects below a prefix, or the object with this name; without placeholders of folders."""
    from pyarrow.fs import FileSelector

    info = filesystem.get_file_info(path)
    if info.is_file:
        return [info]
    infos = filesystem.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return [info for info in infos if info.is_file]


def is_wanted(parts: tuple[str, ...], pattern: str, format_name: str) -> bool:
    """Return whether an object is data, by its path below the folder before the pattern."""
    if not pattern:
        return is_data_file(parts, format_name)
    below = None if is_hidden(parts) else parts_below(parts, pattern)
    return below is not None and (not below or is_data_file(below, format_name))
