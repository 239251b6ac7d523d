"""Check that the input files of a plan are unchanged, on a disk or in an object store."""

from __future__ import annotations

from collections.abc import Sequence

from backstream.errors import PlanError
from backstream.eventtime.instants import instant_text
from backstream.runs.plan import InputFile, Plan
from backstream.storage.stores import FileVersion, Stores

_MAX_FACTS = 10


def require_unchanged_inputs(plan: Plan) -> None:
    """Check that every input file of a plan is unchanged since planning.

    Raises:
        PlanError: with ten missing or changed files at most, and their number.
        StorageError: when an object store cannot be read.
    """
    require_input_files(plan.inputs, f"run {plan.run_id}")


def require_input_files(files: Sequence[InputFile], what: str) -> None:
    """Check that input files are unchanged since planning.

    Args:
        files: of a plan.
        what: the action that needs them, for the message.

    Raises:
        PlanError: with ten missing or changed files at most, and their number.
        StorageError: when an object store cannot be read.
    """
    versions = Stores.from_environment().find_versions([file.path for file in files])
    described = (_describe_change(file, version) for file, version in zip(files, versions, strict=True))
    if facts := [fact for fact in described if fact]:
        count = "1 input file" if len(facts) == 1 else f"{len(facts)} input files"
        more = f"\n  and {len(facts) - _MAX_FACTS} more" if len(facts) > _MAX_FACTS else ""
        listed = "".join(f"\n  {fact}" for fact in facts[:_MAX_FACTS]) + more
        msg = (
            f"cannot {what}: {count} of {len(files)} cannot be read as planned{listed}"
            "\n\nhint: restore the files, or create a new plan for the range"
        )
        raise PlanError(msg)


def _describe_change(file: InputFile, version: FileVersion | None) -> str | None:
    """Describe how a file changed since planning; None: it is unchanged."""
    if version is None:
        return f"removed: {file.path}"
    if version.size_bytes != file.size_bytes:
        return f"changed: {file.path} had {file.size_bytes:,} bytes, has {version.size_bytes:,}"
    if version.modified_ms != file.modified_ms:
        old, new = instant_text(file.modified_ms), instant_text(version.modified_ms)
        return f"changed: {file.path} was written {old}, and again {new}"
    return None
