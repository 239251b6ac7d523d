"""A manifest: what the job of one chunk leaves for those after it. Standard output is for people."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from backstream.errors import LedgerError, PlanError
from backstream.eventtime.instants import instant_text
from backstream.runs.home import Home, load_json, write_json
from backstream.runs.parquet_footer import Footer
from backstream.runs.plan import Chunk, InputFile, Plan

_DIGEST = "manifest_digest"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One Parquet file that the job wrote; `path` is absolute.

    `records` counts the records behind its rows, where the table says of each row how many they are; else 0.
    `digest` is that of its footer.
    """

    path: str
    size_bytes: int
    rows: int
    records: int = 0
    digest: str = ""

    def is_intact(self) -> bool:
        """Return whether the file is there with the size and the footer that it was written with."""
        try:
            footer = Footer.from_file(self.path)
        except (OSError, ValueError):
            return False
        return footer.size_bytes == self.size_bytes and self.digest in ("", footer.digest)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one chunk produced.

    `files` maps a table's suffix to the files staged for it; `fates` maps source partition to fate to
    count, so that `events_read = sum of all of them`; `timings_s` maps a stage to seconds.
    """

    run_id: str
    chunk_id: str
    attempt: str
    events_read: int
    fates: Mapping[str, Mapping[str, int]]
    files: Mapping[str, tuple[StagedFile, ...]]
    timings_s: Mapping[str, float] = field(default_factory=dict)
    finished_at: str = ""

    def write(self, path: Path) -> None:
        """Write by atomic rename: a chunk is done when its manifest is there."""
        content = json.loads(json.dumps(asdict(self)))
        write_json(path, content | {_DIGEST: _digest(content)})

    def is_staged(self) -> bool:
        """Whether the files are all there, and are those that the job wrote.

        Vacuum takes those of a run that did not publish them in time; a disk may lose some.
        """
        return all(file.is_intact() for files in self.files.values() for file in files)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The manifest in a file.

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


def sum_fates(manifests: list[Manifest]) -> dict[str, dict[str, int]]:
    """Fates per source partition over all chunks. `halo` is left out: the owning chunk counts the record."""
    total: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for partition, fates in manifest.fates.items():
            counts = total.setdefault(partition, {})
            for fate, count in fates.items():
                if fate != "halo":
                    counts[fate] = counts.get(fate, 0) + count
    return total


_SHOWN = 10
_NS_PER_MS = 1_000_000


def list_unfinished_chunks(plan: Plan) -> list[str]:
    """The chunks that are not done."""
    return [chunk.chunk_id for chunk in plan.chunks if load_finished_chunks(plan, chunk) is None]


def load_finished_chunks(plan: Plan, chunk: Chunk) -> Manifest | None:
    """What a chunk left; None while it is not done, or when its files are gone before they were published.

    After the publication they may be gone: another run has replaced them since.
    """
    file = plan.folder.manifest(chunk.chunk_id)
    if not file.exists():
        return None
    manifest = Manifest.read(file)
    return manifest if plan.folder.publication.exists() or manifest.is_staged() else None


def require_unchanged_inputs(plan: Plan) -> None:
    """Check that every input file of a plan is there as it was planned.

    Raises:
        PlanError: naming the files that are gone or changed, ten at most, and how many there are.
    """
    require_input_files(plan.inputs, f"run {plan.run_id}")


def require_input_files(files: Sequence[InputFile], what: str) -> None:
    """Check that some input files are there as they were planned.

    Args:
        files: as a plan has them.
        what: cannot be done otherwise.

    Raises:
        PlanError: naming the files that are gone or changed, ten at most, and how many there are.
    """
    if facts := [fact for file in files if (fact := _altered(file))]:
        found = "1 input file" if len(facts) == 1 else f"{len(facts)} input files"
        msg = (
            f"cannot {what}: {found} of {len(files)} cannot be read as planned{_listed(facts)}"
            "\n\nhint: put them back as they were, or plan the range anew"
        )
        raise PlanError(msg)


def version_warning(plan: Plan, running: str) -> str | None:
    """A warning when the code that runs is not the one that made the plan; None when it is."""
    if plan.planned_by_version == running:
        return None
    return f"plan {plan.run_id} was made by backstream {plan.planned_by_version}, and {running} is running it"


def _altered(file: InputFile) -> str | None:
    """What became of a file; None: it is as it was."""
    try:
        found = os.stat(file.path)  # noqa: PTH116 - thousands of files, each once
    except (FileNotFoundError, NotADirectoryError):
        return f"gone: {file.path}"
    if found.st_size != file.size_bytes:
        return f"changed: {file.path} had {file.size_bytes:,} bytes, has {found.st_size:,}"
    if (modified_ms := found.st_mtime_ns // _NS_PER_MS) != file.modified_ms:
        old, new = instant_text(file.modified_ms), instant_text(modified_ms)
        return f"changed: {file.path} was written {old}, and again {new}"
    return None


def _listed(facts: Sequence[str]) -> str:
    more = len(facts) - _SHOWN
    return "".join(f"\n  {fact}" for fact in facts[:_SHOWN]) + (f"\n  and {more} more" if more > 0 else "")


def home_of(plan: Plan) -> Home:
    """The home a plan was made for."""
    return Home(Path(plan.home))


def load_manifests(plan: Plan) -> list[Manifest]:
    """The manifests that are there, in the order of the plan's chunks."""
    files = (plan.folder.manifest(chunk.chunk_id) for chunk in plan.chunks)
    return [Manifest.read(file) for file in files if file.exists()]
