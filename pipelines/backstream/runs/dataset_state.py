"""Store the state of a dataset between its runs: unsealed days, stale days, totals of days, and comparisons.

`DatasetState` depends on the source's footers and the published windows, and reading them takes too long for a web
page. Each run therefore writes it to a file when it ends, and the pages show the age of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from backstream.errors import LedgerError
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.run_file import RunFile
from backstream.storage.files import load_json, write_json


@dataclass(frozen=True, slots=True)
class DayIssue:
    """An issue of one UTC day: `kind` is a seal or `stale`; `windows` is 0 if none can be named."""

    day_ms: int
    kind: str
    reason: str
    windows: int = 0


@dataclass(frozen=True, slots=True)
class DatasetState(RunFile):
    """The state of a dataset at one time.

    The days with events are `[first_day_ms, end_day_ms)`, None without events. `unsealed` is None if the
    definition does not use seals. `problems` list what could not be determined, with the reason. `moves` are the
    files that were only renamed or compressed.
    """

    what = "state of a dataset"

    dataset: str
    at_ms: int
    first_day_ms: int | None
    end_day_ms: int | None
    unsealed: tuple[DayIssue, ...] | None
    stale: tuple[DayIssue, ...]
    problems: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()

    @property
    def span(self) -> Interval | None:
        """The days with events; None without events."""
        if self.first_day_ms is None or self.end_day_ms is None:
            return None
        return Interval(self.first_day_ms, self.end_day_ms)

    @property
    def sealed_until_ms(self) -> int | None:
        """The day before which all days with events are sealed; None without seals, or without a sealed day."""
        if self.unsealed is None or self.first_day_ms is None:
            return None
        until_ms = min((issue.day_ms for issue in self.unsealed), default=self.end_day_ms)
        return None if until_ms == self.first_day_ms else until_ms


class DayTotals(NamedTuple):
    """The counts of a run in the windows of one UTC day.

    `problem_windows` counts the windows that lower the verdict: missing, unaccounted for, or too late on a day
    that as a whole exceeds the limit. With a band, the soft limits apply only to windows that are never empty.
    """

    day_ms: int
    windows_expected: int
    windows_present: int
    events: int
    on_time: int
    late: int
    dropped: int
    problem_windows: int


def write_day_totals(path: Path, day_totals: Sequence[DayTotals]) -> None:
    """Write as JSON by atomic rename."""
    write_json(path, {"columns": DayTotals._fields, "days": day_totals})


def load_day_totals(path: Path) -> list[DayTotals]:
    """Read day totals from a file.

    Raises:
        LedgerError: when there is no such file.
    """
    content = load_json(path, "day totals")
    places = [content["columns"].index(name) for name in DayTotals._fields]
    if places == list(range(len(places))):  # the order of this version
        return list(map(DayTotals._make, content["days"]))
    return [DayTotals(*(values[place] for place in places)) for values in content["days"]]


@dataclass(frozen=True, slots=True)
class ReconciledDay:
    """The comparison of the published windows of a day with those of a live system.

    `theirs` names the live output. `differing` counts the different ones of the `windows`. `largest` is the
    largest difference, with `window_start`, `keys`, `aggregate`, `ours`, `theirs`, and `cause` as text; None if
    there is none.
    """

    day_ms: int
    at_ms: int
    theirs: str
    windows: int
    differing: int
    largest: Mapping[str, Any] | None = None


def load_reconciled_days(home: Home, dataset: str) -> dict[int, ReconciledDay]:
    """Return the newest comparison of each day; empty if there is none, or another version wrote the file."""
    try:
        content = load_json(home.comparison(dataset), "comparison with the live system")["days"]
        return {day["day_ms"]: ReconciledDay(**day) for day in content}
    except (LedgerError, KeyError, TypeError):
        return {}


def record_reconciled_days(home: Home, dataset: str, days: Iterable[ReconciledDay]) -> Path:
    """Replace the comparisons of some days in the file of a dataset, and return the file."""
    known = load_reconciled_days(home, dataset) | {day.day_ms: day for day in days}
    path = home.comparison(dataset)
    write_json(path, {"days": [asdict(known[day_ms]) for day_ms in sorted(known)]})
    return path
