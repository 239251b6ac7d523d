"""Run the records and ticks of a source in step; a run can stop at a cut of the stream, and continue."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby, pairwise

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, Inputs, Topology
from backstream.eventtime.instants import MAX_MS, MIN_MS, wrap_int64
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.stream_state import StreamState
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermark_merging import (
    AssignerWatermarks,
    OperatorWatermarks,
    SplitWatermarkMultiplexer,
    StatusWatermarkValve,
)
from backstream.eventtime.watermarks import MAX_WATERMARK_EVENTS, Watermarks, too_many_watermarks_error

Source = SplitWatermarkMultiplexer | OperatorWatermarks | AssignerWatermarks

QuietTicks = Callable[[int, int], Iterable[int]]
"""Function from a first and a last tick to the ticks between them that have an effect without new records.

The ticks ascend.
"""


@dataclass(slots=True)
class SourceRun:
    """The source's clock and its records, advanced in step; a run can stop between two records and continue.

    `sources` are in the order in which they tick, each with its partitions. `gate` is behind several sources.
    """

    emission: Emission
    clock: SourceClock
    sources: Sequence[tuple[Source, Sequence[int]]]
    output: Watermarks
    quiet_ticks: QuietTicks
    gate: StatusWatermarkValve | None = None
    records: int = 0
    """The number of records so far."""
    last_tick: int = 0
    data_tick: int = 1
    """The tick that includes the newest records."""
    source_by_partition: dict[int, Source] = field(init=False)

    def __post_init__(self) -> None:
        self.source_by_partition = {number: source for source, numbers in self.sources for number in numbers}

    def process(self, records: Sequence[Record], continuing: Collection[int] = ()) -> None:
        """Process records, with the ticks before each of them.

        Args:
            records: the next records, in arrival order.
            continuing: partitions that have more records afterwards, so that they are not finished.

        Raises:
            SpecError: when records are not in arrival order, or a custom generator fails.
        """
        if self.emission.strategy.kind is StrategyKind.NONE:
            self.output.in_force_ms += [MIN_MS] * len(records)
            self.records += len(records)
            return
        last_record = {record.source_partition: number for number, record in enumerate(records)}
        if self.emission.drops_finished_splits:
            for partition in self.source_by_partition.keys() - last_record.keys() - set(continuing):
                self.source_by_partition[partition].release(partition)
        previous_ms = MIN_MS
        for number, record in enumerate(records):
            if record.arrival_time_ms < previous_ms:
                msg = f"records must be in arrival order, got {record.arrival_time_ms} ms after a later one"
                raise SpecError(msg)
            previous_ms, partition = record.arrival_time_ms, record.source_partition
            self._process_record(record)
            is_last = last_record[partition] == number and partition not in continuing
            if self.emission.drops_finished_splits and is_last:
                self.source_by_partition[partition].release(partition)

    def advance(self, until_ms: int) -> None:
        """Run the ticks up to an instant, inclusively; no later record may have arrived before it."""
        if self.emission.strategy.kind is not StrategyKind.NONE:
            self._run_ticks(self.clock.ticks_before(until_ms))

    def finish(self) -> None:
        """Run the remaining ticks, and end the input with +inf, or with the last watermarks of a job."""
        self.advance(self.clock.end_ms)
        if given := self.emission.strategy.given:
            place = bisect_right(given.at_ms, self.clock.end_ms)
            for at_ms, watermark_ms in zip(given.at_ms[place:], given.watermark_ms[place:], strict=True):
                self.output.at(self.records - 1, at_ms)
                self.output.emit(watermark_ms)
        self.output.before_end = len(self.output.events)
        is_idle_source = self.output.is_idle and self.emission.topology is Topology.SPLITS
        is_held = self.emission.suppresses_final_when_idle and is_idle_source
        if self.emission.has_end and not is_held:
            self.output.at(self.records - 1, self.clock.end_ms)
            if self.gate and self.emission.inputs is not Inputs.UNION:
                self.gate.finish()
            self.output.emit(MAX_MS)
            self.output.is_final = True

    def snapshot(self) -> StreamState:
        """Return the state between the last record and the next one.

        Raises:
            SpecError: when JSON cannot hold an attribute of a custom generator.
        """
        return StreamState(
            records=self.records,
            watermarks=self.output.events_before + len(self.output.events),
            watermark_ms=self.output.current_ms,
            is_idle=self.output.is_idle,
            last_tick=self.last_tick,
            data_tick=self.data_tick,
            sources=tuple(source.snapshot() for source, _ in self.sources),
            channels=self.gate.snapshot() if self.gate else (),
            gate_ms=self.gate.merged_ms if self.gate else MIN_MS,
        )

    def restore(self, state: StreamState) -> None:
        """Continue from a state of a run with the same emission, clock start, and partitions."""
        self.records, self.last_tick, self.data_tick = state.records, state.last_tick, state.data_tick
        self.output.records_before, self.output.events_before = state.records, state.watermarks
        self.output.initial_ms, self.output.is_initially_idle = state.watermark_ms, state.is_idle
        for (source, _), source_state in zip(self.sources, state.sources, strict=True):
            source.restore(source_state)
        if self.gate:
            self.gate.restore(state.channels, state.gate_ms)

    def _process_record(self, record: Record) -> None:
        ticks = self.clock.ticks_before(record.arrival_time_ms)
        self._run_ticks(ticks)
        self.output.in_force_ms.append(self.output.current_ms)
        self.output.at(self.records, record.arrival_time_ms)
        self.source_by_partition[record.source_partition].on_record(record, ticks + 1)
        self.records, self.data_tick = self.records + 1, ticks + 1

    def _run_ticks(self, until: int) -> None:
        """Run the ticks up to `until`, all after the same record."""
        if until <= self.last_tick:
            return
        after = self.records - 1
        for tick, next_tick in pairwise(chain(self._effective_ticks(until), [until + 1])):
            self._run_tick(tick, after)
            if self.emission.strategy.kind is StrategyKind.TIME_LAG:
                self._follow_clock(range(tick + 1, next_tick))
            if self.gate and self.gate.follows_clock:
                self._run_time_lags(range(tick + 1, next_tick), after, self.gate)
        self.last_tick = until

    def _run_tick(self, tick: int, after: int) -> None:
        now_ms = self.clock.tick_ms(tick)
        self.output.at(after, now_ms)
        for source, _ in self.sources:
            source.on_tick(tick, now_ms)

    def _follow_clock(self, ticks: range) -> None:
        """Advance a time lag through ticks without events.

        If it moved the watermark at the tick before, it moves the watermark at each of these ticks as well.
        """
        delay_ms = self.emission.delay_ms
        before_ms = self.clock.tick_ms(ticks.start - 1)
        if ticks and self.output.current_ms == wrap_int64(before_ms - delay_ms):
            self.output.climb(ticks, self.clock, delay_ms)

    def _run_time_lags(self, ticks: range, after: int, gate: StatusWatermarkValve) -> None:
        """Run quiet ticks, at which only the time lags of a union emit.

        While another source holds the watermark, the ticks have no effect. The last one updates the time lags.

        Raises:
            SpecError: when the list of watermarks would be too long.
        """
        for tick in ticks:
            if gate.is_held:
                self._run_tick(ticks[-1], after)
                return
            self._run_tick(tick, after)
            if len(self.output.events) > MAX_WATERMARK_EVENTS:
                raise too_many_watermarks_error(len(self.output.events))

    def _effective_ticks(self, until: int) -> Iterable[int]:
        """Return the ticks in `(last_tick, until]` that can have an effect; years of quiet ticks are skipped.

        New data has an effect at two ticks. Without it, two ticks have an effect: the one at which an idle timeout
        expires, and the next one, at which the source announces idleness. `quiet_ticks` adds those at which
        generators emit by themselves. The first tick is always run, since a time lag climbs from a tick that ran.
        """
        first = self.last_tick + 1
        ticks = {first, self.data_tick, self.data_tick + 1}
        onsets = set().union(*(source.idle_onset_ticks() for source, _ in self.sources))
        for onset in onsets:
            ticks |= {onset, onset + 1}
        # Once all are idle, no generator is called.
        quiet = self.quiet_ticks(first, min(until, max(onsets, default=until) + 1))
        in_order = merge(sorted(tick for tick in ticks if first <= tick <= until), quiet)
        return (tick for tick, _ in groupby(in_order))
