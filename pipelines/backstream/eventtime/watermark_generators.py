"""Watermark generators: what one partition claims about the events it has yet to deliver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol

from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS, instant_text, wrap_int64
from backstream.eventtime.records import Record


class StrategyKind(StrEnum):
    """How watermarks follow from events."""

    NONE = "none"
    MONOTONOUS = "monotonous"
    BOUNDED = "bounded_out_of_orderness"
    PUNCTUATED = "punctuated"
    TIME_LAG = "time_lag"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """A generator and how it is run.

    `idle_timeout_ms` 0: a silent partition is never idle. `generator` and `options` are those of a custom one.
    """

    kind: StrategyKind
    delay_ms: int = 0
    interval_ms: int = 200
    idle_timeout_ms: int = 0
    generator: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("delay_ms", "interval_ms", "idle_timeout_ms"):
            value_ms = getattr(self, name)
            if value_ms < 0:
                msg = f"watermark {name.removesuffix('_ms')} must not be negative, got {value_ms} ms"
                raise SpecError(msg)


class WatermarkGenerator(Protocol):
    """Flink's two hooks. Each returns a watermark to emit, or None; a lower one than before has no effect.

    One of a user's own may rest on the record's arrival, event time and marker, and on nothing outside itself. If
    its class says `is_steady = True`, then between two records `on_periodic_emit` keeps saying the same whatever
    the time, so quiet ticks are skipped; else it is called at every tick.
    """

    def on_event(self, record: Record) -> int | None:
        """Called after each record was handed on, so a record is never late by its own watermark."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Called at each tick of the clock."""


@dataclass(slots=True)
class BoundedOutOfOrdernessWatermarks:
    """`max(event time) - delay - 1`: later ones may still come with the greatest time seen minus the delay."""

    delay_ms: int
    _max_ms: int = MIN_MS

    def __post_init__(self) -> None:
        self._max_ms = MIN_MS + self.delay_ms + 1  # so that the first watermark does not wrap below -inf

    def on_event(self, record: Record) -> None:
        """Remember the greatest event time."""
        self._max_ms = max(self._max_ms, record.event_time_ms)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Emit it, less the delay."""
        return self._max_ms - self.delay_ms - 1


@dataclass(slots=True)
class PunctuatedWatermarks:
    """The watermark a marker record carries, right after that record; no -1 is taken off."""

    delay_ms: int

    def on_event(self, record: Record) -> int | None:
        """Emit what the marker says."""
        if record.marker is None or record.marker is False:
            return None
        if record.marker is True:
            return wrap_int64(record.event_time_ms - self.delay_ms)
        return record.marker

    def on_periodic_emit(self, now_ms: int) -> None:
        """Nothing."""


@dataclass(slots=True)
class TimeLagWatermarks:
    """The source's clock less the delay, whatever the events say."""

    delay_ms: int

    def on_event(self, record: Record) -> None:
        """Nothing."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Emit the clock, less the delay."""
        return wrap_int64(now_ms - self.delay_ms)


@dataclass(slots=True)
class OnEventWatermarks:
    """What `Bounded` would emit, right after each record instead of at ticks."""

    delay_ms: int
    _max_ms: int = MIN_MS

    def __post_init__(self) -> None:
        self._max_ms = MIN_MS + self.delay_ms + 1

    def on_event(self, record: Record) -> int | None:
        """Emit the greatest event time, less the delay and one."""
        self._max_ms = max(self._max_ms, record.event_time_ms)
        return self._max_ms - self.delay_ms - 1

    def on_periodic_emit(self, now_ms: int) -> None:
        """Nothing."""


@dataclass(slots=True)
class MicroBatchWatermarks:
    """What `Bounded` would emit, one batch later: a tick ends a batch, and says what the batches before it held.

    Spark Structured Streaming, which this repeats, lets a batch's late events be judged by the watermark that the
    batch before it began with.
    """

    delay_ms: int
    _earlier_ms: int = MIN_MS
    _batch_ms: int = MIN_MS

    def on_event(self, record: Record) -> None:
        """Remember the greatest event time of the batch."""
        self._batch_ms = max(self._batch_ms, record.event_time_ms)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Emit the greatest event time of the batches before this one, less the delay and one."""
        emitted_ms = self._earlier_ms
        self._earlier_ms = max(self._earlier_ms, self._batch_ms)
        return max(emitted_ms - self.delay_ms - 1, MIN_MS)


@dataclass(slots=True)
class NoWatermarks:
    """No watermark but the final one."""

    def on_event(self, record: Record) -> None:
        """Nothing."""

    def on_periodic_emit(self, now_ms: int) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class CustomWatermarks:
    """Makes a user's own generators: `target` is `package.module:Class`, `options` are its keyword arguments.

    It names the class and does not hold it, so that it can travel to where the module can be imported.
    """

    target: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> WatermarkGenerator:
        """A new generator.

        Raises:
            SpecError: when the class cannot be imported, lacks a hook, or does not take the options.
        """
        made = self._class()
        try:
            inspect.signature(made).bind(**self.options)
        except TypeError as error:
            msg = f"watermark generator {self.target} does not take the options {dict(self.options)}: {error}"
            raise SpecError(msg) from None
        try:
            generator: WatermarkGenerator = made(**self.options)
        except Exception as error:
            msg = f"watermark generator {self.target} refused the options {dict(self.options)}: {error!r}"
            raise SpecError(msg) from error
        return generator

    def _class(self) -> type:
        module, _, name = self.target.partition(":")
        try:
            found = getattr(import_module(module), name, None)
        except Exception as error:
            msg = f"watermark generator {self.target} cannot be imported: {error!r}"
            raise SpecError(msg) from error
        if not isinstance(found, type):
            msg = f"watermark generator {self.target} cannot be imported: {module} has no class {name!r}"
            raise SpecError(msg)
        for hook in ("on_event", "on_periodic_emit"):
            if not callable(getattr(found, hook, None)):
                msg = f"watermark generator {self.target} must have the method {hook}"
                raise SpecError(msg)
        return found


@dataclass(slots=True)
class CheckedGenerator:
    """A user's own generator, of which whatever goes wrong is told with its place in the stream.

    `partitions` are the names of source partitions, where records only hold their number.
    """

    generator: WatermarkGenerator
    partitions: Sequence[str] = ()

    @property
    def is_steady(self) -> bool:
        """Whether quiet ticks may be skipped."""
        return bool(getattr(self.generator, "is_steady", False))

    def on_event(self, record: Record) -> int | None:
        """What the user's hook says.

        Raises:
            SpecError: when it raises, or what it returns is no watermark.
        """
        return self._called("on_event", record)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """What the user's hook says.

        Raises:
            SpecError: when it raises, or what it returns is no watermark.
        """
        return self._called("on_periodic_emit", now_ms)

    def _called(self, hook: str, about: Record | int) -> int | None:
        try:
            said = getattr(self.generator, hook)(about)
        except Exception as error:
            msg = f"{self._name()} failed in {hook} {self._place(about)}: {error!r}"
            raise SpecError(msg) from error
        if said is None or (type(said) is int and MIN_MS <= said <= MAX_MS):
            return said
        msg = f"{self._name()} must return a 64-bit int or None from {hook}, got {said!r} {self._place(about)}"
        raise SpecError(msg)

    def _name(self) -> str:
        return f"watermark generator {type(self.generator).__module__}:{type(self.generator).__qualname__}"

    def _place(self, about: Record | int) -> str:
        if isinstance(about, int):
            return f"at the tick of {instant_text(about)}"
        number = about.source_partition
        partition = self.partitions[number] if self.partitions else number
        return f"at the record of partition {partition}, arrival {instant_text(about.arrival_time_ms)}"


def generator_factory(strategy: WatermarkStrategy) -> Callable[[], WatermarkGenerator]:
    """What makes a new generator for each partition.

    Raises:
        SpecError: when a user's own cannot be made.
    """
    if strategy.kind is StrategyKind.CUSTOM:
        custom = CustomWatermarks(strategy.generator, strategy.options)
        custom()  # so that what is wrong with it is told before anything runs
        return custom
    kinds: dict[StrategyKind, Callable[[], WatermarkGenerator]] = {
        StrategyKind.NONE: NoWatermarks,
        StrategyKind.MONOTONOUS: lambda: BoundedOutOfOrdernessWatermarks(0),
        StrategyKind.BOUNDED: lambda: BoundedOutOfOrdernessWatermarks(strategy.delay_ms),
        StrategyKind.PUNCTUATED: lambda: PunctuatedWatermarks(strategy.delay_ms),
        StrategyKind.TIME_LAG: lambda: TimeLagWatermarks(strategy.delay_ms),
    }
    return kinds[strategy.kind]
