"""Compare a replay that is cut in two with an uninterrupted one: firings, fates, watermarks, and timers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstream.conformance.repeating_timers import RepeatingTimers
from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.process_functions import Context
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.stream_replay import (
    ReplayResults,
    ReplayState,
    StreamSettings,
    replay_to_cut,
    replay_to_end,
)
from backstream.eventtime.stream_state import read_attributes
from backstream.eventtime.union import UnionSource
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling

PARTITIONS = 4
_OF_NO_STREAM = (StrategyKind.PER_SOURCE, StrategyKind.STRUCTURED_STREAMING)
"""A union's own kind, and that of a job, whose watermarks are given: `test_given_watermarks` has those."""
KINDS = [kind for kind in StrategyKind if kind not in _OF_NO_STREAM]
CUSTOM = [
    ("backstream.examples.generators:SmoothedLag", {"records": 3, "margin_ms": 2}),
    ("backstream.examples.generators:Heartbeat", {"delay_ms": 3}),
    (f"{__name__}:Drifting", {}),
]


class Drifting:
    """A generator that is not steady: it advances by itself at each tick."""

    def __init__(self) -> None:
        self.watermark_ms = -100

    def on_event(self, record: Record) -> None:
        """Advance to the event time."""
        self.watermark_ms = max(self.watermark_ms, record.event_time_ms - 20)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Advance by one millisecond, and emit at every second one."""
        self.watermark_ms += 1
        return self.watermark_ms if self.watermark_ms % 2 else None


class Counting:
    """A process function with all kinds of state: attributes, `context.state`, timers, and outputs."""

    def __init__(self) -> None:
        self.records = 0

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Count the record, and register a timer after it or before it."""
        self.records += 1
        context.state["sum"] = context.state.get("sum", 0) + record["event_time_ms"]
        context.timer_service.register(record["event_time_ms"] + 40 * (self.records % 3) - 10)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Emit the count so far."""
        context.emit({"records": self.records, "sum": context.state["sum"], "at": context.current_watermark_ms})


WINDOWS = st.one_of(
    st.builds(Tumbling, st.integers(1, 60), st.just(0)),
    st.builds(Sliding, st.integers(1, 60), st.integers(1, 60)),
    st.builds(lambda step, count: Cumulate(step * count, step), st.integers(1, 20), st.integers(1, 4)),
    st.builds(Session, st.integers(1, 60)),
)


@st.composite
def strategies(draw: st.DrawFn, interval_ms: int, kinds: Sequence[StrategyKind] = KINDS) -> WatermarkStrategy:
    kind = draw(st.sampled_from(kinds))
    idle_ms = draw(st.sampled_from([0, 1, 20, 60]))
    if kind is StrategyKind.CUSTOM:
        return WatermarkStrategy(kind, 0, interval_ms, idle_ms, *draw(st.sampled_from(CUSTOM)))
    return WatermarkStrategy(kind, draw(st.integers(0, 50)), interval_ms, idle_ms)


@st.composite
def emissions(draw: st.DrawFn) -> Emission:
    """Draw an emission of any topology, strategy, and model, or a union of two sources."""
    interval_ms = draw(st.sampled_from([0, 1, 7, 50]))
    topology = draw(st.sampled_from(Topology))
    if draw(st.booleans()):
        refused = {StrategyKind.CUSTOM, *([StrategyKind.FLINK_SQL] if topology is Topology.OPERATOR else [])}
        kinds = [kind for kind in KINDS if kind not in refused]
        split = draw(st.integers(0, PARTITIONS))
        sources = [
            UnionSource("a", draw(strategies(interval_ms, kinds)), tuple(range(split))),
            UnionSource("b", draw(strategies(interval_ms, kinds)), tuple(range(split, PARTITIONS))),
        ]
        return Emission.from_sources(sources, topology)
    strategy = draw(strategies(interval_ms))
    is_max_based = strategy.kind in (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)
    model = draw(st.sampled_from(EmissionModel)) if is_max_based else EmissionModel.TICK
    return Emission(strategy, topology, draw(st.booleans()), draw(st.booleans()), model)


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Draw up to 30 records of 3 of the 4 partitions, with event times around their arrival."""
    arrivals = sorted(draw(st.lists(st.integers(0, 300), max_size=30)))
    return [
        Record(
            at,
            draw(st.integers(0, 2)),
            draw(st.sampled_from(["a", "b", ("a", 1)])),
            at + draw(st.integers(-80, 20)),
            marker=draw(st.sampled_from([None, None, True, at - 5])),
            delete_timers_ms=tuple(draw(st.lists(st.integers(0, 300), max_size=1))),
        )
        for at in arrivals
    ]


FUNCTIONS = [None, Counting, partial(RepeatingTimers, [-5, 30], 20, 2)]


@settings(max_examples=500, deadline=None)
@given(streams(), emissions(), WINDOWS, st.sampled_from([0, 0, 5, 100]), st.sampled_from(FUNCTIONS), st.data())
def test_a_cut_changes_no_result(
    records: list[Record], emission: Emission, window: Any, lateness_ms: int, function: Any, data: st.DataObject
) -> None:
    end_ms = (records[-1].arrival_time_ms if records else 0) + data.draw(st.sampled_from([0, 3, 200]))
    clock = SourceClock(data.draw(st.integers(-100, 0)), emission.tick_ms, end_ms)
    stream = StreamSettings(emission, clock, tuple(range(PARTITIONS)), window, lateness_ms, function)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), min_size=1, max_size=3)))

    whole = replay_to_end(records, stream)

    parts = list(replay_parts(records, stream, cuts, data))
    assert results_of(parts) == results_of([whole])


def replay_parts(records: list[Record], stream: StreamSettings, cuts: list[int], data: st.DataObject) -> Any:
    """Replay a stream that is cut before these records; the state goes through JSON at each cut."""
    state, begin = None, 0
    for cut in cuts:
        before_ms = records[cut - 1].arrival_time_ms if cut else stream.clock.start_ms
        after_ms = records[cut].arrival_time_ms if cut < len(records) else stream.clock.end_ms
        at_ms = data.draw(st.none() | st.integers(before_ms, after_ms))
        continuing = {record.source_partition for record in records[cut:]}
        part, state = replay_to_cut(records[begin:cut], stream, state, at_ms=at_ms, continuing=continuing)
        state = ReplayState.from_json(json.loads(json.dumps(state.to_json())))
        begin = cut
        yield part
    yield replay_to_end(records[begin:], stream, state)


def results_of(parts: list[ReplayResults]) -> dict[str, Any]:
    """Return the results of all parts together; firings of different keys with one cause have no order."""
    processes = [part.process for part in parts if part.process]
    keys = sorted({key for process in processes for key in process.emitted}, key=str)
    return {
        "watermarks": [event for part in parts for event in part.watermarks.events],
        "statuses": [status for part in parts for status in part.watermarks.statuses],
        "in force": [value for part in parts for value in part.watermarks.in_force_ms],
        "is final": parts[-1].watermarks.is_final,
        "panes": sorted((pane for part in parts for pane in part.windows.panes), key=pane_order),
        "fates": [fate for part in parts for fate in part.windows.fates],
        "dropped": [number for part in parts for number in part.windows.dropped],
        "expired": [expired for part in parts for expired in part.windows.expired],
        "timers": sorted(
            (firing for process in processes for firing in process.firings),
            key=lambda firing: (firing.by, firing.timestamp_ms, str(firing.key)),
        ),
        "emitted": {key: [row for process in processes for row in process.emitted.get(key, [])] for key in keys},
    }


def pane_order(pane: Any) -> tuple[Any, ...]:
    return pane.after, pane.by, pane.timing, pane.window.end_ms, pane.window.start_ms, str(pane.key)


def test_firings_are_numbered_through_the_cut() -> None:
    #  arrival      0   10    11   12        watermark after 10: 49
    #  event time   5   50    6    7         [0,10) on time, then late twice
    records = [Record(0, 0, "a", 5), Record(10, 0, "a", 50), Record(11, 0, "a", 6), Record(12, 0, "a", 7)]
    emission = Emission(WatermarkStrategy(StrategyKind.MONOTONOUS, interval_ms=1))
    stream = StreamSettings(emission, SourceClock(0, 1, 12), (0,), Tumbling(10), 100)

    _, state = replay_to_cut(records[:3], stream, at_ms=12)

    assert [(window.start_ms, window.records, window.is_pending, window.firings) for window in state.windows] == [
        (0, (0, 2), False, 2),
        (50, (1,), True, 0),
    ]


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    class Keeping:
        def __init__(self) -> None:
            self.seen = {1, 2}

    with pytest.raises(SpecError) as refused:
        read_attributes(Keeping(), "process function")

    assert str(refused.value) == (
        f"attribute 'seen' of the process function {__name__}:{Keeping.__qualname__} must be a value that JSON "
        "can hold, got set\n\nhint: use text, numbers, lists, and mappings with text as keys, or write "
        "`snapshot_state` and `restore_state`"
    )
