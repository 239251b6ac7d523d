"""Test that every row that a slow recomputation changes is in a reported window."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.stale_windows import (
    ChangedRecords,
    ChangeKind,
    StaleWindow,
    count_by_file,
    find_stale_windows,
    slice_ms,
    window_days,
)
from backstream.eventtime.windows import Cumulate, Session, Sliding, TimeWindow, Tumbling, WindowSpec

Event = tuple[str, int]
Rows = Counter[tuple[str, TimeWindow]]

SPECS = [
    Tumbling(10),
    Tumbling(10, 3),
    Sliding(10, 4),
    Sliding(12, 5, 2),
    Sliding(4, 10, 1),
    Cumulate(12, 3),
    Cumulate(12, 4, 5),
    Session(4),
    Session(1),
]
HISTORIES = 300


def recompute(events: Iterable[Event], spec: WindowSpec) -> Rows:
    """Count the events of each key and window by a simple loop."""
    if not isinstance(spec, Session):
        return Counter((key, window) for key, at_ms in events for window in spec.assign(at_ms))
    rows: Rows = Counter()
    for key, at_ms in sorted(events):
        window, count = TimeWindow(at_ms, at_ms + spec.gap_ms), 1
        touched = [row for row in rows if row[0] == key and row[1].end_ms >= at_ms]
        for row in touched:
            window, count = TimeWindow(row[1].start_ms, window.end_ms), count + rows.pop(row)
        rows[key, window] = count
    return rows


def list_changes(
    file: str, events: Sequence[Event], spec: WindowSpec, *, is_added: bool = True, copies: bool = False
) -> list[ChangedRecords]:
    """Return the changes of a file in the form of its index."""
    width_ms, offset_ms = slice_ms(spec)
    slices: dict[tuple[str, int], list[int]] = {}
    for key, at_ms in events:
        slices.setdefault((key, (at_ms - offset_ms) // width_ms), []).append(at_ms)
    change = ChangeKind.ADDED if is_added else ChangeKind.REMOVED
    return [
        ChangedRecords(
            file,
            change,
            min(slice_times_ms),
            max(slice_times_ms),
            len(slice_times_ms),
            key,
            is_added=is_added,
            is_of_any_key=copies,
        )
        for (key, _), slice_times_ms in slices.items()
    ]


def reported(stale: Sequence[StaleWindow], rows: Iterable[tuple[str, TimeWindow]]) -> set[tuple[str, TimeWindow]]:
    """Return the rows that are reported as stale."""
    by_window: dict[TimeWindow, list[StaleWindow]] = {}
    for entry in stale:
        by_window.setdefault(entry.window, []).append(entry)
    return {
        (key, window)
        for key, window in rows
        if any(entry.is_of_any_key or key in entry.keys for entry in by_window.get(window, ()))
    }


def history(chance: random.Random) -> list[Event]:
    count, span = chance.randrange(1, 14), chance.choice((15, 60, 200))
    return [(chance.choice("ab"), chance.randrange(-20, span)) for _ in range(count)]


def changed(before: Rows, after: Rows) -> set[tuple[str, TimeWindow]]:
    return {row for row in {*before, *after} if before[row] != after[row]}


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_exactly_the_rows_that_new_events_change_are_reported(spec: WindowSpec) -> None:
    chance = random.Random(str(spec))  # noqa: S311 - test data
    for _ in range(HISTORIES):
        old, new = history(chance), history(chance)
        before, after = recompute(old, spec), recompute([*old, *new], spec)

        stale = find_stale_windows(spec, list_changes("b", new, spec), list(before))

        # Without copies, each new event changes each of its rows.
        assert reported(stale, {*before, *after}) == changed(before, after), (old, new)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_row_that_a_removed_file_changes_is_in_a_reported_window(
    spec: WindowSpec,
) -> None:
    chance = random.Random(str(spec))  # noqa: S311 - test data
    for _ in range(HISTORIES):
        remaining, removed = history(chance), history(chance)
        before, after = recompute([*remaining, *removed], spec), recompute(remaining, spec)

        stale = find_stale_windows(spec, list_changes("b", removed, spec, is_added=False), list(before))

        missed = (changed(before, after) & {*before}) - reported(stale, before)
        assert missed == set(), (remaining, removed)
        spans = [entry.window for entry in stale]
        new = {*after} - {*before}  # parts of sessions that were split
        assert all(any(span.start_ms <= window.start_ms < span.end_ms for span in spans) for _, window in new)


def test_an_unread_file_affects_all_windows_within_its_bounds() -> None:
    rows = [("a", TimeWindow(start_ms, start_ms + 10)) for start_ms in range(0, 50, 10)]
    removed = ChangedRecords("b", ChangeKind.REMOVED, 19, 30, is_added=False, is_of_any_key=True)

    #  rows   [0 [10 [20 [30 [40
    #  file        19.....30
    stale = find_stale_windows(Tumbling(10), [removed], rows)

    assert [entry.window.start_ms for entry in stale] == [10, 20, 30]
    assert count_by_file(stale[0].touches) == {"b": None}


def test_events_of_several_files_are_counted_per_window_and_file() -> None:
    spec = Tumbling(10)
    stale = find_stale_windows(
        spec,
        [
            *list_changes("x", [("a", 1), ("a", 2), ("b", 3)], spec),
            *list_changes("y", [("a", 4), ("a", 14)], spec),
        ],
        [],
    )

    assert [(entry.window.start_ms, entry.keys, count_by_file(entry.touches)) for entry in stale] == [
        (0, {"a", "b"}, {"x": 3, "y": 1}),
        (10, {"a"}, {"y": 1}),
    ]


def test_a_record_joins_two_published_sessions_and_both_are_stale() -> None:
    #  published   [0----5)    [9-----14)
    #  new               .5.........        [5, 9] touches both
    rows = [("a", TimeWindow(0, 5)), ("a", TimeWindow(9, 14)), ("b", TimeWindow(0, 9)), ("a", TimeWindow(30, 34))]

    stale = find_stale_windows(Session(4), list_changes("x", [("a", 5)], Session(4)), rows)

    assert [(entry.window, entry.keys) for entry in stale] == [
        (TimeWindow(0, 5), {"a"}),
        (TimeWindow(0, 14), {"a"}),
        (TimeWindow(9, 14), {"a"}),
    ]


def test_if_copies_may_have_other_keys_every_session_in_reach_is_stale() -> None:
    rows = [("a", TimeWindow(0, 5)), ("b", TimeWindow(2, 6)), ("b", TimeWindow(30, 34))]
    touch = ChangedRecords("x", ChangeKind.ADDED, 3, 3, 1, "c", is_added=False, is_of_any_key=True)

    stale = find_stale_windows(Session(4), [touch], rows)

    assert [entry.window for entry in stale] == [TimeWindow(0, 5), TimeWindow(2, 6)]


@pytest.mark.parametrize("others", [[], [("z", TimeWindow(100, 200))]], ids=["alone", "beside a long one"])
def test_a_session_in_reach_is_stale_however_long_others_are(others: list[tuple[str, TimeWindow]]) -> None:
    touch = ChangedRecords("x", ChangeKind.REMOVED, 8, 8, 1, "a", is_added=False)

    stale = find_stale_windows(Session(4), [touch], [("a", TimeWindow(0, 5)), *others])

    assert [entry.window for entry in stale] == [TimeWindow(0, 5)]


@pytest.mark.parametrize(
    ("spec", "days"), [(Sliding(3 * DAY_MS, DAY_MS), [0]), (Session(DAY_MS), [0, 1, 2])], ids=str
)
def test_a_window_belongs_to_its_first_day_and_a_session_to_all_its_days(
    spec: WindowSpec, days: list[int]
) -> None:
    assert [day // DAY_MS for day in window_days(spec, TimeWindow(5, 2 * DAY_MS + 5))] == days
