"""What a plan is pinned to: a run, a retry and a resumed run read the files that the plan names, and no others."""

from __future__ import annotations

import os
from collections.abc import Sequence

from backstream.core.errors import PlanError
from backstream.core.instants import instant_text
from backstream.core.manifest import Manifest
from backstream.core.plan import Chunk, InputFile, Plan

_SHOWN = 10
_NS_PER_MS = 1_000_000


def unfinished(plan: Plan) -> list[str]:
    """The chunks that are not done."""
    return [chunk.chunk_id for chunk in plan.chunks if finished(plan, chunk) is None]


def finished(plan: Plan, chunk: Chunk) -> Manifest | None:
    """What a chunk left; None while it is not done, or when its files are gone before they were published.

    After the publication they may be gone: another run has replaced them since.
    """
    file = plan.folder.manifest(chunk.chunk_id)
    if not file.exists():
        return None
    manifest = Manifest.read(file)
    return manifest if plan.folder.publication.exists() or manifest.is_staged() else None


def require_inputs(plan: Plan) -> None:
    """Check that every input file of a plan is there as it was planned.

    Raises:
        PlanError: naming the files that are gone or changed, ten at most, and how many there are.
    """
    require_files(plan.inputs, f"run {plan.run_id}")


def require_files(files: Sequence[InputFile], what: str) -> None:
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


def other_code(plan: Plan, running: str) -> str | None:
    """A warning when the code that runs is not the one that made the plan; None when it is."""
    if plan.code_version == running:
        return None
    return f"plan {plan.run_id} was made by backstream {plan.code_version}, and {running} is running it"


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
