"""What is known of a dataset besides its runs: which days can still gain events, and which are stale by now.

Finding this out reads the source's footers and the published windows, which is too much for a web page. So a run
leaves it as a file when it ends, and pages say how old it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from backstream.eventtime.intervals import Interval
from backstream.runs.home import load_json, write_json


@dataclass(frozen=True, slots=True)
class DayIssue:
    """What is to be said of one UTC day: `kind` is a seal or `stale`; `windows` 0 where none can be named."""

    day_ms: int
    kind: str
    reason: str
    windows: int = 0


@dataclass(frozen=True, slots=True)
class DatasetState:
    """One look at a dataset. The days are those of its events, `[first_day_ms, end_day_ms)`; None: no event.

    `unsealed` is None where nobody asks for seals; `problems` say what could not be found out, and why.
    """

    dataset: str
    at_ms: int
    first_day_ms: int | None
    end_day_ms: int | None
    unsealed: tuple[DayIssue, ...] | None
    stale: tuple[DayIssue, ...]
    problems: tuple[str, ...] = ()

    @property
    def span(self) -> Interval | None:
        """The days of its events; None: no event."""
        if self.first_day_ms is None or self.end_day_ms is None:
            return None
        return Interval(self.first_day_ms, self.end_day_ms)

    @property
    def sealed_until_ms(self) -> int | None:
        """Every day of events before this one is sealed; None where nobody asks, or no day is."""
        if self.unsealed is None or self.first_day_ms is None:
            return None
        until_ms = min((note.day_ms for note in self.unsealed), default=self.end_day_ms)
        return None if until_ms == self.first_day_ms else until_ms

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The observation in a file.

        Raises:
            LedgerError: when there is no such file, or it holds none.
        """
        content = load_json(path, "observation")
        unsealed = content["unsealed"]
        notes = {"unsealed": None if unsealed is None else _notes(unsealed), "stale": _notes(content["stale"])}
        return cls(**content | notes | {"problems": tuple(content["problems"])})


@dataclass(frozen=True, slots=True)
class DayTotals:
    """What a run counted in the windows of one UTC day.

    `flagged`: how many of its windows are why a verdict is less than pass: missing, unaccounted for, or too late
    on a day that as a whole is above the soft limit.
    """

    day_ms: int
    windows_expected: int
    windows_present: int
    events: int
    on_time: int
    late: int
    dropped: int
    problem_windows: int


def write_day_totals(path: Path, figures: Sequence[DayTotals]) -> None:
    """Write as JSON by atomic rename."""
    names = list(DayTotals.__dataclass_fields__)
    write_json(path, {"columns": names, "days": [[getattr(each, name) for name in names] for each in figures]})


def load_day_totals(path: Path) -> list[DayTotals]:
    """The figures in a file.

    Raises:
        LedgerError: when there is no such file.
    """
    content = load_json(path, "day figures")
    return [DayTotals(**dict(zip(content["columns"], values, strict=True))) for values in content["days"]]


def _notes(content: Iterable[dict[str, Any]]) -> tuple[DayIssue, ...]:
    return tuple(DayIssue(**each) for each in content)
