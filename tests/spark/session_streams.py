"""Generate streams for session tests, with the results of the reference interpreter."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record
from backstream.eventtime.window_operator import PaneTiming, WindowResults, fire_windows
from backstream.eventtime.windows import Session
from backstream.native.sessions.window_replay import to_watermarks

SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in ("stream", "event_time_ms", "arrival_time_ms", "arrival_seq")),
        *((name, pa.int64()) for name in ("watermark_ms", "value", "gap_ms", "allowed_lateness_ms")),
        *((name, pa.string()) for name in ("source_partition", "key")),
    ]
)
Value = tuple[int, int] | None
"""Count and total of a pane; None if it doesn't exist."""
Place = tuple[str, int, int]
"""Key and window."""


class Event(NamedTuple):
    """A record with the watermark in force at its arrival."""

    event_time_ms: int
    watermark_ms: int
    key: str
    value: int


class Stream(NamedTuple):
    """Records in arrival order, and the session parameters of their stream."""

    events: list[Event]
    gap_ms: int
    allowed_lateness_ms: int


def random_stream(chance: random.Random, length: int = 60) -> Stream:
    """Return bursts with pauses of about a gap; most records are in time, some late, a few far too late."""
    gap_ms = chance.choice([5, 40, 60])
    is_hostile, base_ms = chance.random() < 0.5, chance.choice([-900, 0, 1_700_000_000_000])
    now_ms, seen_ms, watermark_ms = base_ms, base_ms, MIN_MS
    events = []
    for _ in range(chance.randrange(1, length)):
        now_ms += chance.choice([0, 1, 3, chance.randrange(gap_ms + 2), gap_ms, gap_ms + 1])
        far_ms = chance.randrange(6 * gap_ms) if is_hostile or chance.random() < 0.05 else 0
        event_ms = now_ms - chance.choice([0, 0, chance.randrange(4), far_ms])
        events.append(Event(event_ms, watermark_ms, chance.choice("xyz"), chance.randrange(9)))
        seen_ms = max(seen_ms, event_ms)
        if chance.random() < 0.4:
            watermark_ms = max(watermark_ms, seen_ms - chance.choice([1, 3, gap_ms]) - 1)
    return Stream(events, gap_ms, chance.choice([0, 0, 3, gap_ms, 20 * gap_ms]))


def rows(streams: Sequence[Stream]) -> pa.Table:
    """Return the normalized events of all streams, with the session parameters of their stream."""
    return pa.Table.from_pylist(
        [
            {
                "stream": number,
                "event_time_ms": event.event_time_ms,
                "arrival_time_ms": seq // 3,  # some arrive together: their sequence decides
                "arrival_seq": seq,
                "watermark_ms": event.watermark_ms,
                "value": event.value,
                "gap_ms": stream.gap_ms,
                "allowed_lateness_ms": stream.allowed_lateness_ms,
                "source_partition": "A",
                "key": event.key,
            }
            for number, stream in enumerate(streams)
            for seq, event in enumerate(stream.events)
        ],
        SCHEMA,
    )


class Expected:
    """The results of the reference for a stream."""

    def __init__(self, stream: Stream) -> None:
        """Run the reference on the stream, as recorded and without watermarks."""
        self.stream = stream
        self.played = self._panes([event.watermark_ms for event in stream.events])
        self.offline = self._panes([MIN_MS for _ in stream.events])

    def _panes(self, in_force_ms: Sequence[int]) -> WindowResults:
        records = [Record(0, 0, event.key, event.event_time_ms) for event in self.stream.events]
        return fire_windows(
            records, to_watermarks(in_force_ms), Session(self.stream.gap_ms), self.stream.allowed_lateness_ms
        )

    def final(self) -> dict[Place, Value]:
        """Return each session with all events."""
        return {(str(each.key), *each.window): self._value(each.records) for each in self.offline.panes}

    def values(self) -> dict[Place, tuple[Value, Value, Value, int]]:
        """Return the first, live, and final value of each window, and the number of late firings."""
        final = self.final()
        first: dict[Place, Value] = {}
        live: dict[Place, Value] = {}
        late: dict[Place, int] = {}
        for pane in self.played.panes:
            place = (str(pane.key), *pane.window)
            live[place] = self._value(pane.records)
            if pane.timing is PaneTiming.ON_TIME:
                first[place] = live[place]
            late[place] = late.get(place, 0) + (pane.timing is PaneTiming.LATE)
        return {
            place: (first.get(place), live.get(place), final.get(place), late.get(place, 0))
            for place in {*final, *live}
        }

    def firings(self) -> dict[Place, list[tuple[str, int | None, Value]]]:
        """Return each window's firings in order: timing, watermark at the late record, and value."""
        fired: dict[Place, list[tuple[str, int | None, Value]]] = {}
        for pane in self.played.panes:
            met_ms = pane.watermark_ms if pane.timing is PaneTiming.LATE else None
            place = (str(pane.key), *pane.window)
            fired.setdefault(place, []).append((pane.timing.value, met_ms, self._value(pane.records)))
        return fired

    def fates(self) -> list[str]:
        """Return the fate of each record."""
        return [fate.value for fate in self.played.fates]

    def _value(self, numbers: Sequence[int]) -> tuple[int, int]:
        return len(numbers), sum(self.stream.events[number].value for number in numbers)
