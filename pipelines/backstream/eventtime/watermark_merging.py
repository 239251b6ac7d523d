"""Merging the watermarks of partitions: in one source that reads them all, or at a gate behind several.

The rules are those of Flink 2.3.0: `WatermarkOutputMultiplexer` and `ProgressiveTimestampsAndWatermarks` for
the source, `StatusWatermarkValve` for the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record
from backstream.eventtime.watermark_generators import WatermarkGenerator, WatermarkStrategy

NewGenerator = Callable[[int | None], WatermarkGenerator]
"""Makes the generator of a partition; None: the one that no partition has for its own."""


class WatermarkOutput(Protocol):
    """What receives watermarks and idleness."""

    def emit(self, watermark_ms: int) -> None:
        """A watermark; one that does not rise has no effect."""

    def mark_idle(self) -> None:
        """No watermark is to be expected for now."""


@dataclass(slots=True)
class _Idleness:
    """Flink's stop watch: started by the tick after the last one that saw a record."""

    strategy: WatermarkStrategy
    last_data_tick: int = 0

    def is_over(self, tick: int) -> bool:
        timeout_ms = self.strategy.idle_timeout_ms
        return timeout_ms > 0 and (tick - self.last_data_tick - 1) * self.strategy.interval_ms > timeout_ms


@dataclass(slots=True)
class _Split:
    generator: WatermarkGenerator
    idleness: _Idleness
    watermark_ms: int = MIN_MS
    is_idle: bool = False

    def accept(self, watermark_ms: int | None) -> bool:
        """Take a watermark, which ends idleness even when it is a lower one. Whether it rises."""
        if watermark_ms is None:
            return False
        rises = watermark_ms > self.watermark_ms
        self.is_idle = False
        self.watermark_ms = max(self.watermark_ms, watermark_ms)
        return rises


@dataclass(slots=True)
class SplitWatermarkMultiplexer:
    """One source that reads several partitions, each with its own generator from the start.

    The source has one more generator, for an output that no record uses. It matters twice: what needs no record to
    emit, such as a time lag, emits there too; and the source counts as idle only when that output is idle as well.
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
        """A record was handed on."""
        split = self._splits[record.source_partition]
        split.idleness.last_data_tick = seen_by_tick
        if split.accept(split.generator.on_event(record)):
            self._merge()

    def on_tick(self, tick: int, now_ms: int) -> None:
        """The clock ticks: every partition first, then one merge, then the unused output."""
        for split in self._splits.values():
            if split.idleness.is_over(tick):
                split.is_idle = True
            else:
                split.accept(split.generator.on_periodic_emit(now_ms))
        self._merge()
        self._tick_main(tick, now_ms)

    def release(self, partition: int) -> None:
        """The partition has ended: it takes part no longer."""
        self._splits.pop(partition, None)

    def idle_onset_ticks(self) -> set[int]:
        """Ticks at which some partition, or the unused output, becomes idle if nothing arrives."""
        if not self.strategy.idle_timeout_ms or not self.strategy.interval_ms:
            return set()
        wait = self.strategy.idle_timeout_ms // self.strategy.interval_ms + 2
        return {wait} | {split.idleness.last_data_tick + wait for split in self._splits.values()}

    def _merge(self) -> None:
        if not self._splits:
            return
        active = [split.watermark_ms for split in self._splits.values() if not split.is_idle]
        # All idle: the maximum (FLINK-38454), so that what was waiting for the slowest goes on.
        candidate_ms = min(active) if active else max(split.watermark_ms for split in self._splits.values())
        if candidate_ms > self._merged_ms:
            self._merged_ms = candidate_ms
            self._are_splits_idle = False
            self.downstream.emit(candidate_ms)
        elif not active:
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
        """A record was handed on."""
        self._split.idleness.last_data_tick = seen_by_tick
        if self._split.accept(self._split.generator.on_event(record)):
            self.downstream.emit(self._split.watermark_ms)

    def on_tick(self, tick: int, now_ms: int) -> None:
        """The clock ticks."""
        if self._split.idleness.is_over(tick):
            self._split.is_idle = True
            self.downstream.mark_idle()
        elif self._split.accept(self._split.generator.on_periodic_emit(now_ms)):
            self.downstream.emit(self._split.watermark_ms)

    def release(self, partition: int) -> None:
        """A partition's end means nothing here."""

    def idle_onset_ticks(self) -> set[int]:
        """Ticks at which the generator becomes idle if nothing arrives."""
        if not self.strategy.idle_timeout_ms or not self.strategy.interval_ms:
            return set()
        wait = self.strategy.idle_timeout_ms // self.strategy.interval_ms + 2
        return {self._split.idleness.last_data_tick + wait}


@dataclass(slots=True)
class _Channel:
    """One input of the gate. It takes part in the minimum while it is aligned."""

    gate: StatusWatermarkValve
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

    A channel that resumes behind the gate's watermark is left out until it has caught up, so the others go on.
    """

    downstream: WatermarkOutput
    channels: list[_Channel] = field(default_factory=list)
    _merged_ms: int = MIN_MS

    def new_channel(self) -> WatermarkOutput:
        """One more input."""
        channel = _Channel(self)
        self.channels.append(channel)
        return channel

    def on_rise(self, channel: _Channel, watermark_ms: int) -> None:
        """A channel's watermark rises; only this ends its idleness."""
        if channel.is_idle:
            channel.is_idle = False
            channel.is_aligned = channel.watermark_ms >= self._merged_ms
        channel.watermark_ms = watermark_ms
        channel.is_aligned = channel.is_aligned or watermark_ms >= self._merged_ms
        self._emit_minimum()

    def on_idle(self, channel: _Channel) -> None:
        """A channel goes idle: a new minimum, or with the last one the maximum, if it was the slowest."""
        channel.is_idle, channel.is_aligned = True, False
        was_slowest = channel.watermark_ms == self._merged_ms
        if all(each.is_idle for each in self.channels):
            if was_slowest:
                self._emit(max(each.watermark_ms for each in self.channels))
            self.downstream.mark_idle()
        elif was_slowest:
            self._emit_minimum()

    def _emit_minimum(self) -> None:
        aligned = [channel.watermark_ms for channel in self.channels if channel.is_aligned]
        self._emit(min(aligned, default=MIN_MS))

    def _emit(self, watermark_ms: int) -> None:
        if watermark_ms > self._merged_ms:
            self._merged_ms = watermark_ms
            self.downstream.emit(watermark_ms)
