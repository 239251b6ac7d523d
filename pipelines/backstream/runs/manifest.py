"""Read and write manifests, the results of chunks, and check that the inputs of a plan are unchanged.

A manifest is the machine-readable result of the job of one chunk; the standard output of the job is for people.
"""

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
_MAX_FACTS = 10
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that the job wrote; `path` is absolute.

    `records` is the number of records behind its rows if the table has a count per row, else 0. `digest` is that
    of its footer.
    """

    path: str
    size_bytes: int
    rows: int
    records: int = 0
    digest: str = ""

    def is_intact(self) -> bool:
        """Return whether the file exists with the size and the footer of its creation."""
        try:
            footer = Footer.from_file(self.path)
        except (OSError, ValueError):
            return False
        return footer.size_bytes == self.size_bytes and self.digest in ("", footer.digest)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The result of one chunk.

    `files` maps the suffix of a table to its staged files. `fates` maps source partition to fate to count, so that
    `events_read` is the sum of all counts. `timings_s` maps a stage to seconds.
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
        """Write by atomic rename: the chunk is finished when its manifest exists."""
        content = json.loads(json.dumps(asdict(self)))
        write_json(path, content | {_DIGEST: _digest(content)})

    def is_staged(self) -> bool:
        """Return whether all staged files exist and are those that the job wrote.

        Vacuum removes the files of a run that did not publish them in time, and a disk may lose some.
        """
        return all(file.is_intact() for files in self.files.values() for file in files)

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


def load_finished_manifest(plan: Plan, chunk: Chunk) -> Manifest | None:
    """Return the manifest of a chunk; None if it is unfinished, or lost its staged files before publication.

    After the publication the files may be missing, since another run may have replaced them.
    """
    file = plan.folder.manifest(chunk.chunk_id)
    if not file.exists():
        return None
    manifest = Manifest.read(file)
    return manifest if plan.folder.publication.exists() or manifest.is_staged() else None


def list_unfinished_chunks(plan: Plan) -> list[str]:
    """Return the ids of the unfinished chunks."""
    return [chunk.chunk_id for chunk in plan.chunks if load_finished_manifest(plan, chunk) is None]


def sum_fates(manifests: list[Manifest]) -> dict[str, dict[str, int]]:
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


def require_unchanged_inputs(plan: Plan) -> None:
    """Check that every input file of a plan is unchanged since planning.

    Raises:
        PlanError: with ten missing or changed files at most, and their number.
    """
    require_input_files(plan.inputs, f"run {plan.run_id}")


def require_input_files(files: Sequence[InputFile], what: str) -> None:
    """Check that input files are unchanged since planning.

    Args:
        files: of a plan.
        what: the action that needs them, for the message.

    Raises:
        PlanError: with ten missing or changed files at most, and their number.
    """
    if facts := [fact for file in files if (fact := _describe_change(file))]:
        count = "1 input file" if len(facts) == 1 else f"{len(facts)} input files"
        more = f"\n  and {len(facts) - _MAX_FACTS} more" if len(facts) > _MAX_FACTS else ""
        listed = "".join(f"\n  {fact}" for fact in facts[:_MAX_FACTS]) + more
        msg = (
            f"cannot {what}: {count} of {len(files)} cannot be read as planned{listed}"
            "\n\nhint: restore the files, or create a new plan for the range"
        )
        raise PlanError(msg)


def _describe_change(file: InputFile) -> str | None:
    """Describe how a file changed since planning; None: it is unchanged."""
    try:
        status = os.stat(file.path)  # noqa: PTH116 - thousands of files, each once
    except (FileNotFoundError, NotADirectoryError):
        return f"removed: {file.path}"
    if status.st_size != file.size_bytes:
        return f"changed: {file.path} had {file.size_bytes:,} bytes, has {status.st_size:,}"
    if (modified_ms := status.st_mtime_ns // _NS_PER_MS) != file.modified_ms:
        old, new = instant_text(file.modified_ms), instant_text(modified_ms)
        return f"changed: {file.path} was written {old}, and again {new}"
    return None


def version_warning(plan: Plan, running: str) -> str | None:
    """Return a warning if another version of the code made the plan, else None."""
    if plan.planned_by_version == running:
        return None
    return f"plan {plan.run_id} was created by backstream {plan.planned_by_version}; this is backstream {running}"


def home_of(plan: Plan) -> Home:
    """Return the home of a plan."""
    return Home(Path(plan.home))
