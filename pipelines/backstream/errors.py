"""Define the errors that users see; each message states the problem, the value with its unit, and the source."""

from __future__ import annotations

import os
import re

from backstream.text import visible_text

_MAX_VALUE = 100
"""The most characters of a value in a message."""
_MAX_PATH = 1_000
_QUOTED = re.compile(r"""(?<!\w)(['"`])((?:(?!\1)[^\n])*)\1(?!\w)""")
_LONG_WORD = re.compile(rf"(?<![\w/:.])(?:[^\s/'\"`]{{{_MAX_VALUE + 1},}}|\S{{{_MAX_PATH + 1},}})")


def shorten_values(message: str) -> str:
    """Return a message in which quoted values and long words are shortened, and hidden characters are visible.

    A path stays whole, so that it can be copied.
    """
    return _LONG_WORD.sub(lambda match: _shorten(match[0]), _QUOTED.sub(_shorten_quoted, visible_text(message)))


def _shorten_quoted(match: re.Match[str]) -> str:
    quote, value = match.groups()
    is_path = "/" in value and " " not in value
    return f"{quote}{_shorten(value, _MAX_PATH if is_path else _MAX_VALUE)}{quote}"


def _shorten(value: str, length: int = _MAX_VALUE) -> str:
    return value if len(value) <= length else f"{value[:_MAX_VALUE]}.."


NO_RETRY_STATUS = 3
"""Exit status of a job whose error is not worth a retry."""


class BackstreamError(Exception):
    """Base class of all errors that backstream raises deliberately."""

    is_retryable: bool = True
    """True if the same task with the same plan may succeed at the next attempt.

    Airflow's tasks and the exit status of a Spark job use only this attribute. The default is a retry: it costs
    minutes, while giving up on a temporary failure costs a person's morning.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shorten_values(message))


class SpecError(BackstreamError, ValueError):
    """A user input (a definition, a range, an option) is wrong."""

    is_retryable = False  # the input stays wrong until a person changes it


class UserCodeError(BackstreamError, RuntimeError):
    """The code of the user raised an exception, or returned something else than it must."""

    is_retryable = False  # the same code fails at the same records


class PlanError(BackstreamError, ValueError):
    """A request cannot be planned, or a plan cannot be used; `field` is the wrong parameter, if it is one."""

    is_retryable = False  # a retry runs the same plan

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class RangeError(PlanError):
    """A range cannot contain events; `field` is its wrong end: `since` or `until`."""


class ContractError(BackstreamError, TypeError):
    """A table or file does not have the declared columns and types."""

    is_retryable = False  # a person must change the file or table


class ConflictError(BackstreamError):
    """Another run published into the range since it was planned."""

    is_retryable = False  # that publication stays, and the plan is older


class CommitError(BackstreamError):
    """Other commits to a table were first at every attempt."""

    is_retryable = True  # other writers finish, and each attempt reads the new table state


class QualityError(BackstreamError):
    """The quality gate or the approver rejected the result; nothing was published."""

    is_retryable = False  # the staged result stays the same


class StepError(BackstreamError):
    """A step needs what an earlier step has not left, for example because its task was marked as success."""

    is_retryable = False  # a retry of this step does not do the other one


class CountError(BackstreamError):
    """Two counts that must be equal differ: records were lost or doubled between them."""

    is_retryable = True  # a loss in a task or on a disk may be temporary


class LedgerError(BackstreamError):
    """The record of runs contradicts what is on disk."""

    is_retryable = True  # the retry of a lost task writes its manifest


class CatalogError(LedgerError):
    """The catalog's database cannot be reached, read or written."""

    is_retryable = True  # the outage of a database is temporary


class StorageError(BackstreamError):
    """A file cannot be written or read, for example on a full disk."""

    is_retryable = True  # space can be freed, and the outage of a store is temporary


class HeapError(BackstreamError):
    """The JVM of Spark has no memory left."""

    is_retryable = True  # finished chunks are kept, and fewer may run at the same time


class SetupError(BackstreamError):
    """The machine, or the configuration of Airflow, lacks something that a run needs, such as a Java runtime."""

    is_retryable = True  # another worker may have it, or a person may add it


class JobError(BackstreamError):
    """A Spark job failed; its exit status decides whether its error is worth a retry."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.is_retryable = status != NO_RETRY_STATUS


def storage_error(what: str, where: object, error: OSError) -> StorageError:
    """Return the error for a failed disk operation; `what` is the failed action, `where` the place."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        f"{what}: {reason}\n  {where}\n\n"
        "hint: free disk space or fix permissions, then run the same command again;"
        " finished chunks and published data are kept"
    )


_MAX_PROBLEMS = 10
"""Limit of listed problems: they fit on one screen."""


def format_problems(count_of: str, lines: list[str], where: str) -> str:
    """Return one message for one or several problems.

    One problem has `where` on its first line, several are listed. Lines after the first, such as a hint, are only
    kept for one problem.
    """
    if len(lines) == 1:
        first, line_break, rest = lines[0].partition("\n")
        return f"{first} ({where}){line_break}{rest}"
    listed = "".join("\n  " + line.partition("\n")[0] for line in lines[:_MAX_PROBLEMS])
    more = f"\n  and {len(lines) - _MAX_PROBLEMS} more" if len(lines) > _MAX_PROBLEMS else ""
    return f"{len(lines)} {count_of} in {where}{listed}{more}"
