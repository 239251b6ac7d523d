"""Read and write manifests, the results of chunks.

A manifest is the machine-readable result of the job of one chunk; the standard output of the job is for people.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from backstream.errors import LedgerError
from backstream.runs.plan import Chunk, Plan
from backstream.storage.files import load_json, write_json
from backstream.storage.stores import Stores, map_files

_DIGEST = "manifest_digest"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that the job wrote; `path` is absolute, or an address in an object store.

    `records` is the number of records behind its rows if the table has a count per row, else 0. `digest` is that
    of its footer.
    """

    path: str
    size_bytes: int
    rows: int
    records: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The result of one chunk.

    `files` maps the suffix of a table to its staged files. `fates` maps source partition to fate to count, so that
    `events_read` is the sum of all counts. `gaps` counts the readable records of the chunk by `RecordGap`.
    `timings_s` maps a stage to seconds.
    """

    run_id: str
    chunk_id: str
    attempt: str
    events_read: int
    fates: Mapping[str, Mapping[str, int]]
    files: Mapping[str, tuple[StagedFile, ...]]
    timings_s: Mapping[str, float] = field(default_factory=dict)
    finished_at: str = ""
    gaps: Mapping[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write by atomic rename: the chunk is finished when its manifest exists."""
        content = json.loads(json.dumps(asdict(self)))
        write_json(path, content | {_DIGEST: _digest(content)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the manifest from a file.

        Raises:
            LedgerError: when there is no such file, or its content was changed after it was written.
        """
        content: dict[str, Any] = load_json(path, "manifest")
        if content.pop(_DIGEST, None) != _digest(content):
            msg = f"the manifest of chunk {content.get('chunk_id')} was changed after it was written\n  {path}"
            raise LedgerError(msg)
        files = {
            suffix: tuple(StagedFile(**file) for file in staged) for suffix, staged in content["files"].items()
        }
        return cls(**content | {"files": files})


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def load_manifests(plan: Plan) -> list[Manifest]:
    """Return the manifests that exist, in the order of the plan's chunks."""
    files = (plan.folder.manifest(chunk.chunk_id) for chunk in plan.chunks)
    return [Manifest.read(file) for file in files if file.exists()]


def hash_results(manifests: Iterable[Manifest]) -> str:
    """Return a hash of the results of chunks: a chunk that was staged again has another one."""
    contents = (json.loads(json.dumps(asdict(manifest))) for manifest in manifests)
    return hashlib.sha256("\n".join(map(_digest, contents)).encode()).hexdigest()[:32]


def sum_fates(manifests: Sequence[Manifest]) -> dict[str, dict[str, int]]:
    """Return fates per source partition over all chunks.

    `halo` is left out, since the owning chunk counts the record.
    """
    total: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for partition, fates in manifest.fates.items():
            counts = total.setdefault(partition, {})
            for fate, count in fates.items():
                if fate != "halo":
                    counts[fate] = counts.get(fate, 0) + count
    return total


def sum_gaps(manifests: Iterable[Manifest]) -> Counter[str]:
    """Return the number of records with each `RecordGap` over all chunks."""
    total: Counter[str] = Counter()
    for manifest in manifests:
        total.update(manifest.gaps)
    return total


def version_warning(plan: Plan, running: str) -> str | None:
    """Return a warning if another version of the code made the plan, else None."""
    if plan.planned_by_version == running:
        return None
    return f"plan {plan.run_id} was created by backstream {plan.planned_by_version}; this is backstream {running}"


def load_finished_manifest(plan: Plan, chunk: Chunk) -> Manifest | None:
    """Return the manifest of a chunk; None if it is unfinished, or lost its staged files before publication.

    After the publication the files may be missing, since another run may have replaced them.
    """
    file = plan.folder.manifest(chunk.chunk_id)
    if not file.exists():
        return None
    manifest = Manifest.read(file)
    return manifest if plan.folder.publication.exists() or is_staged(manifest) else None


def list_unfinished_chunks(plan: Plan) -> list[str]:
    """Return the ids of the unfinished chunks."""
    return [chunk.chunk_id for chunk in plan.chunks if load_finished_manifest(plan, chunk) is None]


def is_staged(manifest: Manifest) -> bool:
    """Return whether all staged files of a chunk exist and are those that the job wrote.

    Vacuum removes the files of a run that did not publish them in time, and a disk may lose some.
    """
    stores, files = Stores.from_environment(), [file for table in manifest.files.values() for file in table]
    return all(map_files(partial(_is_intact, stores), {file.path: file for file in files}))


def _is_intact(stores: Stores, file: StagedFile) -> bool:
    """Return whether a file exists with the size and the footer of its creation."""
    try:
        footer = stores.read_footer(file.path)
    except (OSError, ValueError):
        return False
    return footer.size_bytes == file.size_bytes and file.digest in ("", footer.digest)
