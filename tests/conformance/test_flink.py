"""Compare the reference engine with recordings of Apache Flink 2.3.0."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from backstream.conformance import reference_engine
from backstream.conformance.cases import Case, load_cases, parse_case
from backstream.conformance.comparison import find_difference
from backstream.conformance.reference_engine import StreamResult
from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS

CASES = Path(__file__).parent / "flink"
FAMILIES = {path.stem: path for path in sorted(CASES.glob("*.jsonl"))}


def test_there_are_715_recordings() -> None:
    assert len(list(load_cases(list(FAMILIES.values())))) == 715


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_reference_agrees_with_flink(family: str) -> None:
    tally = find_difference(list(load_cases([FAMILIES[family]])), reference_engine.run_cases)

    assert (tally.differ, tally.unsupported) == ([], {})
    assert tally.agree > 40


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_reference_agrees_with_flink_after_cuts(family: str) -> None:
    lines = list(load_cases([FAMILIES[family]]))

    for cuts in (1, 2, 3, 10, 60):  # a stream has at most 60 records: the last number cuts between all of them
        tally = find_difference(lines, partial(reference_engine.run_cases, cuts=cuts))
        assert (cuts, tally.differ, tally.unsupported) == (cuts, [], {})


@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        (["firings", 0, "records"], [0], "firings: at"),
        (["firings", 0, "wm"], 123, "firings: at"),
        (["late"], [0], "late records: at 0 recorded 0, this engine 9"),
        (["record_wm", 3], -7, "watermark in force: at 3 recorded -7, this engine 0"),
        (["watermarks", 0, "after"], 1, "watermarks: at 0 recorded (-2, 1), this engine (-2, 0)"),
        (["num_late_dropped"], 2, "number of late records: recorded 2, this engine 1"),
    ],
)
def test_a_changed_recording_differs(path: list[str | int], value: object, difference: str) -> None:
    line = next(line for line in load_cases([FAMILIES["edge"]]) if line["case"]["name"] == "edge/table_x1ms")
    tampered = json.loads(json.dumps(line))
    target = tampered["flink"]
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value

    tally = find_difference([line, tampered], reference_engine.run_cases)

    assert (tally.agree, len(tally.differ)) == (1, 1)
    assert tally.differ[0].startswith(f"differs: edge/table_x1ms: {difference}")


def test_firings_out_of_order_differ() -> None:
    line = next(line for line in load_cases([FAMILIES["edge"]]) if line["case"]["name"] == "edge/table_x1ms")
    line["flink"]["firings"].reverse()

    tally = find_difference([line], reference_engine.run_cases)

    assert tally.differ[0].startswith("differs: edge/table_x1ms: order of firings: at 0")


@pytest.mark.parametrize(
    ("section", "value", "says"),
    [
        ("strategy", {"kind": "aligned"}, "watermark strategy 'aligned'"),
        ("window", {"kind": "global"}, "window kind 'global'"),
        ("topology", "join", "topology 'join'"),
    ],
)
def test_a_case_with_an_unknown_kind_is_unsupported(section: str, value: object, says: str) -> None:
    line = next(line for line in load_cases([FAMILIES["edge"]]) if line["case"]["name"] == "edge/table_x1ms")
    line["case"][section] = value

    tally = find_difference([line], reference_engine.run_cases)

    assert tally.unsupported == {says: 1}


def test_a_case_without_records_is_malformed() -> None:
    with pytest.raises(SpecError) as refused:
        find_difference([{"case": {"name": "mine"}, "flink": {}}], reference_engine.run_cases)
    assert str(refused.value) == "conformance case 'mine' is malformed: KeyError('records')"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"allowed_lateness_ms": -1}, "allowed lateness must not be negative, got -1 ms"),
        ({"partitions": 0}, "partition must be 0 to -1, got 0"),
        (
            {"records": [{"arrival_ms": at, "partition": 0, "key": "a", "ts": at} for at in (5, 4)]},
            "records must be in arrival order, got 4 ms after a later one",
        ),
    ],
)
def test_an_invalid_case_is_an_error_on_every_engine(settings: dict[str, object], says: str) -> None:
    line = next(line for line in load_cases([FAMILIES["edge"]]) if line["case"]["name"] == "edge/table_x1ms")
    line["case"] |= settings

    tally = find_difference([line], reference_engine.run_cases)

    assert tally.differ == [f"differs: edge/table_x1ms: raised SpecError: {says}"]


def without_records(kind: str) -> dict[str, object]:
    """Return a case with only ticks, every 200 ms from 1970 to 2023."""
    window = {"kind": "tumbling", "size_ms": 5}
    return {"name": kind, "records": [], "strategy": {"kind": kind}, "window": window, "end_ms": 1_700_000_000_000}


def test_years_without_a_record_take_no_time() -> None:
    cases = [parse_case(without_records(kind)) for kind in ("bounded", "punctuated", "none", "time_lag")]

    *quiet, refused = reference_engine.run_cases(cases)

    assert [each.watermarks for each in quiet if isinstance(each, StreamResult)] == [[(MAX_MS, -1)]] * 3
    assert str(refused).startswith("a time lag moves the watermark at every tick: 8,500,000,000 watermarks")


def overlapping_windows(event_time_ms: int) -> Case:
    window = {"kind": "sliding", "size_ms": 30, "slide_ms": 10}
    record = {"arrival_ms": 0, "partition": 0, "key": "a", "ts": event_time_ms}
    strategy = {"kind": "none"}
    return parse_case({"name": "mine", "strategy": strategy, "window": window, "records": [record]})


def test_sliding_windows_at_the_lower_limit_follow_the_loop_of_flink() -> None:
    """`for (start = last; start > timestamp - size; start -= slide)`, in Java's arithmetic."""
    # -2^63 is 2 ms above a window start: the first window starts below -2^63 and wraps to the top.
    wraps_too, wraps_alone = reference_engine.run_cases(
        [overlapping_windows(MIN_MS + 1), overlapping_windows(MIN_MS + 20)]
    )

    assert isinstance(wraps_too, StreamResult)
    assert [(firing.start, firing.end) for firing in wraps_too.firings] == [
        (MAX_MS - 21, MIN_MS + 8),
        (MAX_MS - 11, MIN_MS + 18),
        (MAX_MS - 1, MIN_MS + 28),
    ]
    assert isinstance(wraps_alone, StreamResult)
    assert (wraps_alone.firings, wraps_alone.late) == ([], [])
