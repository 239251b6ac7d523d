"""Compute the watermark at the arrival of each record of a recorded stream, as Flink 2.3.0 would have it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Inputs, Topology
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.source_run import QuietTicks, Source, SourceRun
from backstream.eventtime.stream_state import StreamState
from backstream.eventtime.watermark_generators import (
    CheckedGenerator,
    GivenWatermarks,
    MicroBatchWatermarks,
    OnEventWatermarks,
    StrategyKind,
    WatermarkGenerator,
    generator_factory,
)
from backstream.eventtime.watermark_merging import (
    AssignerWatermarks,
    NewGenerator,
    OperatorWatermarks,
    SplitWatermarkMultiplexer,
    StatusWatermarkValve,
    TwoInputWatermarks,
    WatermarkOutput,
)
from backstream.eventtime.watermarks import Watermarks

_MAX_TICKS = 200_000_000
"""Limit of ticks at which a custom generator is called; a year at 200 ms has fewer."""


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
    run = new_source_run(emission, clock, partitions, new_generator=new_generator)
    run.process(records)
    run.finish()
    return run.output


def new_source_run(
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[int],
    state: StreamState | None = None,
    new_generator: Callable[[], WatermarkGenerator] | None = None,
    output: Watermarks | None = None,
) -> SourceRun:
    """Return a run of a source that can stop and continue: at the begin of a stream, or at a cut.

    Args:
        emission: strategy, topology and model.
        clock: gives the ticks of the source's periodic emission. After a cut, its start is that of the first part.
        partitions: all partitions of the source, also those without records.
        state: the state at the cut; None: the stream begins.
        new_generator: creates custom generators instead of those of the strategy.
        output: receives the watermarks if given.

    Raises:
        SpecError: when a custom generator cannot be created, or when the clock has too many ticks.
    """
    output = Watermarks() if output is None else output
    if new_generator or emission.strategy.kind is StrategyKind.CUSTOM:
        new = new_generator or generator_factory(emission.strategy)
        emission = emission.with_custom_generator()
        quiet_ticks = idle_emit_ticks(CheckedGenerator(new()), clock, emission)
        run = _new_run(emission, clock, partitions, output, lambda _: CheckedGenerator(new()), quiet_ticks)
    else:
        run = _new_run(emission, clock, partitions, output, _new_builtin_generator(emission))
    if state is not None:
        run.restore(state)
    return run


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


def _given_ticks(given: GivenWatermarks, clock: SourceClock, first: int, last: int) -> Iterable[int]:
    """Return the ticks at which a watermark that was written down comes into force."""
    low = bisect_right(given.at_ms, clock.tick_ms(first - 1)) if first > 1 else 0
    high = bisect_right(given.at_ms, clock.tick_ms(last))
    ticks = (max(1, -((clock.start_ms - at_ms) // clock.interval_ms)) for at_ms in given.at_ms[low:high])
    return (tick for tick, _ in groupby(ticks))


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
    new_generator = new_generator or _new_builtin_generator(emission)
    run = _new_run(emission, clock, partitions, output, new_generator, quiet_ticks)
    run.process(records)
    run.finish()
    return output


def _new_run(
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[int],
    output: Watermarks,
    new_generator: NewGenerator,
    quiet_ticks: QuietTicks = _no_quiet_ticks,
) -> SourceRun:
    if emission.strategy.kind is StrategyKind.NONE:
        return SourceRun(emission, clock, (), output, quiet_ticks)
    if emission.sources:
        gate = (TwoInputWatermarks if emission.inputs is Inputs.OPERATOR else StatusWatermarkValve)(output)
        return SourceRun(emission, clock, _new_union_sources(emission, gate), output, quiet_ticks, gate)
    if given := emission.strategy.given:
        quiet_ticks = partial(_given_ticks, given, clock)
    if emission.topology is Topology.SUBTASKS and emission.model is not EmissionModel.MICRO_BATCH:
        gate = StatusWatermarkValve(output)
        sources = [_new_source(emission, [number], gate.new_channel(), new_generator) for number in partitions]
        return SourceRun(emission, clock, sources, output, quiet_ticks, gate)
    source = _new_source(emission, partitions, output, new_generator)
    return SourceRun(emission, clock, [source], output, quiet_ticks)


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


def _new_source(
    emission: Emission, partitions: Sequence[int], output: WatermarkOutput, new_generator: NewGenerator
) -> tuple[Source, Sequence[int]]:
    strategy = emission.strategy
    if emission.model is EmissionModel.MICRO_BATCH:
        return OperatorWatermarks(replace(strategy, idle_timeout_ms=0), new_generator, output), partitions
    if emission.is_assigner:
        return AssignerWatermarks(strategy, emission.tick_ms, emission.ticks_per_emission, output), partitions
    if emission.topology is Topology.OPERATOR:
        return OperatorWatermarks(strategy, new_generator, output), partitions
    return SplitWatermarkMultiplexer(strategy, partitions, new_generator, output), partitions
