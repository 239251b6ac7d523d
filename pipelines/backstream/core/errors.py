"""The errors a person may see. Each says what is wrong, with the value, its unit and where it came from."""

from __future__ import annotations

import os


class BackstreamError(Exception):
    """Root of everything backstream raises on purpose."""


class SpecError(BackstreamError, ValueError):
    """What a person wrote (a definition, a range, an option) is wrong: a retry cannot help."""


class PlanError(BackstreamError, ValueError):
    """What was asked for cannot be planned, or a plan cannot be used: a retry cannot help."""


class RangeError(PlanError):
    """A range that no source could have events for; `end` names the end of it that is wrong: since or until."""

    def __init__(self, message: str, end: str = "") -> None:
        super().__init__(message)
        self.end = end


class ContractError(BackstreamError, TypeError):
    """A table or file does not have the columns and types it promised: a retry cannot help."""


class ConflictError(BackstreamError):
    """Someone else published into the range since it was planned."""


class QualityError(BackstreamError):
    """The gate said no; nothing was published."""


class CountError(BackstreamError):
    """Two counts that must be equal are not: something was lost or doubled between them; a retry may help."""


class LedgerError(BackstreamError):
    """The record of runs contradicts what is on disk."""


class CatalogError(LedgerError):
    """The catalog's database cannot be reached, read or written: a retry helps once it can."""


class StorageError(BackstreamError):
    """A file cannot be written or read, as on a full disk: a retry helps once it can."""


class HeapError(BackstreamError):
    """Spark's Java has no memory left: a retry helps once it gets more."""


class SetupError(BackstreamError):
    """The machine lacks something a run needs, such as a Java runtime."""


def unwritable(what: str, where: object, error: OSError) -> StorageError:
    """What to raise when the disk refuses; `what` says what could not be done, `where` names the place."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        f"{what}: {reason}\n  {where}\n\n"
        "hint: once there is room and permission, run the same again: what was finished is kept,"
        " and what is published is whole"
    )


def problems(count_of: str, lines: list[str], where: str) -> str:
    """One message for one or several problems: a single one says `where` on its first line, several are listed.

    A problem may go on after its first line with a hint, which only a single one has room for.
    """
    shown = 10  # more is not read, and one screen has to do
    if len(lines) == 1:
        first, line_break, rest = lines[0].partition("\n")
        return f"{first} ({where}){line_break}{rest}"
    listed = "".join("\n  " + line.partition("\n")[0] for line in lines[:shown])
    rest = f"\n  and {len(lines) - shown} more" if len(lines) > shown else ""
    return f"{len(lines)} {count_of} in {where}{listed}{rest}"
