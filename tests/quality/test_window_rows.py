"""Rows of several windows give the same results as one row per window, on small random runs.

The reference here has one Python object per window, and no row of several windows.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.quality.test_audit_frame import definition, plan

from backstream.charts.band_chart import draw_band
from backstream.charts.bar_charts import late_chart, volume_chart
from backstream.charts.completeness_map import ChartRange, find_gaps, time_grid
from backstream.definition.run_sections import Bands, Quality
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.quality.audit_frame import audit_frame, partitions_frame, run_frame
from backstream.quality.bands import READ_OF_WINDOWS, WEEK_MS, add_bands, bands_frame, find_never_empty
from backstream.quality.gate import evaluate_suite
from backstream.quality.gx_adapter import ExpectationFrames
from backstream.quality.window_rows import clip_rows, count_windows, cut_rows, list_windows, starts_ms, to_instants
from backstream.report.figures import compute_totals, delivery_texts
from backstream.workflow.dataset_state import compute_day_totals

SINCE_MS = instant_ms("2026-03-01", "since")
PARTITIONS = ("a", "b", "c")


def random_metrics(seed: int, until_ms: int, unit_ms: int, count: int) -> pd.DataFrame:
    """Return metrics of a few windows of the range, and of one before it."""
    chance = np.random.default_rng(seed)
    cells: set[tuple[str, int]] = {
        (
            str(chance.choice(PARTITIONS)),
            SINCE_MS + int(chance.integers((until_ms - SINCE_MS) // unit_ms)) * unit_ms,
        )
        for _ in range(count)
    }
    if chance.random() < 0.3:
        cells.add(("a", SINCE_MS - unit_ms))
    rows = [
        (name, at, *(chance.integers(3) for _ in range(3))) if chance.random() < 0.9 else (name, at, 0, 0, 0)
        for name, at in sorted(cells)
    ]
    frame = pd.DataFrame(rows, columns=["source_partition", "start", "on_time", "late", "dropped"])
    return frame.assign(
        window_start=to_instants(frame["start"]),
        window_end=to_instants(frame["start"] + unit_ms),
        events=frame[["on_time", "late", "dropped"]].sum(axis=1),
        expired=0,
    )


def random_run(seed: int, **quality: Any) -> tuple[Any, Any, pd.DataFrame]:
    chance = np.random.default_rng(seed)
    unit_ms = int(chance.choice([HOUR_MS, 20 * MINUTE_MS, 4 * HOUR_MS]))
    until_ms = SINCE_MS + int(chance.choice([1, 2, 9])) * DAY_MS
    window = {"kind": "tumbling", "size": f"{unit_ms // MINUTE_MS}m"}
    if chance.random() < 0.5:
        quality["expected_partitions"] = ["a", "b", "z"]
    metrics = random_metrics(seed, until_ms, unit_ms, chance.choice([0, 1, 5, 40]))
    planned = plan(instant_text(SINCE_MS), instant_text(until_ms))
    return planned, definition(window, **quality), metrics


def list_expected(planned: Any, known: Any, metrics: pd.DataFrame) -> dict[tuple[int, str], bool]:
    """Return each window of the run with whether it has events, by a loop over all possible windows."""
    present = {
        (int(at), name): bool(events)
        for at, name, events in zip(metrics["start"], metrics["source_partition"], metrics["events"], strict=True)
    }
    expected = known.quality.expected_partitions
    names = sorted(set(metrics["source_partition"])) if expected == "observed" else expected
    starts = range(planned.since_ms, planned.until_ms, known.unit_ms)
    return {(at, name): present.get((at, name), False) for at, name in product(starts, names)}


@pytest.mark.parametrize("seed", range(40))
def test_the_rows_of_a_run_hold_each_possible_window_once(seed: int) -> None:
    planned, known, metrics = random_run(seed)
    frame = audit_frame(planned, known, metrics)
    expected = list_expected(planned, known, metrics)

    listed = list_windows(frame[frame["is_expected"]])
    found = zip(starts_ms(listed), listed["source_partition"], listed["is_present"], strict=True)
    assert {(int(at), name): bool(is_present) for at, name, is_present in found} == expected
    assert len(listed) == len(expected)
    assert len(frame) <= 2 * len(metrics) + 2 * len(PARTITIONS)
    assert list(starts_ms(listed)) == sorted(starts_ms(listed))
    assert (listed["window_end"] - listed["window_start"] == pd.Timedelta(known.unit_ms, unit="ms")).all()

    run = run_frame(planned, frame, []).iloc[0]
    missing = sum(not is_present for is_present in expected.values())
    assert (run["windows_expected"], run["windows_missing"]) == (len(expected), missing)
    assert run["missing_ratio"] == (missing / len(expected) if expected else 0)
    by_name = partitions_frame(frame, [], known).set_index("source_partition")["windows_missing"]
    for name in {name for _, name in expected}:
        assert by_name[name] == sum(not is_present for (_, each), is_present in expected.items() if each == name)


def longest_gap(expected: dict[tuple[int, str], bool]) -> int:
    longest = 0
    for name in {name for _, name in expected}:
        length = 0
        for _, is_present in sorted(
            (at, is_present) for (at, each), is_present in expected.items() if each == name
        ):
            length = 0 if is_present else length + 1
            longest = max(longest, length)
    return longest


@pytest.mark.parametrize("seed", range(40))
def test_figures_charts_and_sums_of_days_are_those_of_single_windows(seed: int) -> None:
    planned, known, metrics = random_run(seed)
    frame = audit_frame(planned, known, metrics)
    single = list_windows(frame)
    shown = ChartRange(planned.range, known.unit_ms)
    bars = (planned.range, known.unit_ms)

    gaps = find_gaps(frame)
    assert max((gap.windows for gap in gaps), default=0) == longest_gap(list_expected(planned, known, metrics))
    assert gaps == find_gaps(single)
    assert compute_totals(frame) == compute_totals(single)
    assert delivery_texts(frame) == delivery_texts(single)
    assert compute_day_totals(frame, Quality()) == compute_day_totals(single, Quality())
    assert volume_chart(frame, *bars, 7) == volume_chart(single, *bars, 7)
    for room in (1, 5, 400):
        assert time_grid(frame, shown, room) == time_grid(single, shown, room)
        limits = known.quality.late_ratio
        assert late_chart(frame, *bars, limits, room) == late_chart(single, *bars, limits, room)


def test_rows_are_cut_at_instants_and_clipped_to_an_interval() -> None:
    for seed in range(30):
        planned, known, metrics = random_run(seed)
        frame, chance = audit_frame(planned, known, metrics), np.random.default_rng(seed)
        edges = sorted(
            chance.integers(planned.since_ms - 5, planned.until_ms + 5) for _ in range(chance.integers(9))
        )
        cut = cut_rows(frame, np.array(edges, dtype=np.int64))
        for first_ms, last_ms in zip(starts_ms(cut), starts_ms(cut, "last_start"), strict=True):
            assert not any(first_ms < edge <= last_ms for edge in edges)
        pd.testing.assert_frame_equal(
            list_windows(cut).sort_values(["window_start", "source_partition"], ignore_index=True),
            list_windows(frame).reset_index(drop=True),
        )
        start_ms, end_ms = planned.since_ms + 7_000_000, planned.since_ms + DAY_MS - 3
        inside = list_windows(frame)
        inside = inside[(starts_ms(inside) >= start_ms) & (starts_ms(inside) < end_ms)]
        assert list(starts_ms(list_windows(clip_rows(frame, start_ms, end_ms)))) == list(starts_ms(inside))


def random_past(seed: int, known: Any, weeks: int) -> pd.DataFrame:
    """Return the past weeks of three partitions as runs left them; some windows have many events in all weeks."""
    chance, unit_ms = np.random.default_rng(seed), known.unit_ms
    busy = [(name, chance.integers(WEEK_MS // unit_ms) * unit_ms) for name in PARTITIONS for _ in range(3)]
    first_ms = SINCE_MS - weeks * WEEK_MS
    rows = []
    for week in range(weeks):
        start_ms = first_ms + week * WEEK_MS
        rows += [(name, start_ms + at, 30 + chance.integers(40), 0, 0) for name, at in busy]
        at = start_ms + chance.integers(WEEK_MS // unit_ms) * unit_ms
        rows.append((chance.choice(PARTITIONS), at, chance.integers(5), 1, 0))
    frame = pd.DataFrame(rows, columns=["source_partition", "start", "on_time", "late", "dropped"])
    frame = frame.drop_duplicates(["source_partition", "start"], ignore_index=True)
    metrics = frame.assign(
        window_start=to_instants(frame["start"]),
        window_end=to_instants(frame["start"] + unit_ms),
        events=frame[["on_time", "late", "dropped"]].sum(axis=1),
        expired=0,
    )
    past = audit_frame(plan(instant_text(first_ms), instant_text(SINCE_MS)), known, metrics)
    return past[past["is_expected"]][READ_OF_WINDOWS]


@pytest.mark.parametrize("weeks", [0, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_bands_are_those_of_single_windows(seed: int, weeks: int) -> None:
    planned, known, metrics = random_run(seed)
    frame, bands = audit_frame(planned, known, metrics), Bands()
    past = random_past(seed, known, weeks) if weeks else random_past(seed, known, 3).iloc[:0]
    single, single_past = list_windows(frame), list_windows(past)

    found = bands_frame(frame, past, bands)
    reference = bands_frame(single, single_past, bands)
    pd.testing.assert_frame_equal(list_windows(found), reference.reset_index(drop=True))
    assert len(found) < 2 * (len(past) * 3 + len(frame)) + 10

    never_empty = find_never_empty(past, bands)
    assert sorted(never_empty.itertuples(index=False)) == sorted(
        find_never_empty(single_past, bands).itertuples(index=False)
    )
    with_bands = add_bands(frame, found, never_empty)
    of_single = add_bands(single, reference, find_never_empty(single_past, bands))
    pd.testing.assert_frame_equal(list_windows(with_bands), of_single)
    assert compute_day_totals(with_bands, Quality()) == compute_day_totals(of_single, Quality())
    inside, of_inside = (each[each["in_range"]] for each in (with_bands, of_single))
    assert draw_band(inside) == draw_band(of_inside)


def slow_never_empty(past: pd.DataFrame, weeks: int) -> set[tuple[str, int]]:
    """Return the windows with events in each week, by a loop over all windows."""
    counts: dict[tuple[str, int], list[int]] = {}
    for at, name, events in zip(starts_ms(past), past["source_partition"], past["events"], strict=True):
        counts.setdefault((name, int(at) % WEEK_MS), []).append(int(events))
    return {
        place
        for place, events in counts.items()
        if len(events) >= weeks and min(events) > 0 and float(np.median(events)) >= 16
    }


@pytest.mark.parametrize("seed", range(6))
def test_windows_that_were_never_empty_are_found_between_rows_of_several_windows(seed: int) -> None:
    _, known, _ = random_run(seed)
    past = random_past(seed, known, 5)

    found = find_never_empty(past, Bands())

    assert {(name, int(at)) for name, at in found.itertuples(index=False)} == slow_never_empty(
        list_windows(past), 4
    )
    assert len(found)


@pytest.mark.parametrize("seed", range(4))
def test_the_audit_counts_windows_and_names_the_first_missing_ones(seed: int) -> None:
    planned, known, metrics = random_run(seed, missing_ratio={"warn": 0.5, "fail": 0.9})
    audit, frame = evaluate_suite(planned, known, metrics, [], results=())
    expected = list_expected(planned, known, metrics)
    missing = sorted(place for place, is_present in expected.items() if not is_present)

    hard, soft = (
        next(
            check
            for check in audit.checks
            if check.name == f"expected windows have events, within the {limit} limit"
        )
        for limit in ("hard", "soft")
    )
    assert (hard.unexpected_count, hard.element_count) == (len(missing), len(expected))
    assert soft.element_count == count_windows(frame[frame["is_limited"]])
    assert hard.outcome == ("fail" if expected and len(missing) / len(expected) > 0.9 else "pass")
    if hard.failing:
        named = [(row["window_start"], row["source_partition"]) for row in hard.failing]
        assert named == [(instant_text(at), name) for at, name in missing[:20]]
    words = f"{len(missing):,} of {len(expected):,} windows have no event" if missing else ""
    assert words in audit.summary


CONDITION = {
    "row_condition": {"type": "comparison", "column": {"name": "is_expected"}, "operator": "==", "parameter": True}
}


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        ("expect_column_values_to_be_in_set", {"column": "is_present", "value_set": [True], "mostly": 0.4}),
        ("expect_column_values_to_be_in_set", {"column": "is_present", "value_set": [True], **CONDITION}),
        ("expect_column_values_to_be_between", {"column": "events", "max_value": 1}),
        ("expect_column_values_to_be_unique", {"column": "window_start"}),
        ("expect_column_values_to_be_between", {"column": "window_start", "max_value": "2026-03-01T05:00"}),
        ("expect_column_mean_to_be_between", {"column": "events", "max_value": 1}),
        ("expect_table_row_count_to_be_between", {"max_value": 30}),
    ],
)
def test_any_expectation_judges_windows_and_not_rows(kind: str, kwargs: dict[str, Any]) -> None:
    for seed in (0, 3, 5):
        planned, known, metrics = random_run(seed)
        frame = audit_frame(planned, known, metrics)
        found = ExpectationFrames({"windows": frame}).validate("windows", kind, kwargs)
        reference = ExpectationFrames({"windows": list_windows(frame)}).validate("windows", kind, kwargs)

        assert (found.is_met, found.elements, found.unexpected, str(found.observed), found.error) == (
            reference.is_met,
            reference.elements,
            reference.unexpected,
            str(reference.observed),
            reference.error,
        )


def test_an_expectation_that_needs_a_row_per_window_of_a_long_range_is_an_error() -> None:
    known = definition({"kind": "tumbling", "size": "1s"}, expected_partitions=["a", "b"])
    frame = audit_frame(plan("2016-01-01", "2026-01-01"), known, random_metrics(0, SINCE_MS + DAY_MS, HOUR_MS, 0))

    result = ExpectationFrames({"windows": frame}).validate(
        "windows", "expect_column_mean_to_be_between", {"column": "events", "min_value": 1}
    )

    assert result.error == (
        "expect_column_mean_to_be_between needs one row per window, and the run has 631,238,400 windows (at most"
        " 2,000,000); use a shorter range or a larger window.size, or remove the check"
    )


def test_a_billion_possible_windows_are_audited_and_drawn_in_seconds() -> None:
    known = definition({"kind": "tumbling", "size": "1s"}, expected_partitions=["a", "b", "c", "d"])
    planned = plan("2016-12-01", "2026-11-29")
    metrics = random_metrics(0, SINCE_MS + 200 * DAY_MS, 1_000, 300)

    audit, frame = evaluate_suite(planned, known, metrics, [], results=())
    gaps = find_gaps(frame)
    grid = time_grid(frame, ChartRange(planned.range, 1_000), 400)

    missing = 4 * (planned.until_ms - planned.since_ms) // 1_000 - int((metrics["events"] > 0).sum())
    assert f"{missing:,} of 1,261,440,000 windows have no event" in audit.summary
    assert gaps[0].windows == (planned.until_ms - planned.since_ms) // 1_000
    assert grid is not None
    assert sum(day.windows_expected for day in compute_day_totals(frame, Quality())) == 1_261_440_000
    assert compute_totals(frame).windows_expected == 1_261_440_000
    assert Interval(planned.since_ms, planned.until_ms) == planned.range
