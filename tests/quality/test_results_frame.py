from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.quality.example_run import HOURLY, PLAN, SINCE_MS

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS
from backstream.quality.audit_frame import volume_score
from backstream.quality.results_frame import results_frame
from backstream.runs.plan import Mode, Plan

SESSION = {"kind": "session", "gap": "10m"}


def definition(window: dict[str, str], publish: str = "final") -> Definition:
    content = {
        "name": "clicks",
        "source": {"path": "data", "event_time": "at", "key": ["page"]},
        "window": window,
        "aggregates": {"clicks": "count(*)"},
        "backfill": {"publish": publish},
    }
    return parse_definition(content, "test")


def windows(*rows: tuple[int, int, int, int]) -> pd.DataFrame:
    """Return windows from rows: hour, on time, late, dropped."""
    frame = pd.DataFrame(rows, columns=["hour", "on_time", "late", "dropped"])
    starts_ms = SINCE_MS + frame.pop("hour") * HOUR_MS
    frame["window_start"] = pd.to_datetime(starts_ms, unit="ms", utc=True)
    return frame.assign(events=frame[["on_time", "late", "dropped"]].sum(axis=1))


def chunk(*rows: tuple[str | None, int, int]) -> pa.Table:
    """Return a chunk from rows: page, start and end of its window in minutes."""
    instants = pa.timestamp("us", "UTC")

    def at(minutes: int) -> int:
        return (SINCE_MS + minutes * MINUTE_MS) * 1_000

    return pa.table(
        {
            "page": pa.array([page for page, _, _ in rows], pa.string()),
            "window_start": pa.array([at(start) for _, start, _ in rows], instants),
            "window_end": pa.array([at(end) for _, _, end in rows], instants),
            "record_count": pa.array([1] * len(rows), pa.int64()),
        }
    )


def found(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    shown = frame.assign(window_start=frame["window_start"].dt.strftime("%H:%M"))
    return list(shown[["window_start", *columns]].itertuples(index=False, name=None))


def test_rows_are_counted_beside_the_events_they_were_made_of() -> None:
    chunks = [chunk(("a", 0, 60), ("b", 0, 60)), chunk(("a", 60, 120))]

    frame = results_frame(PLAN, definition(HOURLY), windows((0, 5, 1, 0), (1, 2, 0, 0), (2, 0, 0, 3)), chunks)

    assert found(frame, "events", "rows", "is_fired") == [
        ("00:00", 6, 2, True),
        ("01:00", 2, 1, True),
        ("02:00", 3, 0, False),
    ]


@pytest.mark.parametrize(("publish", "unfired"), [("first", []), ("live", [0]), ("final", [0, 1])])
def test_a_window_must_have_a_row_if_the_published_value_counts_any_of_its_events(
    publish: str, unfired: list[int]
) -> None:
    came = windows((0, 0, 1, 0), (1, 0, 0, 1), (2, 0, 0, 0))

    frame = results_frame(PLAN, definition(HOURLY, publish), came, [chunk(("a", 120, 180))])

    assert [at.hour for at in frame.loc[~frame["is_fired"], "window_start"]] == unfired


def test_a_recompute_publishes_all_events_for_any_published_pane() -> None:
    plan = replace(PLAN, mode=Mode.RECOMPUTE)

    frame = results_frame(plan, definition(HOURLY, "first"), windows((0, 0, 0, 1)), [])

    assert found(frame, "events", "is_fired") == [("00:00", 1, False)]


def test_a_second_row_of_a_key_and_window_is_repeated_also_in_another_chunk() -> None:
    twice = chunk((None, 0, 60), (None, 0, 60), ("b", 60, 120))
    again = chunk(("b", 60, 120))

    frame = results_frame(PLAN, definition(HOURLY), windows((0, 1, 0, 0), (1, 1, 0, 0)), [twice, again])

    assert found(frame, "rows", "repeated_rows") == [("00:00", 2, 1), ("01:00", 2, 1)]


def sessions(*chunks: pa.Table, plan: Plan = PLAN, publish: str = "final") -> list[tuple[Any, ...]]:
    """Return the hours with cut sessions and their number, for events in the first hour."""
    frame = results_frame(plan, definition(SESSION, publish), windows((0, 9, 0, 0)), chunks)
    return found(frame[frame["cut_sessions"] > 0], "cut_sessions")


def test_sessions_of_a_key_that_do_not_touch_are_whole() -> None:
    # minutes  0    10   20   30   40   50
    # a        [---------)    [---------)
    # b             [---------)
    assert sessions(chunk(("a", 0, 20), ("a", 30, 50), ("b", 10, 30))) == []


def test_a_session_that_begins_where_one_of_its_key_ends_was_cut() -> None:
    assert sessions(chunk(("a", 60, 70), ("a", 0, 20), ("a", 20, 40), ("b", 10, 30))) == [("00:00", 1)]


def test_a_session_is_cut_at_the_edge_between_chunks_by_one_of_its_key_from_any_chunk_before() -> None:
    first = chunk(("a", 0, 130), (None, 10, 70))
    second = chunk(("b", 60, 70), (None, 70, 80))

    assert sessions(first, second, chunk(("a", 125, 140))) == [("01:00", 1), ("02:00", 1)]


def test_the_sessions_of_a_live_stream_may_follow_on_purged_ones() -> None:
    assert sessions(chunk(("a", 0, 20), ("a", 20, 40)), publish="live") == []


def test_nothing_published_and_nothing_counted_is_no_row() -> None:
    assert results_frame(PLAN, definition(HOURLY), windows(), []).empty


PAST = [900.0, 1_000.0, 1_000.0, 1_050.0, 1_100.0]


@pytest.mark.parametrize(
    ("value", "past", "score"),
    [
        (1_000, PAST, 0.0),
        (1_100, PAST, 0.6745 * 100 / 50),
        (0, PAST, 0.6745 * 1_000 / 50),
        (1_100, PAST[:4], 0.0),  # too few runs
        (1_010, [1_000.0] * 5, 0.6745),  # equal sizes: the minimum MAD is one percent
    ],
)
def test_the_volume_score_is_the_modified_z_score(value: float, past: list[float], score: float) -> None:
    assert volume_score(value, past) == pytest.approx(score)
