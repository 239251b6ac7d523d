"""The watermark in force when each record of a recorded stream arrived, as Flink 2.3.0 would have had it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from heapq import merge
from itertools import chain, groupby, pairwise

from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS, wrap_int64
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import (
    CheckedGenerator,
    MicroBatchWatermarks,
    OnEventWatermarks,
    StrategyKind,
    WatermarkGenerator,
    WatermarkStrategy,
    generator_factory,
)
from backstream.eventtime.watermark_merging import (
    NewGenerator,
    OperatorWatermarks,
    SplitWatermarkMultiplexer,
    StatusWatermarkValve,
)


class Topology(StrEnum):
    """Where the watermarks of partitions meet."""

    SPLITS = "splits"
    """One source reads all partitions, one generator each."""
    SUBTASKS = "subtasks"
    """Each partition has a source of its own; they meet at the input gate."""
    OPERATOR = "operator"
    """One generator behind the source, for all partitions together."""


class EmissionModel(StrEnum):
    """When watermarks move."""

    TICK = "periodic"
    """At each tick of the source's clock, as in Flink."""
    RECORD = "on_event"
    """After each record, which never sees its own watermark. Idleness is noticed at ticks all the same."""
    MICRO_BATCH = "micro_batch"
    """Between batches of arrivals, as in Spark Structured Streaming.

    A tick of the clock ends a batch. All partitions together have one maximum, and topology and idleness mean
    nothing. Late events of a batch are judged by the maximum of the batches before the last one: Spark 4.3 fires
    windows by the watermark of the last batch, but judges by the one that batch began with. Where Structured
    Streaming differs: its first watermark is 1970-01-01, it never sends +inf, so the windows still open at the end
    do not fire; and batches of `Trigger.AvailableNow` follow each other without the empty ones that a clock has.
    """


_MAXIMA = (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)
MOST_EVENTS = 1_000_000
"""How many watermarks that merely follow the clock are listed one by one."""
MOST_TICKS = 200_000_000
"""How often a user's generator is called at ticks; a year at 200 ms is fewer."""


@dataclass(frozen=True, slots=True)
class Emission:
    """How watermarks come about.

    `releases_ended`: a partition leaves the merge after its last record (a bounded source's behaviour).
    `loses_final_when_idle`: Flink 2.3.0 as released, where a source that is idle at the end of its input
    never sends +inf (FLINK-40499).
    """

    strategy: WatermarkStrategy
    topology: Topology = Topology.SPLITS
    drops_finished_splits: bool = False
    suppresses_final_when_idle: bool = False
    model: EmissionModel = EmissionModel.TICK

    def __post_init__(self) -> None:
        if self.model is not EmissionModel.TICK and self.strategy.kind not in _MAXIMA:
            kind = self.strategy.kind.value
            msg = f"emission per {self.model.value} needs monotonous or bounded watermarks, got {kind}"
            raise SpecError(msg)

    @property
    def delay_ms(self) -> int:
        """How far the watermark stays behind the greatest event time, or the clock."""
        return 0 if self.strategy.kind is StrategyKind.MONOTONOUS else self.strategy.delay_ms

    def with_custom_generator(self) -> Emission:
        """The same with a user's own generator."""
        return replace(self, strategy=replace(self.strategy, kind=StrategyKind.CUSTOM))


def too_many_watermarks_error(count: int) -> SpecError:
    """The error of a watermark that follows the clock for too long."""
    return SpecError(
        f"a time lag moves the watermark at every tick: {count:,} rises are too many to list, "
        f"{MOST_EVENTS:,} at most\n\nhint: a longer interval, or an earlier end of the clock"
    )


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    """A new watermark, after the record numbered `after` (-1: before the first)."""

    watermark_ms: int
    after: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """The stream became idle, or active again."""

    is_idle: bool
    after: int
    at_ms: int


@dataclass(slots=True)
class Watermarks:
    """Everything the source announced: watermarks strictly rise; `in_force_ms[i]` is what record i met."""

    events: list[WatermarkEvent] = field(default_factory=list)
    statuses: list[StatusEvent] = field(default_factory=list)
    in_force_ms: list[int] = field(default_factory=list)
    is_final: bool = False
    """Whether +inf arrived at the end."""
    _after: int = -1
    _at_ms: int = 0

    @property
    def current_ms(self) -> int:
        """The watermark now."""
        return self.events[-1].watermark_ms if self.events else MIN_MS

    @property
    def is_idle(self) -> bool:
        """Whether the stream is announced idle now."""
        return bool(self.statuses) and self.statuses[-1].is_idle

    def at(self, after: int, at_ms: int) -> None:
        """Move on: what is announced from here on comes after that record, at that time."""
        self._after, self._at_ms = after, at_ms

    def emit(self, watermark_ms: int) -> None:
        """A watermark arrives; one that does not rise is ignored, and does not end idleness either."""
        if watermark_ms <= self.current_ms:
            return
        if self.is_idle:
            self.statuses.append(StatusEvent(is_idle=False, after=self._after, at_ms=self._at_ms))
        self.events.append(WatermarkEvent(watermark_ms, self._after, self._at_ms))

    def climb(self, ticks: range, clock: SourceClock, delay_ms: int) -> None:
        """At each of these ticks the watermark is the clock less the delay, and nothing else happens.

        Raises:
            SpecError: when they are too many to be listed.
        """
        if len(self.events) + len(ticks) > MOST_EVENTS:
            raise too_many_watermarks_error(len(self.events) + len(ticks))
        for tick in ticks:
            self._at_ms = clock.tick_ms(tick)
            self.emit(wrap_int64(self._at_ms - delay_ms))

    def mark_idle(self) -> None:
        """The stream is announced idle."""
        if not self.is_idle:
            self.statuses.append(StatusEvent(is_idle=True, after=self._after, at_ms=self._at_ms))


Source = SplitWatermarkMultiplexer | OperatorWatermarks


QuietTicks = Callable[[int, int], Iterable[int]]
"""Ticks from the first to the last given, ascending, that matter though nothing arrived since the tick before."""


def compute_watermarks(
    records: Sequence[Record],
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[int],
    new_generator: Callable[[], WatermarkGenerator] | None = None,
) -> Watermarks:
    """Play the records through the source, tick by tick.

    Args:
        records: in arrival order.
        emission: strategy and topology.
        clock: when the source's periodic emission ticks.
        partitions: all that the source reads, also those that never deliver.
        new_generator: makes a user's own generators instead of the strategy's.

    Raises:
        SpecError: when a record arrives before the one before it, when a user's generator fails, or when the
            clock ticks more often than can be played.
    """
    if new_generator or emission.strategy.kind is StrategyKind.CUSTOM:
        new = new_generator or generator_factory(emission.strategy)
        emission = emission.with_custom_generator()
        quiet = idle_emit_ticks(CheckedGenerator(new()), clock, emission)
        return run_source(records, emission, clock, partitions, lambda _: CheckedGenerator(new()), quiet)
    new = new_builtin_generator(emission)
    return run_source(records, emission, clock, partitions, lambda _: new())


def idle_emit_ticks(generator: CheckedGenerator, clock: SourceClock, emission: Emission) -> QuietTicks:
    """The quiet ticks at which a user's generator is called: all of them, unless it is steady.

    Raises:
        SpecError: when they may be too many.
    """
    if generator.is_steady:
        return _no_quiet_ticks
    if clock.last_tick > MOST_TICKS and not emission.strategy.idle_timeout_ms:
        msg = (
            f"a watermark generator cannot be called at {clock.last_tick:,} ticks, {MOST_TICKS:,} at most\n\n"
            "hint: a longer interval, an idle timeout, or `is_steady = True` in its class"
        )
        raise SpecError(msg)
    return lambda first, last: range(first, last + 1)


def _no_quiet_ticks(*_: int) -> Iterable[int]:
    return ()


def new_builtin_generator(emission: Emission) -> Callable[[], WatermarkGenerator]:
    """What makes the generators of a built-in strategy, as the emission model has them."""
    if emission.model is EmissionModel.RECORD:
        return partial(OnEventWatermarks, emission.delay_ms)
    if emission.model is EmissionModel.MICRO_BATCH:
        return partial(MicroBatchWatermarks, emission.delay_ms)
    return generator_factory(emission.strategy)


def run_source(
    records: Sequence[Record],
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[int],
    new_generator: NewGenerator,
    quiet_ticks: QuietTicks = _no_quiet_ticks,
    heard: Watermarks | None = None,
) -> Watermarks:
    """Play records through a source with any generators; `watermarks` and its Spark twin rest on this."""
    heard = Watermarks() if heard is None else heard
    if emission.strategy.kind is StrategyKind.NONE:
        heard.in_force_ms = [MIN_MS] * len(records)
    else:
        sources = _sources(emission, partitions, heard, new_generator)
        _Play(emission, clock, sources, heard, quiet_ticks).play(records)
    if not (emission.suppresses_final_when_idle and heard.is_idle and emission.topology is Topology.SPLITS):
        heard.at(len(records) - 1, clock.end_ms)
        heard.emit(MAX_MS)
        heard.is_final = True
    return heard


def _sources(
    emission: Emission, partitions: Sequence[int], heard: Watermarks, new_generator: NewGenerator
) -> dict[int, Source]:
    """The source that reads each partition."""
    strategy = emission.strategy
    if emission.model is EmissionModel.MICRO_BATCH:
        batches = OperatorWatermarks(replace(strategy, idle_timeout_ms=0), new_generator, heard)
        return dict.fromkeys(partitions, batches)
    if emission.topology is Topology.SUBTASKS:
        gate = StatusWatermarkValve(heard)
        return {
            each: SplitWatermarkMultiplexer(strategy, [each], new_generator, gate.new_channel())
            for each in partitions
        }
    source: Source = (
        SplitWatermarkMultiplexer(strategy, partitions, new_generator, heard)
        if emission.topology is Topology.SPLITS
        else OperatorWatermarks(strategy, new_generator, heard)
    )
    return dict.fromkeys(partitions, source)


@dataclass(slots=True)
class _Play:
    """The source's clock and its records, in step. `ticked` is the last tick that happened."""

    emission: Emission
    clock: SourceClock
    source_of: dict[int, Source]
    heard: Watermarks
    quiet_ticks: QuietTicks
    ticked: int = 0
    has_new_data: bool = False
    sources: list[Source] = field(init=False)

    def __post_init__(self) -> None:
        self.sources = list({id(source): source for source in self.source_of.values()}.values())

    def play(self, records: Sequence[Record]) -> None:
        last = {record.source_partition: number for number, record in enumerate(records)}
        if self.emission.drops_finished_splits:
            for partition in self.source_of.keys() - last.keys():
                self.source_of[partition].release(partition)
        arrived_ms = MIN_MS
        for number, record in enumerate(records):
            if record.arrival_time_ms < arrived_ms:
                msg = f"records must be in arrival order, got {record.arrival_time_ms} ms after a later one"
                raise SpecError(msg)
            arrived_ms = record.arrival_time_ms
            self._on_record(number, record)
            if self.emission.drops_finished_splits and last[record.source_partition] == number:
                self.source_of[record.source_partition].release(record.source_partition)
        self._tick_until(self.clock.last_tick, len(records) - 1)

    def _on_record(self, number: int, record: Record) -> None:
        before = self.clock.ticks_before(record.arrival_time_ms)
        self._tick_until(before, number - 1)
        self.heard.in_force_ms.append(self.heard.current_ms)
        self.heard.at(number, record.arrival_time_ms)
        self.source_of[record.source_partition].on_record(record, before + 1)
        self.has_new_data = True

    def _tick_until(self, until: int, after: int) -> None:
        if until <= self.ticked:
            return
        for tick, following in pairwise(chain(self._effective_ticks(until), [until + 1])):
            now_ms = self.clock.tick_ms(tick)
            self.heard.at(after, now_ms)
            for source in self.sources:
                source.on_tick(tick, now_ms)
            if self.emission.strategy.kind is StrategyKind.TIME_LAG:
                self._climb(range(tick + 1, following))
        self.ticked, self.has_new_data = until, False

    def _climb(self, ticks: range) -> None:
        """A time lag that moved the watermark at the tick before moves it at each of these as well."""
        delay_ms = self.emission.delay_ms
        before_ms = self.clock.tick_ms(ticks.start - 1)
        if ticks and self.heard.current_ms == wrap_int64(before_ms - delay_ms):
            self.heard.climb(ticks, self.clock, delay_ms)

    def _effective_ticks(self, until: int) -> Iterable[int]:
        """The ticks in `(ticked, until]` that can change anything; years of quiet ticks are skipped.

        Without new data only an idle timeout that runs out changes something, and the tick after it, at which
        idleness is announced; and what the generators themselves do at quiet ticks.
        """
        first = self.ticked + 1
        wanted = {first, first + 1} if self.has_new_data or not self.ticked else set()
        onsets = set().union(*(source.idle_onset_ticks() for source in self.sources))
        for onset in onsets:
            wanted |= {onset, onset + 1}
        # Once all are idle, no generator is called.
        quiet = self.quiet_ticks(first, min(until, max(onsets, default=until) + 1))
        ticks = merge(sorted(tick for tick in wanted if first <= tick <= until), quiet)
        return (tick for tick, _ in groupby(ticks))
