"""Generate the watermarks of one source partition."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS, instant_text, wrap_int64
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Record
from backstream.eventtime.stream_state import read_attributes, write_attributes
from backstream.user_code import UserCode


class StrategyKind(StrEnum):
    """The rule that derives watermarks from events."""

    NONE = "none"
    MONOTONOUS = "monotonous"
    BOUNDED = "bounded_out_of_orderness"
    PUNCTUATED = "punctuated"
    TIME_LAG = "time_lag"
    CUSTOM = "custom"
    FLINK_SQL = "flink_sql"
    STRUCTURED_STREAMING = "structured_streaming"
    PER_SOURCE = "per_source"  # not in definitions: the sources of a union have their own rules


MAX_BASED = (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED, StrategyKind.FLINK_SQL)
"""Strategies whose watermark is the greatest event time of a partition, less `bound_ms` and 1."""


@dataclass(frozen=True, slots=True)
class GivenWatermarks:
    """Watermarks that a job wrote down: each is in force from a time of the clock on; both ascend strictly.

    `arrivals_ms` are the times at which records can arrive, ascending. `undecided` has, by arrival time, the ends
    of windows for which records of that time may be late or not.
    """

    at_ms: array[int]
    watermark_ms: array[int]
    arrivals_ms: array[int]
    undecided: Mapping[int, Interval] = field(default_factory=dict)

    def is_undecided(self, arrival_ms: int, window_end_ms: int) -> bool:
        """Return whether it is not known if a record was late for a window."""
        ends_ms = self.undecided.get(arrival_ms)
        return ends_ms is not None and ends_ms.start_ms <= window_end_ms < ends_ms.end_ms

    def in_force(self, now_ms: int) -> int:
        """Return the watermark at a time; -inf before the first."""
        place = bisect_right(self.at_ms, now_ms)
        return self.watermark_ms[place - 1] if place else MIN_MS


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """A kind of generator with its parameters.

    `idle_timeout_ms` 0: a partition without records never becomes idle. `generator` (`package.module:Class`) and
    `options` belong to a custom generator, `given` to a job of Structured Streaming.
    """

    kind: StrategyKind
    delay_ms: int = 0
    interval_ms: int = 200
    idle_timeout_ms: int = 0
    generator: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    given: GivenWatermarks | None = None

    def __post_init__(self) -> None:
        for name in ("delay_ms", "interval_ms", "idle_timeout_ms"):
            value_ms = getattr(self, name)
            if value_ms < 0:
                msg = f"watermark {name.removesuffix('_ms')} must not be negative, got {value_ms} ms"
                raise SpecError(msg)

    @property
    def bound_ms(self) -> int:
        """Distance of the watermark from the maximum event time less 1, or from the clock.

        `WATERMARK FOR t AS t - d` of Flink SQL takes no 1 away, so its distance is one less.
        """
        if self.kind is StrategyKind.MONOTONOUS:
            return 0
        return self.delay_ms - (self.kind is StrategyKind.FLINK_SQL)


class WatermarkGenerator(Protocol):
    """The two methods of Flink's `WatermarkGenerator`.

    Each returns a watermark to emit, or None. A watermark that does not rise has no effect. A custom generator may
    use only the arrival, event time and marker of records. Set `is_steady = True` in its class if
    `on_periodic_emit` returns the same value at each tick between two records; quiet ticks are then skipped.
    Without it, the method is called at every tick. A hand-over stores the attributes of the generator as JSON.
    """

    def on_event(self, record: Record) -> int | None:
        """Process a record, after it was emitted downstream; so a record is never late by its own watermark."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Process a tick of the clock."""


@dataclass(slots=True)
class _BoundedOutOfOrdernessWatermarks:
    """The watermark `max(event time) - delay - 1`.

    Later events are expected from the maximum event time minus the delay on.
    """

    delay_ms: int
    _max_ms: int = MIN_MS

    def __post_init__(self) -> None:
        self._max_ms = MIN_MS + self.delay_ms + 1  # the first watermark must not wrap below -inf

    def on_event(self, record: Record) -> None:
        """Update the maximum event time."""
        self._max_ms = max(self._max_ms, record.event_time_ms)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return `max(event time) - delay - 1`."""
        return self._max_ms - self.delay_ms - 1

    def snapshot_state(self) -> dict[str, int]:
        """Return the maximum event time."""
        return {"max_event_time_ms": self._max_ms}

    def restore_state(self, state: Mapping[str, int]) -> None:
        """Restore the maximum event time."""
        self._max_ms = state["max_event_time_ms"]


@dataclass(slots=True)
class _PunctuatedWatermarks:
    """The watermark of a marker record, emitted right after that record. It is not reduced by 1."""

    delay_ms: int

    def snapshot_state(self) -> dict[str, int]:
        """Return an empty state."""
        return {}

    def on_event(self, record: Record) -> int | None:
        """Return the watermark of the marker, if there is one."""
        if record.marker is None or record.marker is False:
            return None
        if record.marker is True:
            return wrap_int64(record.event_time_ms - self.delay_ms)
        return record.marker

    def on_periodic_emit(self, now_ms: int) -> None:
        """Return no watermark."""


@dataclass(slots=True)
class _TimeLagWatermarks:
    """The watermark `clock - delay`, independent of events."""

    delay_ms: int

    def snapshot_state(self) -> dict[str, int]:
        """Return an empty state."""
        return {}

    def on_event(self, record: Record) -> None:
        """Return no watermark."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return `clock - delay`."""
        return wrap_int64(now_ms - self.delay_ms)


@dataclass(slots=True)
class OnEventWatermarks:
    """The watermark of `_BoundedOutOfOrdernessWatermarks`, emitted after each record instead of at ticks."""

    delay_ms: int
    _max_ms: int = MIN_MS

    def __post_init__(self) -> None:
        self._max_ms = MIN_MS + self.delay_ms + 1

    def on_event(self, record: Record) -> int | None:
        """Return `max(event time) - delay - 1`."""
        self._max_ms = max(self._max_ms, record.event_time_ms)
        return self._max_ms - self.delay_ms - 1

    def on_periodic_emit(self, now_ms: int) -> None:
        """Return no watermark."""

    def snapshot_state(self) -> dict[str, int]:
        """Return the maximum event time."""
        return {"max_event_time_ms": self._max_ms}

    def restore_state(self, state: Mapping[str, int]) -> None:
        """Restore the maximum event time."""
        self._max_ms = state["max_event_time_ms"]


@dataclass(slots=True)
class MicroBatchWatermarks:
    """The watermark of `_BoundedOutOfOrdernessWatermarks`, one batch later.

    A tick ends a batch and emits the watermark of the batches before it. Spark Structured Streaming does the same:
    it classifies late events of a batch by the watermark with which the batch before it began.
    """

    delay_ms: int
    _earlier_ms: int = MIN_MS
    _batch_ms: int = MIN_MS

    def on_event(self, record: Record) -> None:
        """Update the maximum event time of the batch."""
        self._batch_ms = max(self._batch_ms, record.event_time_ms)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return `max(event time) - delay - 1` over the batches before this one."""
        emitted_ms = self._earlier_ms
        self._earlier_ms = max(self._earlier_ms, self._batch_ms)
        return max(emitted_ms - self.delay_ms - 1, MIN_MS)

    def snapshot_state(self) -> dict[str, int]:
        """Return the maximum event times: of this batch, and of the batches before it."""
        return {"max_event_time_ms": self._batch_ms, "earlier_max_event_time_ms": self._earlier_ms}

    def restore_state(self, state: Mapping[str, int]) -> None:
        """Restore both maximum event times."""
        self._batch_ms, self._earlier_ms = state["max_event_time_ms"], state["earlier_max_event_time_ms"]


@dataclass(slots=True)
class _JobWatermarks:
    """The watermarks that a job wrote down, independent of events."""

    given: GivenWatermarks

    def snapshot_state(self) -> dict[str, int]:
        """Return an empty state."""
        return {}

    def restore_state(self, state: Mapping[str, int]) -> None:
        """Restore nothing."""

    def on_event(self, record: Record) -> None:
        """Return no watermark."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return the watermark in force."""
        return self.given.in_force(now_ms)


@dataclass(slots=True)
class _NoWatermarks:
    """No watermark before the final one."""

    def snapshot_state(self) -> dict[str, int]:
        """Return an empty state."""
        return {}

    def on_event(self, record: Record) -> None:
        """Return no watermark."""

    def on_periodic_emit(self, now_ms: int) -> None:
        """Return no watermark."""


@dataclass(frozen=True, slots=True)
class CustomWatermarks:
    """A factory of custom generators: `target` is `package.module:Class`, `options` are its keyword arguments.

    It holds the name of the class instead of the class, so that it can be sent to executors that import the
    module.
    """

    target: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> WatermarkGenerator:
        """Return a new generator.

        Raises:
            SpecError: when the class cannot be imported, lacks a method, or does not take the options.
        """
        code = UserCode("watermark generator", self.target)
        generator: WatermarkGenerator = code.create(("on_event", "on_periodic_emit"), self.options)
        return generator


@dataclass(slots=True)
class CheckedGenerator:
    """A custom generator whose errors are reported with their place in the stream.

    `partitions` are the names of source partitions, since records only hold their numbers.
    """

    generator: WatermarkGenerator
    partitions: Sequence[str] = ()

    @property
    def is_steady(self) -> bool:
        """Return whether quiet ticks may be skipped."""
        return bool(getattr(self.generator, "is_steady", False))

    def on_event(self, record: Record) -> int | None:
        """Return the result of the custom method.

        Raises:
            SpecError: when the method raises, or does not return a watermark or None.
        """
        return self._call("on_event", record)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return the result of the custom method.

        Raises:
            SpecError: when the method raises, or does not return a watermark or None.
        """
        return self._call("on_periodic_emit", now_ms)

    def snapshot_state(self) -> dict[str, Any]:
        """Return the state of the custom generator.

        Raises:
            SpecError: when JSON cannot hold an attribute.
        """
        return read_attributes(self.generator, "watermark generator")

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the custom generator."""
        write_attributes(self.generator, state)

    def _call(self, method: str, argument: Record | int) -> int | None:
        try:
            watermark_ms = getattr(self.generator, method)(argument)
        except Exception as error:
            msg = f"{self._name()} failed in {method} {self._place(argument)}: {error!r}"
            raise SpecError(msg) from error
        if watermark_ms is None or (type(watermark_ms) is int and MIN_MS <= watermark_ms <= MAX_MS):
            return watermark_ms
        msg = (
            f"{self._name()} must return a 64-bit int or None from {method},"
            f" got {watermark_ms!r} {self._place(argument)}"
        )
        raise SpecError(msg)

    def _name(self) -> str:
        return f"watermark generator {type(self.generator).__module__}:{type(self.generator).__qualname__}"

    def _place(self, argument: Record | int) -> str:
        if isinstance(argument, int):
            return f"at the tick of {instant_text(argument)}"
        number = argument.source_partition
        partition = self.partitions[number] if self.partitions else number
        return f"at the record of partition {partition}, arrival {instant_text(argument.arrival_time_ms)}"


def generator_factory(strategy: WatermarkStrategy) -> Callable[[], WatermarkGenerator]:
    """Return a factory that creates a generator for each partition.

    Raises:
        SpecError: when a custom generator cannot be created.
    """
    if strategy.kind is StrategyKind.CUSTOM:
        custom = CustomWatermarks(strategy.generator, strategy.options)
        custom()  # fail before anything runs
        return custom
    if strategy.kind is StrategyKind.STRUCTURED_STREAMING:
        if strategy.given is None:
            msg = "the batches of the job are not known yet\n\nhint: run `backstream prepare` for the definition"
            raise SpecError(msg)
        return partial(_JobWatermarks, strategy.given)
    kinds: dict[StrategyKind, Callable[[], WatermarkGenerator]] = {
        StrategyKind.NONE: _NoWatermarks,
        StrategyKind.PER_SOURCE: _NoWatermarks,  # each source has its own generators
        **dict.fromkeys(MAX_BASED, lambda: _BoundedOutOfOrdernessWatermarks(strategy.bound_ms)),
        StrategyKind.PUNCTUATED: lambda: _PunctuatedWatermarks(strategy.delay_ms),
        StrategyKind.TIME_LAG: lambda: _TimeLagWatermarks(strategy.delay_ms),
    }
    return kinds[strategy.kind]
