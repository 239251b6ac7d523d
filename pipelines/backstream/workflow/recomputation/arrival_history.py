"""Compute the watermark at the arrival of some records, with the reference engine and as few records as possible.

A watermark depends on all earlier arrivals. Of the buckets of arrivals that contain none of the records, only a
summary is used: their first and last arrival, with the smallest and the greatest event time. The engine runs
twice. In the first run, the greatest event time of a summary arrives last, and in the second run it arrives first.
Every merge of watermarks is monotone, so the true watermark is between the two. Where both are equal, it is exact.
Otherwise, all records of the bucket, or of the whole stream, are read.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from backstream.eventtime.instants import HOUR_MS, MAX_MS, MIN_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.union import complete_partitions
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks
from backstream.eventtime.windows import Session
from backstream.native.raw_input import RawInput, RawRecord
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder

_MAX_ATTEMPTS = 3
_MAX_BUCKETS = 200
"""The number of further buckets that are read in full to find an instant of the watermark."""


@dataclass(frozen=True, slots=True)
class OwnWatermarks:
    """The watermarks of the stream, and the position of each own record in it; `source` is a sentence."""

    events: Sequence[WatermarkEvent]
    positions: Sequence[int]
    in_force_ms: Sequence[int]
    source: str

    def reaching_ms(self, target_ms: int) -> int:
        """Return the time of the source's clock at which the watermark reaches an event time."""
        number = self._first_reaching(target_ms)
        return self.events[number].at_ms if number < len(self.events) else MAX_MS

    def _first_reaching(self, target_ms: int) -> int:
        return bisect_left(self.events, target_ms, key=lambda event: event.watermark_ms)

    def restrict(self, numbers: Sequence[int], thresholds: Iterable[int]) -> Watermarks:
        """Return the watermarks of a stream of some own records only, in the same order relative to them.

        Watermarks that cross no threshold since the previous one have no effect on windows and are left out.
        """
        positions = [self.positions[number] for number in numbers]
        crossing = {self._first_reaching(threshold) for threshold in thresholds} | {0}
        kept = Watermarks(in_force_ms=[self.in_force_ms[number] for number in numbers])
        for event in (self.events[number] for number in sorted(crossing) if number < len(self.events)):
            after = bisect_right(positions, event.after) - 1
            kept.events.append(WatermarkEvent(event.watermark_ms, after, event.at_ms))
        return kept


class ArrivalHistory:
    """The arrivals of the stream of a replay, summarized by buckets."""

    def __init__(self, raw: RawInput, records: int | None = None) -> None:
        """Load the summary from the arrival index, or from the input files.

        Args:
            raw: the input of a replay.
            records: the number of records whose watermarks are needed, for a summary of the input files in buckets
                of a suitable width; None: the summary that an earlier run left may be used.
        """
        self._raw, plan, definition = raw, raw.plan, raw.definition
        emission = definition.emission
        self._clock = SourceClock(plan.clock_start_ms, emission.tick_ms, plan.clock_end_ms)
        timeouts_ms = [strategy.idle_timeout_ms for strategy in emission.strategies if strategy.idle_timeout_ms]
        self._width_ms = max(1, min([HOUR_MS, *timeouts_ms]))
        self._is_sample = records is not None
        if records is not None:
            self._width_ms = min(self._width_ms, self._best_width_ms(records))
        index = _load_index(raw) if records is None else None
        if index is None:
            self.source = "the input files"
            self._buckets = raw.summarize_arrivals(self._width_ms)
        else:
            self.source, self._buckets = "the arrival index", index
        self._rows = self._buckets.to_pylist()
        found = {row["source_partition"] for row in self._rows}
        self.partitions = complete_partitions(
            emission.source_names, found | {*definition.quality.named_partitions}
        )
        self._emission = emission.with_partitions(self.partitions)

    def _best_width_ms(self, records: int) -> int:
        """Return the width of buckets for which the engine processes the fewest arrivals.

        A bucket is two arrivals in the summary, or all its arrivals if it has an own record.
        """
        plan, clock = self._raw.plan, self._clock
        if not clock.interval_ms:
            return self._width_ms
        span_ms = max(1, clock.end_ms - clock.start_ms)
        is_by_tick = self._raw.definition.emission.is_by_tick
        gap_ms = clock.interval_ms if is_by_tick else span_ms / max(1, sum(file.rows for file in plan.inputs))
        return max(clock.interval_ms, 1, round(math.sqrt(2 * span_ms * gap_ms / max(1, records))))

    def watermarks_at(self, records: Sequence[RawRecord], targets_ms: Collection[int]) -> OwnWatermarks:
        """Return the watermarks at the arrival of own records, and the exact times of reaching some event times.

        Args:
            records: own records in arrival order; they are part of the stream.
            targets_ms: event times.

        Raises:
            PlanError: when markers of punctuated watermarks cannot be read.
        """
        if not self._emission.is_monotone:
            return self._run_whole(records)
        detailed = self._buckets_around(record.arrival_ms for record in records)
        resumed = self._buckets_around(self._list_resumptions())
        if self._is_sample:
            detailed |= resumed
        for _ in range(_MAX_ATTEMPTS):
            arrivals = self._load_arrivals(detailed)
            low, high = (self._run(records, arrivals, detailed, is_upper=upper) for upper in (False, True))
            is_known = low.in_force_ms == high.in_force_ms
            unknown = (self._buckets_between(low, high, targets_ms) if is_known else resumed) - detailed
            if is_known and not unknown:
                return low
            if not unknown or len(unknown) > _MAX_BUCKETS:
                break
            detailed |= unknown
        return self._run_whole(records)

    def _buckets_around(self, instants_ms: Iterable[int]) -> set[int]:
        """Return the buckets of some arrivals, and those that can have arrivals of the last tick before them."""
        width_ms, interval_ms = self._width_ms, self._clock.interval_ms
        ranges = (range((at_ms - interval_ms) // width_ms, at_ms // width_ms + 1) for at_ms in instants_ms)
        return {bucket for each in ranges for bucket in each}

    def _list_resumptions(self) -> Iterator[int]:
        """Yield the instants at which a partition delivers its first record, or resumes after it could be idle.

        Its watermark can then hold that of the stream at a value which only the arrivals around it determine.
        """
        timeouts_ms = [each.idle_timeout_ms for each in self._emission.strategies if each.idle_timeout_ms]
        last_ms: dict[str, int] = {}
        for row in sorted(self._rows, key=lambda row: row["first_arrival_ms"]):
            name = row["source_partition"]
            silent_ms = row["first_arrival_ms"] - last_ms.get(name, MIN_MS)
            if name not in last_ms or (timeouts_ms and silent_ms > min(timeouts_ms)):
                yield row["first_arrival_ms"]
            last_ms[name] = row["last_arrival_ms"]

    def _buckets_between(self, low: OwnWatermarks, high: OwnWatermarks, targets_ms: Collection[int]) -> set[int]:
        """Return the buckets in which the time of reaching an event time is not known."""
        unknown: set[int] = set()
        for target_ms in targets_ms:
            first_ms, last_ms = high.reaching_ms(target_ms), low.reaching_ms(target_ms)
            if first_ms != last_ms:
                unknown |= set(
                    range((first_ms - self._clock.interval_ms) // self._width_ms, last_ms // self._width_ms + 1)
                )
        known = set(self._buckets["arrival_bucket"].to_pylist())
        return unknown & known

    def _run_whole(self, records: Sequence[RawRecord]) -> OwnWatermarks:
        everything = set(self._buckets["arrival_bucket"].to_pylist())
        return self._run(records, self._load_arrivals(everything), everything, is_upper=False)

    def _load_arrivals(self, buckets: Collection[int]) -> pa.Table | None:
        if not buckets:
            return None
        tick = (self._clock.start_ms, self._clock.interval_ms) if self._emission.is_by_tick else None
        return self._raw.load_arrivals(self._width_ms, buckets, tick)

    def _run(
        self, records: Sequence[RawRecord], arrivals: pa.Table | None, detailed: Collection[int], *, is_upper: bool
    ) -> OwnWatermarks:
        """Run the reference engine over summaries, arrivals of some buckets, and the own records."""
        entries = [(*record.place, 0, record.instant_ms, number) for number, record in enumerate(records)]
        entries += self._summary_entries(detailed, is_upper=is_upper)
        entries += self._arrival_entries(records, arrivals)
        entries.sort()
        numbers = {name: number for number, name in enumerate(self.partitions)}
        stream = [
            Record(arrival_ms, numbers[partition], None, event_ms)
            for arrival_ms, _, partition, _, event_ms, _ in entries
        ]
        positions = [0] * len(records)
        for position, entry in enumerate(entries):
            if entry[5] >= 0:
                positions[entry[5]] = position
        watermarks = compute_watermarks(stream, self._emission, self._clock, range(len(self.partitions)))
        in_force_ms = [watermarks.in_force_ms[position] for position in positions]
        read = 0 if arrivals is None else arrivals.num_rows
        source = f"from {self.source}, and {read:,} arrivals around the records"
        return OwnWatermarks(watermarks.events, positions, in_force_ms, source)

    def _summary_entries(self, detailed: Collection[int], *, is_upper: bool) -> Iterator[_Entry]:
        for row in self._rows:
            if row["arrival_bucket"] not in detailed:
                name, last_ms = row["source_partition"], row["last_event_ms"]
                first_ms = last_ms if is_upper else row["first_event_ms"]
                yield row["first_arrival_ms"], MIN_MS, name, 1, first_ms, -1
                yield row["last_arrival_ms"], MIN_MS, name, 1, last_ms, -1

    def _arrival_entries(self, records: Sequence[RawRecord], arrivals: pa.Table | None) -> Iterator[_Entry]:
        """Yield the arrivals without the own records, which are in the stream already.

        An arrival that represents a tick may repeat an own record. For a maximum, this makes no difference.
        """
        if arrivals is None:
            return
        own: dict[tuple[int, int, str, int], int] = defaultdict(int)
        if not self._emission.is_by_tick:
            for record in records:
                own[*record.place, record.instant_ms] += 1
        columns = ("arrival_ms", "arrival_seq", "source_partition", "event_ms")
        for place in zip(*(arrivals[name].to_pylist() for name in columns), strict=True):
            if own[place]:
                own[place] -= 1
                continue
            yield (*place[:3], 1, place[3], -1)


_Entry = tuple[int, int, str, int, int, int]
"""A record of the stream: its place, 0 for an own one, its event time, and the number of an own one."""


def _load_index(raw: RawInput) -> pa.Table | None:
    """Return the summary of all files of the plan from the arrival index; None if it lacks a file."""
    plan, definition = raw.plan, raw.definition
    window, emission = definition.window.spec(), definition.emission
    if isinstance(window, Session) or not definition.is_in_index:
        return None
    grid = BucketGrid.from_window(window, emission, definition.lateness.allowed)
    folder = IndexFolder.from_source(plan.home.path, definition.name, definition.read_by, grid)
    index = ArrivalIndex.from_folder(folder, plan.inputs)
    if index.list_unindexed(plan.inputs):
        return None
    rows = index.rows.filter(pc.is_valid(index.rows["source_partition"]))
    names = {"first_event_ms": "min", "last_event_ms": "max", "first_arrival_ms": "min", "last_arrival_ms": "max"}
    grouped = rows.group_by(["source_partition", "arrival_bucket"]).aggregate(list(names.items()))
    return grouped.rename_columns(
        [name.removesuffix("_min").removesuffix("_max") for name in grouped.column_names]
    )
