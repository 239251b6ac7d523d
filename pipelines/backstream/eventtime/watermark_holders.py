"""Find the source partitions that hold the watermark back, and an idle timeout that releases it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MIN_MS

_ROUND_TIMEOUTS_MS = [
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 30, 90, 365)),
]
_USUAL_SHARE = 0.999
"""The share of pauses between arrivals that a recommended timeout exceeds."""
_CHART_STEPS = 1_000
"""The steps of a chart; a shorter stretch is not visible."""
_MIN_RATIO = 2
"""A pause is a silence if it is at least this many times as long as the recommended timeout."""


class ArrivalBucket(NamedTuple):
    """The arrivals of a source partition in a stretch of time, with their greatest event time."""

    source_partition: str
    first_arrival_ms: int
    last_arrival_ms: int
    last_event_ms: int
    events: int


Span = tuple[int, int]
"""The start and the end of a stretch of time, in ms."""


@dataclass(frozen=True, slots=True)
class WatermarkHolder:
    """A source partition that was the slowest: for how long in total, and its longest time without a record.

    `holds` are the stretches of a chart's time in which it was the slowest, and `silences` those without a record.
    Stretches that are too short for a chart are left out.
    """

    source_partition: str
    held_ms: int
    silent_from_ms: int
    silent_until_ms: int
    holds: Sequence[Span] = ()
    silences: Sequence[Span] = ()

    @property
    def silent_ms(self) -> int:
        """The length of the longest silence."""
        return self.silent_until_ms - self.silent_from_ms


def find_watermark_holders(
    buckets: Iterable[ArrivalBucket],
    idle_timeout_ms: int,
    partitions: Iterable[str] = (),
    charted: Span | None = None,
) -> list[WatermarkHolder]:
    """Return the partitions by the time for which they were the slowest active one, the longest first.

    Args:
        buckets: the arrivals of the whole stream.
        idle_timeout_ms: the time after which a silent partition is idle; 0: never.
        partitions: further partitions, which never delivered a record.
        charted: the time of the chart, as arrivals; None: that of the stream.
    """
    ordered = sorted(buckets, key=lambda bucket: bucket.last_arrival_ms)
    if not ordered:
        return []
    start_ms, end_ms = min(bucket.first_arrival_ms for bucket in ordered), ordered[-1].last_arrival_ms
    names = sorted({bucket.source_partition for bucket in ordered} | set(partitions))
    greatest_ms, last_ms = dict.fromkeys(names, MIN_MS), dict.fromkeys(names, start_ms)
    holds: dict[str, list[Span]] = {name: [] for name in names}
    for bucket, following in pairwise([*ordered, None]):
        assert bucket is not None  # noqa: S101 - only the last one is None
        name = bucket.source_partition
        greatest_ms[name] = max(greatest_ms[name], bucket.last_event_ms)
        last_ms[name] = bucket.last_arrival_ms
        now_ms = bucket.last_arrival_ms
        active = [each for each in names if not idle_timeout_ms or now_ms - last_ms[each] <= idle_timeout_ms]
        if len(names) > 1 and following is not None:
            slowest = min(active, key=lambda each: greatest_ms[each])
            holds[slowest].append((now_ms, following.last_arrival_ms))
    chart = charted or (start_ms, end_ms)
    holders = []
    for name in names:
        held_ms, silences = sum(map(_length, holds[name])), _list_silences(ordered, name, start_ms, end_ms)
        if held_ms:
            longest = max(silences, key=_length)
            spans = (_cut_spans(each, chart) for each in (holds[name], silences))
            holders.append(WatermarkHolder(name, held_ms, *longest, *spans))
    return sorted(holders, key=lambda holder: (-holder.held_ms, holder.source_partition))


def recommend_idle_timeout_ms(buckets: Sequence[ArrivalBucket], width_ms: int = HOUR_MS) -> int | None:
    """Return a round timeout that nearly all pauses between arrivals stay below; None if no silence is longer.

    Args:
        buckets: the arrivals of the whole stream.
        width_ms: the width of the buckets; no pause within a bucket is longer, and no timeout is shorter.
    """
    ordered = sorted(buckets, key=lambda bucket: bucket.last_arrival_ms)
    if not ordered:
        return None
    start_ms, end_ms = min(bucket.first_arrival_ms for bucket in ordered), ordered[-1].last_arrival_ms
    silences = [
        _list_silences(ordered, name, start_ms, end_ms) for name in {bucket.source_partition for bucket in ordered}
    ]
    longest_ms = max(_length(silence) for each in silences for silence in each)
    # Before its first record and after its last one, a partition does not pause: it does not deliver.
    pauses_ms = sorted(_length(pause) for each in silences for pause in each[1:-1])
    within = sum(bucket.events for bucket in ordered) - len(ordered)
    place = round(_USUAL_SHARE * (within + len(pauses_ms))) - within
    usual_ms = pauses_ms[min(max(0, place), len(pauses_ms) - 1)] if pauses_ms else 0
    timeout_ms = next((each for each in _ROUND_TIMEOUTS_MS if each > usual_ms and each >= width_ms), None)
    return timeout_ms if timeout_ms is not None and longest_ms >= _MIN_RATIO * timeout_ms else None


def _list_silences(ordered: Sequence[ArrivalBucket], name: str, start_ms: int, end_ms: int) -> list[Span]:
    """Return the pauses of a partition from the first arrival of the stream to its last one."""
    own = [bucket for bucket in ordered if bucket.source_partition == name]
    if not own:
        return [(start_ms, end_ms)]
    between = [(one.last_arrival_ms, other.first_arrival_ms) for one, other in pairwise(own)]
    return [(start_ms, own[0].first_arrival_ms), *between, (own[-1].last_arrival_ms, end_ms)]


def _cut_spans(spans: Iterable[Span], chart: Span) -> tuple[Span, ...]:
    """Return ordered spans within a chart; those that touch become one, and short ones are left out."""
    joined: list[Span] = []
    for start_ms, end_ms in spans:
        if joined and start_ms == joined[-1][1]:
            joined[-1] = (joined[-1][0], end_ms)
        else:
            joined.append((start_ms, end_ms))
    cut = ((max(start_ms, chart[0]), min(end_ms, chart[1])) for start_ms, end_ms in joined)
    return tuple(span for span in cut if _length(span) > _length(chart) // _CHART_STEPS)


def _length(span: Span) -> int:
    return span[1] - span[0]
