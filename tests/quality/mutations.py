"""What may happen to a run, each with exactly the checks that find it and the rows that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.quality.example_run import MINUTE_MS, Row

from backstream.core.audit import Verdict
from backstream.core.instants import HOUR_MS


def changed(**values: Any) -> Callable[[list[Row]], list[Row]]:
    """Row 30, which is the window 06:00 of source partition b, with other values."""

    def mutated(rows: list[Row]) -> list[Row]:
        rows[30] |= values
        return rows

    return mutated


def everywhere(**values: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [row | values for row in rows]


def deleted(rows: list[Row]) -> list[Row]:
    return rows[:30] + rows[31:]


def duplicated(rows: list[Row]) -> list[Row]:
    halves = [{"events": 25, "on_time": 24}, {"events": 25, "on_time": 25, "late": 0}]
    return deleted(rows) + [rows[30] | half for half in halves]


def moved(by_ms: int) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [
        *deleted(rows),
        rows[30] | {"start_ms": rows[30]["start_ms"] + by_ms, "end_ms": rows[30]["end_ms"] + by_ms},
    ]


def shortened(rows: list[Row]) -> list[Row]:
    rows[30]["end_ms"] -= 20 * MINUTE_MS
    return rows


def without_partition(rows: list[Row]) -> list[Row]:
    return rows[:24]


def unexpected(rows: list[Row]) -> list[Row]:
    return [*rows, rows[30] | {"source_partition": "c"}]


emptied = changed(events=0, on_time=0, late=0)
thinned = changed(events=10, on_time=9)
inflated = changed(events=55, on_time=54)
robbed = changed(on_time=44)
half_late = changed(on_time=25, late=25)
shifted = moved(20 * MINUTE_MS)
moved_out = moved(24 * HOUR_MS)
late_over_soft = everywhere(on_time=47, late=2, dropped=1)
late_over_hard = everywhere(on_time=37, late=3, dropped=10)

SOFT_MISSING = "expected windows have events, within the soft limit"
HARD_MISSING = "expected windows have events, within the hard limit"
HALF = "every expected window has at least half of its events"
SOFT_LATE = "the late share of the run keeps its soft limit"
HARD_LATE = "the late share of the run keeps its hard limit"
PARTITION_LATE = "the late share of every source partition keeps the hard limit"
WINDOW_LATE = "the late share of every window keeps the hard limit"
TOLERANT = {"missing_ratio": {"warn": 0.1, "fail": 0.25}}

Mutation = Callable[[list[Row]], list[Row]]


OF_THE_RUN = {
    "there is a window to judge",
    "every chunk of the plan was finished",
    "every record read has exactly one fate",
    "every record with a fate is in its window",
}
"""Checks whose mutation is not one of a window: each has its own test below."""

MUTATIONS: dict[str, tuple[Mutation, dict[str, Any], dict[str, list[str]], Verdict]] = {
    "one window deleted": (
        deleted,
        {},
        {SOFT_MISSING: ["b 2026-03-01T06:00Z False"], HALF: ["b 2026-03-01T06:00Z 0.0"]},
        Verdict.WARN,
    ),
    "one window empty": (
        emptied,
        {},
        {SOFT_MISSING: ["b 2026-03-01T06:00Z False"], HALF: ["b 2026-03-01T06:00Z 0.0"]},
        Verdict.WARN,
    ),
    "one window deleted where hardly any may be": (
        deleted,
        {"missing_ratio": {"warn": 0.0, "fail": 0.01}},
        {
            HARD_MISSING: ["b 2026-03-01T06:00Z False"],
            SOFT_MISSING: ["b 2026-03-01T06:00Z False"],
            HALF: ["b 2026-03-01T06:00Z 0.0"],
        },
        Verdict.FAIL,
    ),
    "one window deleted where some may be": (
        deleted,
        TOLERANT,
        {HALF: ["b 2026-03-01T06:00Z 0.0"]},
        Verdict.PASS,
    ),
    "one window thin": (thinned, {}, {HALF: ["b 2026-03-01T06:00Z 0.2"]}, Verdict.PASS),
    "one window in two rows": (
        duplicated,
        {},
        {"every window is counted once": ["b 2026-03-01T06:00Z 2"]},
        Verdict.FAIL,
    ),
    "one window shifted by 20 minutes": (
        shifted,
        TOLERANT,
        {
            "every window lies on the grid and has its full size": ["b 2026-03-01T06:20Z False"],
            "every window that came was expected": ["b 2026-03-01T06:20Z False"],
            HALF: ["b 2026-03-01T06:00Z 0.0"],
        },
        Verdict.FAIL,
    ),
    "one window shortened": (
        shortened,
        {},
        {"every window lies on the grid and has its full size": ["b 2026-03-01T06:00Z False"]},
        Verdict.FAIL,
    ),
    "one window shifted by a day": (
        moved_out,
        TOLERANT,
        {
            "every window lies in the range": ["b 2026-03-02T06:00Z False"],
            HALF: ["b 2026-03-01T06:00Z 0.0"],
        },
        Verdict.FAIL,
    ),
    "one window inflated": (
        inflated,
        {},
        {"every window has at most its expected events": ["b 2026-03-01T06:00Z 5"]},
        Verdict.WARN,
    ),
    "one window lost five events": (
        robbed,
        {},
        {"every event of a window is on time, late, dropped or expired": ["b 2026-03-01T06:00Z 5"]},
        Verdict.FAIL,
    ),
    "one source partition silent": (
        without_partition,
        {"missing_ratio": {"warn": 0.5, "fail": 0.5}},
        {
            "every expected source partition delivered": ["b False"],
            HALF: ["b 2026-03-01T00:00Z 0.0", "b 2026-03-01T01:00Z 0.0"],
        },
        Verdict.FAIL,
    ),
    "one source partition too many": (
        unexpected,
        {},
        {"every window that came was expected": ["c 2026-03-01T06:00Z False"]},
        Verdict.WARN,
    ),
    "one window half late": (half_late, {}, {WINDOW_LATE: ["b 2026-03-01T06:00Z 0.5"]}, Verdict.PASS),
    "late over the soft limit": (late_over_soft, {}, {SOFT_LATE: []}, Verdict.WARN),
    "late over the hard limit": (
        late_over_hard,
        {},
        {
            HARD_LATE: [],
            SOFT_LATE: [],
            PARTITION_LATE: ["a 0.26", "b 0.26"],
            WINDOW_LATE: ["a 2026-03-01T00:00Z 0.26", "b 2026-03-01T00:00Z 0.26"],
        },
        Verdict.FAIL,
    ),
}
