"""Merge the watermarks of partitions: in one source that reads them all, or at the gate behind several sources.

The rules are those of Flink 2.3.0: `WatermarkOutputMultiplexer` and `ProgressiveTimestampsAndWatermarks` for the
source, `StatusWatermarkValve` for the gate, `IndexedCombinedWatermarkStatus` for an operator with two inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Record
from backstream.eventtime.stream_state import (
    ChannelState,
    SourceState,
    SplitState,
    read_attributes,
    write_attributes,
)
from backstream.eventtime.watermark_generators import WatermarkGenerator, WatermarkStrategy

NewGenerator = Callable[[int | None], WatermarkGenerator]
"""Factory of a generator for a partition; None: for the output that no partition uses."""


class WatermarkOutput(Protocol):
    """A receiver of watermarks and idleness."""

    def emit(self, watermark_ms: int) -> None:
        """Receive a watermark; one that does not rise has no effect."""

    def mark_idle(self) -> None:
        """Receive idleness: no watermark is expected for now."""


@dataclass(slots=True)
class _Idleness:
    """A copy of Flink's idleness timer, which starts at the tick after the last tick with a record."""

    strategy: WatermarkStrategy
    last_data_tick: int = 0

    def is_over(self, tick: int) -> bool:
        timeout_ms = self.strategy.idle_timeout_ms
        return timeout_ms > 0 and (tick - self.last_data_tick - 1) * self.strategy.interval_ms > timeout_ms

    @property
    def onset_tick(self) -> int | None:
        """The first tick at which the timeout is over if no record arrives; None: it is never over."""
        timeout_ms, interval_ms = self.strategy.idle_timeout_ms, self.strategy.interval_ms
        if not timeout_ms or not interval_ms:
            return None
        return self.last_data_tick + timeout_ms // interval_ms + 2


@dataclass(slots=True)
class _Split:
    generator: WatermarkGenerator
    idleness: _Idleness
    watermark_ms: int = MIN_MS
    is_idle: bool = False

    def accept(self, watermark_ms: int | None) -> bool:
        """Update the watermark, end idleness even if it is lower, and return whether the watermark rises."""
        if watermark_ms is None:
            return False
        rises = watermark_ms > self.watermark_ms
        self.is_idle = False
        self.watermark_ms = max(self.watermark_ms, watermark_ms)
        return rises

    def snapshot(self, partition: int | None) -> SplitState:
        generator = read_attributes(self.generator, "watermark generator")
        return SplitState(partition, self.watermark_ms, self.is_idle, self.idleness.last_data_tick, generator)

    def restore(self, state: SplitState) -> None:
        self.watermark_ms, self.is_idle = state.watermark_ms, state.is_idle
        self.idleness.last_data_tick = state.last_data_tick
        write_attributes(self.generator, state.generator)


@dataclass(slots=True)
class SplitWatermarkMultiplexer:
    """One source that reads several partitions, each with its own generator from the start.

    The source has one more generator, for the main output, which no record uses. It has two effects. A generator
    that emits without records, such as a time lag, also emits there. And the source is idle only when the main
    output is idle as well.
    """

    strategy: WatermarkStrategy
    partitions: Sequence[int]
    new_generator: NewGenerator
    downstream: WatermarkOutput
    _splits: dict[int, _Split] = field(default_factory=dict)
    _main: WatermarkGenerator = field(init=False)
    _merged_ms: int = MIN_MS
    _are_splits_idle: bool = True
    _is_main_idle: bool = True

    def __post_init__(self) -> None:
        for partition in self.partitions:
            self._splits[partition] = _Split(self.new_generator(partition), _Idleness(self.strategy))
        self._main = self.new_generator(None)

    def on_record(self, record: Record, seen_by_tick: int) -> None:
        """Process a record that was emitted downstream."""
        split = self._splits[record.source_partition]
        split.idleness.last_data_tick = seen_by_tick
        if split.accept(split.generator.on_event(record)):
            self._merge()

    def on_tick(self, tick: int, now_ms: int) -> None:
        """Process a tick: every partition first, then one merge, then the main output."""
        for split in self._splits.values():
            if split.idleness.is_over(tick):
                split.is_idle = True
            else:
                split.accept(split.generator.on_periodic_emit(now_ms))
        self._merge()
        self._tick_main(tick, now_ms)

    def release(self, partition: int) -> None:
        """Remove a finished partition from the merge."""
        self._splits.pop(partition, None)

    def idle_onset_ticks(self) -> set[int]:
        """Return the ticks at which a partition, or the main output, becomes idle if no record arrives."""
        main = _Idleness(self.strategy)
        timers = [main, *(split.idleness for split in self._splits.values())]
        return {tick for timer in timers if (tick := timer.onset_tick) is not None}

    def snapshot(self) -> SourceState:
        """Return the state of all partitions that have not finished."""
        return SourceState(
            tuple(split.snapshot(partition) for partition, split in self._splits.items()),
            self._merged_ms,
            self._are_splits_idle,
            self._is_main_idle,
            read_attributes(self._main, "watermark generator"),
        )

    def restore(self, state: SourceState) -> None:
        """Restore a state; partitions that it lacks have finished."""
        remaining = {split.partition for split in state.splits}
        for partition in set(self._splits) - remaining:
            self.release(partition)
        for split in state.splits:
            if split.partition in self._splits:
                self._splits[split.partition].restore(split)
        self._merged_ms = state.merged_ms
        self._are_splits_idle, self._is_main_idle = state.are_splits_idle, state.is_main_idle
        write_attributes(self._main, state.main_generator)

    def _merge(self) -> None:
        if not self._splits:
            return
        active = [split.watermark_ms for split in self._splits.values() if not split.is_idle]
        # If all are idle, the maximum counts (FLINK-38454), so that the slowest does not hold the stream back.
        candidate_ms = min(active) if active else max(split.watermark_ms for split in self._splits.values())
        if candidate_ms > self._merged_ms:
            self._merged_ms = candidate_ms
            self._are_splits_idle = False
            self.downstream.emit(candidate_ms)
        if not active:
            self._are_splits_idle = True
            self._announce_idleness()

    def _tick_main(self, tick: int, now_ms: int) -> None:
        if _Idleness(self.strategy).is_over(tick):
            self._is_main_idle = True
            self._announce_idleness()
            return
        watermark_ms = self._main.on_periodic_emit(now_ms)
        if watermark_ms is not None:
            self._is_main_idle = False
            self.downstream.emit(watermark_ms)

    def _announce_idleness(self) -> None:
        if self._are_splits_idle and self._is_main_idle:
            self.downstream.mark_idle()


@dataclass(slots=True)
class OperatorWatermarks:
    """One generator behind a source, for all partitions together."""

    strategy: WatermarkStrategy
    new_generator: NewGenerator
    downstream: WatermarkOutput
    _split: _Split = field(init=False)

    def __post_init__(self) -> None:
        self._split = _Split(self.new_generator(None), _Idleness(self.strategy))

    def on_record(self, record: Record, seen_by_tick: int) -> None:
        """Process a record that was emitted downstream."""
        self._split.idleness.last_data_tick = seen_by_tick
        if self._split.accept(self._split.generator.on_event(record)):
            self.downstream.emit(self._split.watermark_ms)

    def on_tick(self, tick: int, now_ms: int) -> None:
        """Process a tick."""
        if self._split.idleness.is_over(tick):
            self._split.is_idle = True
            self.downstream.mark_idle()
        elif self._split.accept(self._split.generator.on_periodic_emit(now_ms)):
            self.downstream.emit(self._split.watermark_ms)

    def release(self, partition: int) -> None:
        """Do nothing: the generator does not distinguish partitions."""

    def idle_onset_ticks(self) -> set[int]:
        """Return the ticks at which the generator becomes idle if no record arrives."""
        onset_tick = self._split.idleness.onset_tick
        return set() if onset_tick is None else {onset_tick}

    def snapshot(self) -> SourceState:
        """Return the state of the generator."""
        return SourceState((self._split.snapshot(None),))

    def restore(self, state: SourceState) -> None:
        """Restore the state of the generator."""
        self._split.restore(state.splits[0])


@dataclass(slots=True)
class AssignerWatermarks:
    """The operator of Flink SQL's plan behind a source that makes no watermarks (`WatermarkAssignerOperator`).

    Its watermark starts at 0. It is sent at each emission tick, and right after a record if it has risen by more
    than the interval. One that is sent while the operator is idle is lost, and counts as sent. A record ends
    idleness.
    """

    strategy: WatermarkStrategy
    tick_ms: int
    ticks_per_emission: int
    downstream: WatermarkOutput
    _watermark_ms: int = 0
    _sent_ms: int = 0
    _is_idle: bool = False
    _last_data_tick: int = 0

    def on_record(self, record: Record, seen_by_tick: int) -> None:
        """Process a record that was emitted downstream."""
        self._is_idle, self._last_data_tick = False, seen_by_tick
        self._watermark_ms = max(self._watermark_ms, record.event_time_ms - self.strategy.delay_ms)
        if self._watermark_ms - self._sent_ms > self.strategy.interval_ms:
            self._send()

    def on_tick(self, tick: int, now_ms: int) -> None:
        """Process a tick of the timer: first the emission, then idleness."""
        if tick % self.ticks_per_emission == 0:
            self._send()
        onset_tick = self._onset_tick
        if onset_tick is not None and tick >= onset_tick:
            self._is_idle = True
            self.downstream.mark_idle()

    def release(self, partition: int) -> None:
        """Do nothing: the operator does not distinguish partitions."""

    def idle_onset_ticks(self) -> set[int]:
        """Return the ticks that have an effect without records: the next emission, and the begin of idleness."""
        emission_tick = -(-self._last_data_tick // self.ticks_per_emission) * self.ticks_per_emission
        return {emission_tick, *(() if self._onset_tick is None else (self._onset_tick,))}

    def snapshot(self) -> SourceState:
        """Return the state of the operator."""
        generator = {"watermark_ms": self._watermark_ms}
        return SourceState((SplitState(None, self._sent_ms, self._is_idle, self._last_data_tick, generator),))

    def restore(self, state: SourceState) -> None:
        """Restore the state of the operator."""
        split = state.splits[0]
        self._sent_ms, self._is_idle = split.watermark_ms, split.is_idle
        self._last_data_tick, self._watermark_ms = split.last_data_tick, split.generator["watermark_ms"]

    @property
    def _onset_tick(self) -> int | None:
        if not self.strategy.idle_timeout_ms or not self.tick_ms:
            return None
        return self._last_data_tick + -(-self.strategy.idle_timeout_ms // self.tick_ms)

    def _send(self) -> None:
        if self._watermark_ms <= self._sent_ms:
            return
        self._sent_ms = self._watermark_ms
        if not self._is_idle:
            self.downstream.emit(self._sent_ms)


@dataclass(slots=True)
class _Channel:
    """An input of the gate; only aligned channels take part in the minimum.

    `follows_clock`: the source of the channel emits a time lag at each tick while it is active.
    """

    gate: StatusWatermarkValve
    follows_clock: bool = False
    watermark_ms: int = MIN_MS
    is_idle: bool = False
    is_aligned: bool = True

    def emit(self, watermark_ms: int) -> None:
        if watermark_ms > self.watermark_ms:
            self.gate.on_rise(self, watermark_ms)

    def mark_idle(self) -> None:
        if not self.is_idle:
            self.gate.on_idle(self)


@dataclass(slots=True)
class StatusWatermarkValve:
    """The input gate behind several sources.

    A channel that resumes behind the gate's watermark does not take part until it has caught up. So it does not
    hold the other channels back.
    """

    downstream: WatermarkOutput
    channels: list[_Channel] = field(default_factory=list)
    _merged_ms: int = MIN_MS

    def new_channel(self, *, follows_clock: bool = False) -> WatermarkOutput:
        """Add and return an input."""
        channel = _Channel(self, follows_clock)
        self.channels.append(channel)
        return channel

    @property
    def follows_clock(self) -> bool:
        """Return whether the source of an input emits a time lag."""
        return any(channel.follows_clock for channel in self.channels)

    @property
    def is_held(self) -> bool:
        """Return whether only new data or idleness can raise the minimum."""
        return any(
            channel.is_aligned and not channel.follows_clock and channel.watermark_ms == self._merged_ms
            for channel in self.channels
        )

    def on_rise(self, channel: _Channel, watermark_ms: int) -> None:
        """Raise the watermark of a channel; nothing else ends its idleness."""
        if channel.is_idle:
            channel.is_idle = False
            channel.is_aligned = channel.watermark_ms >= self._merged_ms
        channel.watermark_ms = watermark_ms
        channel.is_aligned = channel.is_aligned or watermark_ms >= self._merged_ms
        self._emit_minimum()

    def on_idle(self, channel: _Channel) -> None:
        """Mark a channel as idle.

        If it was the slowest, the gate emits the new minimum. If all channels are idle now, it emits their maximum
        instead.
        """
        channel.is_idle, channel.is_aligned = True, False
        was_slowest = channel.watermark_ms == self._merged_ms
        if all(other.is_idle for other in self.channels):
            if was_slowest:
                self._emit(max(other.watermark_ms for other in self.channels))
            self.downstream.mark_idle()
        elif was_slowest:
            self._emit_minimum()

    def finish(self) -> None:
        """Receive the end of each input, one after the other."""
        for channel in self.channels:
            channel.emit(MAX_MS)

    @property
    def merged_ms(self) -> int:
        """The last watermark that the gate emitted."""
        return self._merged_ms

    def snapshot(self) -> tuple[ChannelState, ...]:
        """Return the state of each input; `merged_ms` is the rest of the gate's state."""
        return tuple(
            ChannelState(channel.watermark_ms, channel.is_idle, channel.is_aligned) for channel in self.channels
        )

    def restore(self, states: Sequence[ChannelState], merged_ms: int) -> None:
        """Restore the state of each input."""
        self._merged_ms = merged_ms
        for channel, state in zip(self.channels, states, strict=True):
            channel.watermark_ms, channel.is_idle = state.watermark_ms, state.is_idle
            channel.is_aligned = state.is_aligned

    def _emit_minimum(self) -> None:
        aligned = [channel.watermark_ms for channel in self.channels if channel.is_aligned]
        self._emit(min(aligned, default=MIN_MS))

    def _emit(self, watermark_ms: int) -> None:
        if watermark_ms > self._merged_ms:
            self._merged_ms = watermark_ms
            self.downstream.emit(watermark_ms)


@dataclass(slots=True)
class TwoInputWatermarks(StatusWatermarkValve):
    """The watermark of an operator with two inputs, e.g., a join.

    In contrast to a gate, an input that becomes active again counts at once, so it can hold the other one back.
    """

    def on_rise(self, channel: _Channel, watermark_ms: int) -> None:
        """Raise the watermark of an input, which also ends its idleness."""
        channel.is_idle, channel.is_aligned, channel.watermark_ms = False, True, watermark_ms
        self._emit_minimum()

    def on_idle(self, channel: _Channel) -> None:
        """Mark an input as idle; if all are idle, the maximum counts."""
        channel.is_idle, channel.is_aligned = True, False
        if all(other.is_idle for other in self.channels):
            self._emit(max(other.watermark_ms for other in self.channels))
            self.downstream.mark_idle()
        else:
            self._emit_minimum()
