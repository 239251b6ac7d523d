"""Check that the input files of a plan are unchanged, on a disk or in an object store."""

from __future__ import annotations

from collections.abc import Sequence

from backstream.errors import PlanError
from backstream.eventtime.instants import instant_text
from backstream.runs.plan import InputFile, Plan
from backstream.source.raw_files import RawFile
from backstream.source.user_files import BatchPlace, find_copied_files
from backstream.storage.stores import FileVersion, Stores
from backstream.text import count_of

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
    changed = [
        file for file, version in zip(files, versions, strict=True) if _describe_change(file, version) is not None
    ]
    if not changed:
        return
    user_files = _list_user_files(changed)
    versions = Stores.from_environment().find_versions([file.path for file in user_files])
    described = (_describe_change(file, version) for file, version in zip(user_files, versions, strict=True))
    facts = [fact for fact in described if fact] or [f"prepared again: {file.path}" for file in user_files]
    is_prepared = any(BatchPlace.from_input(file.path) for file in changed)
    count = count_of(len(facts), "input file") + ("" if is_prepared else f" of {len(files)}")
    more = f"\n  and {len(facts) - _MAX_FACTS} more" if len(facts) > _MAX_FACTS else ""
    listed = "".join(f"\n  {fact}" for fact in facts[:_MAX_FACTS]) + more
    msg = (
        f"cannot {what}: {count} cannot be read as planned{listed}"
        "\n\nhint: restore the files, or create a new plan for the range"
    )
    raise PlanError(msg)


def _list_user_files(changed: Sequence[InputFile]) -> list[InputFile | RawFile]:
    """Return the files of the user behind input files that changed, with their versions as they were planned."""
    copied = find_copied_files(file.path for file in changed)
    found: dict[str, InputFile | RawFile] = {}
    for place in dict.fromkeys(BatchPlace.from_input(file.path) for file in changed):
        contents = place.find_contents() if place else None
        found |= {file.path: file for file in contents.files} if contents else {}
    for file in changed:
        if not found or BatchPlace.from_input(file.path) is None:
            user_file = copied.get(file.path, file)
            found[user_file.path] = user_file
    return list(found.values())


def _describe_change(file: InputFile | RawFile, version: FileVersion | None) -> str | None:
    """Describe how a file changed since planning; None: it is unchanged."""
    if version is None:
        return f"removed: {file.path}"
    if version.size_bytes != file.size_bytes:
        return f"changed: {file.path} had {file.size_bytes:,} bytes, has {version.size_bytes:,}"
    if version.modified_ms != file.modified_ms:
        old, new = instant_text(file.modified_ms), instant_text(version.modified_ms)
        return f"changed: {file.path} was written {old}, and again {new}"
    return None
