"""Find how far the sessions of an interval extend, which decides what a chunk reads.

An island is a run of events of one key, each at most a gap after the one before. The search reads events around
the end of the interval, and twice as far each time, until no island of before the end goes on:

    owned        |-----------------|
    read                        |--------|
                                         |-------|
                                                 |---------------|
    one island            x x x x x x x x x x x x x x x
    halo                           |-------------------|

The search before the interval is the same with reversed time. Only keys and times are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.native.record_scans import column_alias, is_counted, scan_query
from backstream.native.records import group_files_by_schema
from backstream.native.task import ReadSpec
from backstream.native.task_disk import TaskDisk
from backstream.runs.plan import InputFile

if TYPE_CHECKING:
    import duckdb


class IslandSearch(Protocol):
    """The islands of a growing interval of event time, which may be reversed."""

    def read(
        self, interval: Interval, counts_from_ms: int, until_ms: int, open_ms: int
    ) -> tuple[int | None, bool]:
        """Read the next events, and return the last event of islands that cross an instant; None: there are none.

        The second value is whether one of them is open: its last event is at or after `open_ms`, so that events
        after the interval may belong to it.

        Args:
            interval: the events to read; those of open islands are known.
            counts_from_ms: islands that start earlier are ignored.
            until_ms: the instant: islands start before it, and have an event at or after it.
            open_ms: one gap before the end of the interval.
        """


def search_halo(
    owned: Interval,
    gap_ms: int,
    new_search: Callable[[int], IslandSearch],
    *,
    is_replay: bool,
    may_be: Callable[[Interval], bool] = lambda _: True,
) -> Interval:
    """Return the smallest interval of event time to read for the sessions that start in `owned`.

    A recompute reads one gap before `owned`, to see whether a session began earlier. In a replay, a session that
    starts in `owned` may be a part of a longer island that fired in parts. So every island that overlaps `owned`
    is read from its first to its last event. Nothing is read if no event can be within a gap of the boundaries.

    Args:
        owned: the interval of session starts.
        gap_ms: the session gap.
        new_search: returns a search for islands in a direction: 1, or -1 with reversed time.
        is_replay: whether a session can have fired in parts.
        may_be: returns whether there may be an event in an interval.
    """
    may_extend = may_be(Interval(owned.end_ms, owned.end_ms + gap_ms))
    last_ms = first_ms = None
    if not is_replay:
        since_ms = owned.start_ms - gap_ms
        if may_extend:
            last_ms = _find_last_event(new_search(1), gap_ms, Interval(since_ms, owned.end_ms), owned.start_ms)
        return Interval(since_ms, _end_after(last_ms, owned.end_ms))
    if may_extend:
        last_ms = _find_last_event(new_search(1), gap_ms, Interval(owned.end_ms - gap_ms, owned.end_ms))
    if may_be(Interval(owned.start_ms - gap_ms, owned.start_ms)):
        first_ms = _find_last_event(
            new_search(-1), gap_ms, mirror(Interval(owned.start_ms, owned.start_ms + gap_ms))
        )
    return Interval(1 - _end_after(first_ms, 1 - owned.start_ms), _end_after(last_ms, owned.end_ms))


def mirror(interval: Interval) -> Interval:
    """Return the instants of an interval with reversed time."""
    return Interval(1 - interval.end_ms, 1 - interval.start_ms)


def _end_after(last_ms: int | None, boundary_ms: int) -> int:
    return boundary_ms if last_ms is None else last_ms + 1


def _find_last_event(
    search: IslandSearch, gap_ms: int, before: Interval, counts_from_ms: int = MIN_MS
) -> int | None:
    """Return the last event of all islands that cross the end of `before`; None if there are none.

    Args:
        search: the search.
        gap_ms: the session gap.
        before: the interval to read before the boundary, at least one gap long.
        counts_from_ms: islands that start earlier are ignored.
    """
    furthest_ms, start_ms, until_ms, ahead_ms = None, before.start_ms, before.end_ms, 4 * gap_ms
    while True:
        end_ms = until_ms + ahead_ms
        last_ms, is_open = search.read(Interval(start_ms, end_ms), counts_from_ms, until_ms, end_ms - gap_ms)
        furthest_ms = furthest_ms if last_ms is None else last_ms
        if not is_open:
            return furthest_ms
        start_ms, until_ms, ahead_ms, counts_from_ms = end_ms, end_ms, 2 * ahead_ms, MIN_MS


@dataclass(frozen=True, slots=True)
class HaloTask:
    """A task that finds the halo of the sessions that start in `owned` in all files, see `search_halo`."""

    reading: ReadSpec
    keys: Sequence[str]
    gap_ms: int
    owned: Interval
    files: Sequence[InputFile]
    is_replay: bool
    memory_mb: int

    def __str__(self) -> str:
        return f"how far the sessions of {self.owned} extend"


class Halo(NamedTuple):
    """The interval of event time to read, and the interval that was searched for it."""

    interval: Interval
    searched: Interval


def find_task_halo(task: HaloTask, disk: TaskDisk, database: duckdb.DuckDBPyConnection) -> Halo:
    """Return the halo of a task, from its files."""
    searched = [task.owned]

    def new_search(direction: int) -> _TaskIslands:
        return _TaskIslands(task, disk, database, searched, direction)

    def may_be(interval: Interval) -> bool:
        searched.append(interval)
        return any(file.may_hold(interval) for file in task.files)

    halo = search_halo(task.owned, task.gap_ms, new_search, is_replay=task.is_replay, may_be=may_be)
    starts_ms, ends_ms = zip(*((each.start_ms, each.end_ms) for each in searched), strict=True)
    return Halo(halo, Interval(min(starts_ms), max(ends_ms)))


@dataclass(slots=True)
class _TaskIslands:
    """An `IslandSearch` in DuckDB, with the last events of open islands in the table `ends`."""

    task: HaloTask
    disk: TaskDisk
    database: duckdb.DuckDBPyConnection
    searched: list[Interval]
    direction: int
    has_ends: bool = False

    def read(
        self, interval: Interval, counts_from_ms: int, until_ms: int, open_ms: int
    ) -> tuple[int | None, bool]:
        """Read the next events; see `IslandSearch`."""
        keys = [column_alias(self.task.reading, key) for key in self.task.keys]
        key_list = "".join(f"{key}, " for key in keys)
        events = [*self._events(interval, key_list), *([f"SELECT {key_list}at_ms FROM ends"] * self.has_ends)]
        if not events:
            return None, False
        of_key = "(" + (f"PARTITION BY {', '.join(keys)} " if keys else "") + "ORDER BY at_ms)"
        begins = f"coalesce(at_ms - lag(at_ms) OVER {of_key} > {self.task.gap_ms}, true) AS begins"
        marked = f"SELECT *, {begins} FROM ({' UNION ALL '.join(events)})"
        numbered = f"SELECT *, sum(begins::INTEGER) OVER {of_key} AS island FROM ({marked})"
        crosses = f"min(at_ms) >= {counts_from_ms} AND min(at_ms) < {until_ms} AND max(at_ms) >= {until_ms}"
        islands = f"SELECT {key_list}max(at_ms) AS at_ms FROM ({numbered}) GROUP BY {key_list}island"
        self.database.execute(f"CREATE OR REPLACE TEMP TABLE crossing AS {islands} HAVING {crosses}")
        ((last_ms,),) = self.database.execute("SELECT max(at_ms) FROM crossing").fetchall()
        self.has_ends = last_ms is not None and last_ms >= open_ms
        if self.has_ends:
            self.database.execute(f"CREATE OR REPLACE TEMP TABLE ends AS FROM crossing WHERE at_ms >= {open_ms}")
        return last_ms, self.has_ends

    def _events(self, interval: Interval, key_list: str) -> Sequence[str]:
        """Return a query of keys and times in an interval, if a file may have some."""
        within = interval if self.direction > 0 else mirror(interval)
        self.searched.append(within)
        paths = [file.path for file in self.task.files if file.may_hold(within)]
        if not paths:
            return ()
        reading = self.task.reading
        groups = group_files_by_schema(self.disk.fetch(paths, [*reading.types]), reading)
        events, condition = scan_query(groups, reading, within), is_counted(reading)
        return (f"SELECT {key_list}{self.direction} * event_ms AS at_ms FROM ({events}) WHERE {condition}",)
