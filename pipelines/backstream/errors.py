"""The errors a person may see. Each says what is wrong, with the value, its unit and where it came from."""

from __future__ import annotations

import os

HOPELESS_STATUS = 3
"""The exit status of a job that ended with an error which is not worth a retry."""


class BackstreamError(Exception):
    """Root of everything backstream raises on purpose."""

    is_retryable: bool = True
    """Whether the same task with the same plan may succeed when it is tried again.

    Airflow's tasks and the exit status of a Spark job ask this, and nothing else. An error that nobody has thought
    about is retried: that costs minutes, and giving up on what would have healed costs a person's morning.
    """


class SpecError(BackstreamError, ValueError):
    """What a person wrote (a definition, a range, an option) is wrong."""

    is_retryable = False  # it says the same until somebody writes it otherwise


class PlanError(BackstreamError, ValueError):
    """What was asked for cannot be planned, or a plan cannot be used."""

    is_retryable = False  # a plan is refused for what it says, and a retry runs the same one


class RangeError(PlanError):
    """A range that no source could have events for; `end` names the end of it that is wrong: since or until."""

    def __init__(self, message: str, end: str = "") -> None:
        super().__init__(message)
        self.end = end


class ContractError(BackstreamError, TypeError):
    """A table or file does not have the columns and types it promised."""

    is_retryable = False  # files and tables do not change back by themselves


class ConflictError(BackstreamError):
    """Someone else published into the range since it was planned."""

    is_retryable = False  # their publication stays, and the plan is older than it


class CommitError(BackstreamError):
    """Other commits to a table came between at every attempt."""

    is_retryable = True  # others are done some time, and each attempt looks at what they did


class QualityError(BackstreamError):
    """The gate or a person said no; nothing was published."""

    is_retryable = False  # the answer is about what is staged, which stays the same


class CountError(BackstreamError):
    """Two counts that must be equal are not: something was lost or doubled between them."""

    is_retryable = True  # what a task or a disk lost once it may keep the next time


class LedgerError(BackstreamError):
    """The record of runs contradicts what is on disk."""

    is_retryable = True  # a manifest that a lost task did not leave is left by its retry


class CatalogError(LedgerError):
    """The catalog's database cannot be reached, read or written."""

    is_retryable = True  # databases come back


class StorageError(BackstreamError):
    """A file cannot be written or read, as on a full disk."""

    is_retryable = True  # somebody makes room, and stores answer again


class HeapError(BackstreamError):
    """Spark's Java has no memory left."""

    is_retryable = True  # chunks that were finished are kept, and fewer may run beside the rest


class SetupError(BackstreamError):
    """The machine, or what Airflow was told of it, lacks something that a run needs, such as a Java runtime."""

    is_retryable = True  # another worker may have it, and a person may add it between two attempts


class JobError(BackstreamError):
    """A Spark job failed; its exit status says whether its own error is worth a retry."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.is_retryable = status != HOPELESS_STATUS


def storage_error(what: str, where: object, error: OSError) -> StorageError:
    """What to raise when the disk refuses; `what` says what could not be done, `where` names the place."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        f"{what}: {reason}\n  {where}\n\n"
        "hint: once there is room and permission, run the same again: what was finished is kept,"
        " and what is published is whole"
    )


def format_problems(count_of: str, lines: list[str], where: str) -> str:
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
