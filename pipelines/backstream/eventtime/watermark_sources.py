"""Compute the watermark at the arrival of each record of a recorded stream, as Flink 2.3.0 would have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from itertools import chain, groupby, pairwise

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.instants import MAX_MS, MIN_MS, wrap_int64
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import (
    CheckedGenerator,
    MicroBatchWatermarks,
    OnEventWatermarks,
    StrategyKind,
    WatermarkGenerator,
    generator_factory,
)
from backstream.eventtime.watermark_merging import (
    NewGenerator,
    OperatorWatermarks,
    SplitWatermarkMultiplexer,
    StatusWatermarkValve,
    WatermarkOutput,
)
from backstream.eventtime.watermarks import MAX_WATERMARK_EVENTS, Watermarks, too_many_watermarks_error

_MAX_TICKS = 200_000_000
"""Limit of ticks at which a custom generator is called; a year at 200 ms has fewer."""

Source = SplitWatermarkMultiplexer | OperatorWatermarks


QuietTicks = Callable[[int, int], Iterable[int]]
"""Function from a first and a last tick to the ticks between them that have an effect without new records.

The ticks ascend.
"""


def compute_watermarks(
    records: Sequence[Record],
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[int],
    new_generator: Callable[[], WatermarkGenerator] | None = None,
) -> Watermarks:
    """Run the records through the source, tick by tick.

    Args:
        records: in arrival order.
        emission: strategy, topology and model.
        clock: gives the ticks of the source's periodic emission.
        partitions: all partitions of the source, also those without records.
        new_generator: creates custom generators instead of those of the strategy.

    Raises:
        SpecError: when records are not in arrival order, when a custom generator fails, or when the clock has too
            many ticks.
    """
    if new_generator or emission.strategy.kind is StrategyKind.CUSTOM:
        new = new_generator or generator_factory(emission.strategy)
        emission = emission.with_custom_generator()
        quiet_ticks = idle_emit_ticks(CheckedGenerator(new()), clock, emission)
        return run_source(records, emission, clock, partitions, lambda _: CheckedGenerator(new()), quiet_ticks)
    return run_source(records, emission, clock, partitions)


def idle_emit_ticks(generator: CheckedGenerator, clock: SourceClock, emission: Emission) -> QuietTicks:
    """Return the quiet ticks at which a custom generator is called: none if it is steady, else all.

    Raises:
        SpecError: when there may be too many.
    """
    if generator.is_steady:
        return _no_quiet_ticks
    if clock.last_tick > _MAX_TICKS and not emission.strategy.idle_timeout_ms:
        msg = (
            f"a watermark generator cannot be called at {clock.last_tick:,} ticks, the limit is {_MAX_TICKS:,}\n\n"
            "hint: use a longer interval or an idle timeout, or set `is_steady = True` in the generator's class"
        )
        raise SpecError(msg)
    return lambda first, last: range(first, last + 1)


def _no_quiet_ticks(*_: int) -> Iterable[int]:
    return ()


def _new_builtin_generator(emission: Emission) -> NewGenerator:
    """Return the factory for generators of a built-in strategy under its emission model."""
    new: Callable[[], WatermarkGenerator] = generator_factory(emission.strategy)
    if emission.model is EmissionModel.RECORD:
        new = partial(OnEventWatermarks, emission.delay_ms)
    if emission.model is EmissionModel.MICRO_BATCH:
        new = partial(MicroBatchWatermarks, emission.delay_ms)
    return lambda _: new()


def run_source(
    records: Sequence[Record],
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[int],
    new_generator: NewGenerator | None = None,
    quiet_ticks: QuietTicks = _no_quiet_ticks,
    output: Watermarks | None = None,
) -> Watermarks:
    """Run records through a source, or through the sources of a union, and return the output.

    `compute_watermarks` and its Spark twin share this function. `output` receives the result if given.
    `new_generator` replaces the generators of the strategy.
    """
    output = Watermarks() if output is None else output
    if emission.strategy.kind is StrategyKind.NONE:
        output.in_force_ms = [MIN_MS] * len(records)
    else:
        gate = StatusWatermarkValve(output) if emission.sources else None
        sources = (
            _new_union_sources(emission, gate)
            if gate
            else _new_sources(emission, partitions, output, new_generator or _new_builtin_generator(emission))
        )
        _SourceLoop(emission, clock, sources, output, quiet_ticks, gate).run(records)
    if not (emission.suppresses_final_when_idle and output.is_idle and emission.topology is Topology.SPLITS):
        output.at(len(records) - 1, clock.end_ms)
        output.emit(MAX_MS)
        output.is_final = True
    return output


_Sources = Sequence[tuple[Source, Sequence[int]]]
"""The sources in the order in which they tick, each with its partitions."""


def _new_union_sources(emission: Emission, gate: StatusWatermarkValve) -> _Sources:
    """Return the sources of a union in front of their gate."""
    sources = []
    for source in emission.sources:
        alone = Emission(source.strategy, emission.topology)
        follows_clock = source.strategy.kind is StrategyKind.TIME_LAG
        for partitions in _partitions_by_subtask(emission.topology, source.partitions):
            channel = gate.new_channel(follows_clock=follows_clock)
            sources.append(_new_source(alone, partitions, channel, _new_builtin_generator(alone)))
    return sources


def _partitions_by_subtask(topology: Topology, partitions: Sequence[int]) -> Sequence[Sequence[int]]:
    """Return the partitions of each subtask; a source without partitions has one subtask."""
    return [[number] for number in partitions] or [()] if topology is Topology.SUBTASKS else [partitions]


def _new_sources(
    emission: Emission, partitions: Sequence[int], output: Watermarks, new_generator: NewGenerator
) -> _Sources:
    if emission.topology is Topology.SUBTASKS and emission.model is not EmissionModel.MICRO_BATCH:
        gate = StatusWatermarkValve(output)
        return [_new_source(emission, [number], gate.new_channel(), new_generator) for number in partitions]
    return [_new_source(emission, partitions, output, new_generator)]


def _new_source(
    emission: Emission, partitions: Sequence[int], output: WatermarkOutput, new_generator: NewGenerator
) -> tuple[Source, Sequence[int]]:
    strategy = emission.strategy
    if emission.model is EmissionModel.MICRO_BATCH:
        return OperatorWatermarks(replace(strategy, idle_timeout_ms=0), new_generator, output), partitions
    if emission.topology is Topology.OPERATOR:
        return OperatorWatermarks(strategy, new_generator, output), partitions
    return SplitWatermarkMultiplexer(strategy, partitions, new_generator, output), partitions


@dataclass(slots=True)
class _SourceLoop:
    """The source's clock and its records, advanced in step."""

    emission: Emission
    clock: SourceClock
    sources: _Sources
    output: Watermarks
    quiet_ticks: QuietTicks
    gate: StatusWatermarkValve | None = None
    """The gate behind the sources of a union."""
    last_tick: int = 0
    has_new_data: bool = False
    source_by_partition: dict[int, Source] = field(init=False)

    def __post_init__(self) -> None:
        self.source_by_partition = {number: source for source, numbers in self.sources for number in numbers}

    def run(self, records: Sequence[Record]) -> None:
        last_record = {record.source_partition: number for number, record in enumerate(records)}
        if self.emission.drops_finished_splits:
            for partition in self.source_by_partition.keys() - last_record.keys():
                self.source_by_partition[partition].release(partition)
        previous_ms = MIN_MS
        for number, record in enumerate(records):
            if record.arrival_time_ms < previous_ms:
                msg = f"records must be in arrival order, got {record.arrival_time_ms} ms after a later one"
                raise SpecError(msg)
            previous_ms = record.arrival_time_ms
            self._process_record(number, record)
            if self.emission.drops_finished_splits and last_record[record.source_partition] == number:
                self.source_by_partition[record.source_partition].release(record.source_partition)
        self._run_ticks(self.clock.last_tick, len(records) - 1)

    def _process_record(self, number: int, record: Record) -> None:
        ticks = self.clock.ticks_before(record.arrival_time_ms)
        self._run_ticks(ticks, number - 1)
        self.output.in_force_ms.append(self.output.current_ms)
        self.output.at(number, record.arrival_time_ms)
        self.source_by_partition[record.source_partition].on_record(record, ticks + 1)
        self.has_new_data = True

    def _run_ticks(self, until: int, after: int) -> None:
        """Run the ticks up to `until`, all after the same record."""
        if until <= self.last_tick:
            return
        for tick, next_tick in pairwise(chain(self._effective_ticks(until), [until + 1])):
            self._run_tick(tick, after)
            if self.emission.strategy.kind is StrategyKind.TIME_LAG:
                self._follow_clock(range(tick + 1, next_tick))
            if self.gate and self.gate.follows_clock:
                self._run_time_lags(range(tick + 1, next_tick), after, self.gate)
        self.last_tick, self.has_new_data = until, False

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

        Without new data, two ticks have an effect: the one at which an idle timeout expires, and the next one, at
        which the source announces idleness. `quiet_ticks` adds those at which generators emit by themselves.
        """
        first = self.last_tick + 1
        ticks = {first, first + 1} if self.has_new_data or not self.last_tick else set()
        onsets = set().union(*(source.idle_onset_ticks() for source, _ in self.sources))
        for onset in onsets:
            ticks |= {onset, onset + 1}
        # Once all are idle, no generator is called.
        quiet = self.quiet_ticks(first, min(until, max(onsets, default=until) + 1))
        in_order = merge(sorted(tick for tick in ticks if first <= tick <= until), quiet)
        return (tick for tick, _ in groupby(in_order))
