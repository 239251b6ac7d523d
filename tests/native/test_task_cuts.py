"""Windows are cut into tasks without gaps and overlaps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.native.task_cuts import MAX_READ_RATIO, SMALL_DAY_ROWS, TASK_ROWS, cut_windows, group_files_by_rows
from backstream.runs.plan import Chunk, InputFile
from backstream.watermarks.firing_times import WindowGrid

START_MS = 19_783 * DAY_MS
WINDOWS = [
    Tumbling(HOUR_MS),
    Tumbling(DAY_MS),
    Tumbling(3 * DAY_MS, HOUR_MS),
    Sliding(3 * HOUR_MS, HOUR_MS),
    Sliding(3 * DAY_MS, 12 * HOUR_MS, -HOUR_MS),
    Cumulate(6 * HOUR_MS, 2 * HOUR_MS),
]


def grid_of(window: Tumbling | Sliding | Cumulate, interval: Interval) -> WindowGrid:
    """Return the windows that start in an interval, counted one by one."""
    every_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    starts = [
        ms for ms in range(interval.start_ms, interval.end_ms, HOUR_MS) if (ms - window.offset_ms) % every_ms == 0
    ]
    per_start = window.size_ms // window.step_ms if isinstance(window, Cumulate) else 1
    first_ms = starts[0] if starts else interval.end_ms
    first_end_ms = first_ms + (window.step_ms if isinstance(window, Cumulate) else window.size_ms)
    return WindowGrid(window, first_end_ms, len(starts) * per_start)


def chunks_of(count: int, days: int) -> list[Chunk]:
    return [
        Chunk(f"{n:04}", START_MS + n * days * DAY_MS, START_MS + (n + 1) * days * DAY_MS, 0, (), 0)
        for n in range(count)
    ]


def files_of(rows: list[int], *, in_order: bool, interval: Interval) -> list[InputFile]:
    width_ms = (interval.end_ms - interval.start_ms) // len(rows)
    return [
        InputFile(
            f"/{n}",
            count,
            0,
            interval.start_ms + (n * width_ms if in_order else 0),
            interval.start_ms + (n + 1) * width_ms if in_order else interval.end_ms,
        )
        for n, count in enumerate(rows)
    ]


@given(
    window=st.sampled_from(WINDOWS),
    count=st.integers(1, 3),
    days=st.sampled_from([1, 3]),
    rows=st.lists(st.sampled_from([0, 10, 200_000, 5_000_000]), min_size=1, max_size=6),
    in_order=st.booleans(),
    halo_ms=st.sampled_from([0, HOUR_MS, 3 * DAY_MS]),
    slots=st.sampled_from([1, 2, 8]),
)
def test_ranges_cover_the_windows_and_the_event_times_without_overlaps(
    window: Tumbling | Sliding | Cumulate,
    count: int,
    days: int,
    rows: list[int],
    in_order: bool,
    halo_ms: int,
    slots: int,
) -> None:
    chunks = chunks_of(count, days)
    owned = Interval(chunks[0].start_ms, chunks[-1].end_ms)
    read = Interval(owned.start_ms, owned.end_ms + halo_ms)
    grid = grid_of(window, owned)

    ranges = cut_windows(grid, chunks, read, files_of(rows, in_order=in_order, interval=owned), slots)

    assert (ranges[0].numbers.start, ranges[-1].numbers.stop) == (0, grid.count)
    assert (ranges[0].stretch.start_ms, ranges[-1].stretch.end_ms) == (read.start_ms, read.end_ms)
    for one, other in pairwise(ranges):
        assert one.numbers.stop == other.numbers.start
        assert one.stretch.end_ms == other.stretch.start_ms
    for piece in ranges:
        starts = window_starts(grid, piece.numbers)
        if piece.day_ms is not None:
            assert {ms - ms % DAY_MS for ms in starts} <= {piece.day_ms}
            assert all(chunks[piece.chunk].interval.start_ms <= ms < chunks[piece.chunk].end_ms for ms in starts)


def window_starts(grid: WindowGrid, numbers: range) -> list[int]:
    ends = [grid.first_end_ms + n * grid.step_ms for n in numbers]
    if isinstance(grid.window, Cumulate):
        return [end - 1 - (end - 1 - grid.window.offset_ms) % grid.window.size_ms for end in ends]
    return [end - grid.window.size_ms for end in ends]


@pytest.mark.parametrize(("in_order", "tasks"), [(True, 6), (False, 2)])
def test_a_large_day_is_cut_as_far_as_no_file_is_read_too_often(in_order: bool, tasks: int) -> None:
    day = Interval(START_MS, START_MS + DAY_MS)
    files = files_of([TASK_ROWS // 4] * 24, in_order=in_order, interval=day)

    ranges = cut_windows(grid_of(Tumbling(HOUR_MS), day), chunks_of(1, 1), day, files, slots=2)

    assert len(ranges) == tasks
    read = sum(file.rows for piece in ranges for file in files if file.may_hold(piece.stretch))
    assert read <= MAX_READ_RATIO * sum(file.rows for file in files)


def test_small_days_share_a_task() -> None:
    days = Interval(START_MS, START_MS + 300 * DAY_MS)
    files = files_of([SMALL_DAY_ROWS // 2] * 10, in_order=True, interval=days)

    ranges = cut_windows(grid_of(Tumbling(HOUR_MS), days), chunks_of(10, 30), days, files, slots=2)

    assert [piece.day_ms for piece in ranges] == [None, None]


def test_files_are_put_together_until_they_have_so_many_rows() -> None:
    files = [InputFile(str(n), rows, 0) for n, rows in enumerate([5, 5, 20, 1, 9, 1])]

    assert group_files_by_rows(files, 10) == [["0", "1"], ["2"], ["3", "4"], ["5"]]
