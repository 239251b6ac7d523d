"""The watermark in force when each record of a recorded stream arrived, as Flink 2.3.0 would have had it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.core.errors import SpecError
from backstream.core.generators import Generator, Strategy, StrategyKind, generator_factory
from backstream.core.instants import MAX_MS, MIN_MS
from backstream.core.merging import Gate, OperatorSource, SplitSource
from backstream.core.records import Clock, Record


class Topology(StrEnum):
    """Where the watermarks of partitions meet."""

    SPLITS = "splits"
    """One source reads all partitions, one generator each."""
    SUBTASKS = "subtasks"
    """Each partition has a source of its own; they meet at the input gate."""
    OPERATOR = "operator"
    """One generator behind the source, for all partitions together."""


@dataclass(frozen=True, slots=True)
class Emission:
    """How watermarks come about.

    `releases_ended`: a partition leaves the merge after its last record (a bounded source's behaviour).
    `loses_final_when_idle`: Flink 2.3.0 as released, where a source that is idle at the end of its input
    never sends +inf (FLINK-40499).
    """

    strategy: Strategy
    topology: Topology = Topology.SPLITS
    releases_ended: bool = False
    loses_final_when_idle: bool = False


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

    def mark_idle(self) -> None:
        """The stream is announced idle."""
        if not self.is_idle:
            self.statuses.append(StatusEvent(is_idle=True, after=self._after, at_ms=self._at_ms))


Source = SplitSource | OperatorSource


def watermarks(
    records: Sequence[Record],
    emission: Emission,
    clock: Clock,
    partitions: Sequence[int],
    new_generator: Callable[[], Generator] | None = None,
) -> Watermarks:
    """Play the records through the source, tick by tick.

    Args:
        records: in arrival order.
        emission: strategy and topology.
        clock: when the source's periodic emission ticks.
        partitions: all that the source reads, also those that never deliver.
        new_generator: a user's own generator instead of the strategy's.

    Raises:
        SpecError: when a record arrives before the one before it.
    """
    heard = Watermarks()
    if emission.strategy.kind is StrategyKind.NONE:
        heard.in_force_ms = [MIN_MS] * len(records)
    else:
        _play(records, emission, clock, _sources(emission, partitions, heard, new_generator), heard)
    if not (emission.loses_final_when_idle and heard.is_idle and emission.topology is Topology.SPLITS):
        heard.at(len(records) - 1, clock.end_ms)
        heard.emit(MAX_MS)
        heard.is_final = True
    return heard


def _sources(
    emission: Emission,
    partitions: Sequence[int],
    heard: Watermarks,
    new_generator: Callable[[], Generator] | None,
) -> dict[int, Source]:
    """The source that reads each partition."""
    strategy, new = emission.strategy, new_generator or generator_factory(emission.strategy)
    if emission.topology is Topology.SUBTASKS:
        gate = Gate(heard)
        return {each: SplitSource(strategy, [each], new, gate.new_channel()) for each in partitions}
    source: Source = (
        SplitSource(strategy, partitions, new, heard)
        if emission.topology is Topology.SPLITS
        else OperatorSource(strategy, new, heard)
    )
    return dict.fromkeys(partitions, source)


def _play(
    records: Sequence[Record],
    emission: Emission,
    clock: Clock,
    source_of: dict[int, Source],
    heard: Watermarks,
) -> None:
    sources = list({id(source): source for source in source_of.values()}.values())
    last = {record.source_partition: number for number, record in enumerate(records)}
    done, has_new_data = 0, False

    def tick_until(tick: int, after: int) -> None:
        for each in _effective_ticks(done, tick, emission.strategy, sources, has_new_data=has_new_data):
            heard.at(after, clock.tick_ms(each))
            for source in sources:
                source.on_tick(each, clock.tick_ms(each))

    if emission.releases_ended:
        for partition in source_of.keys() - last.keys():
            source_of[partition].release(partition)
    for number, record in enumerate(records):
        if number and record.arrival_time_ms < records[number - 1].arrival_time_ms:
            msg = f"records must be in arrival order, got {record.arrival_time_ms} ms after a later one"
            raise SpecError(msg)
        before = clock.ticks_before(record.arrival_time_ms)
        if before > done:
            tick_until(before, number - 1)
            done, has_new_data = before, False
        heard.in_force_ms.append(heard.current_ms)
        heard.at(number, record.arrival_time_ms)
        source_of[record.source_partition].on_record(record, before + 1)
        has_new_data = True
        if emission.releases_ended and last[record.source_partition] == number:
            source_of[record.source_partition].release(record.source_partition)
    tick_until(clock.last_tick, len(records) - 1)


def _effective_ticks(
    done: int, until: int, strategy: Strategy, sources: Sequence[Source], *, has_new_data: bool
) -> Iterator[int]:
    """The ticks in `(done, until]` that can change anything; years of quiet ticks are skipped.

    Without new data only an idle timeout that runs out changes something, and the tick after it, at which
    idleness is announced. A time lag moves at every tick.
    """
    if strategy.kind is StrategyKind.TIME_LAG:
        yield from range(done + 1, until + 1)
        return
    wanted = {done + 1, done + 2} if has_new_data or done == 0 else set()
    for onset in set().union(*(source.onsets() for source in sources)):
        wanted |= {onset, onset + 1}
    yield from sorted(tick for tick in wanted if done < tick <= until)
