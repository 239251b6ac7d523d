"""Define the state of the reference engine at a cut of a stream: plain values that JSON can hold.

An engine that is restored from this state continues with the next record. Records, watermarks, and ticks keep
their numbers, so that the results of both parts together equal those of a run without a cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from backstream.errors import SpecError
from backstream.eventtime.instants import MIN_MS


@dataclass(frozen=True, slots=True)
class SplitState:
    """A watermark generator with its idleness timer.

    `partition` is None for a generator behind the source, which serves all partitions. `last_data_tick` is the
    last tick that included a record, 0 without one. `generator` has the attributes of the generator.
    """

    partition: int | None
    watermark_ms: int
    is_idle: bool
    last_data_tick: int
    generator: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SourceState:
    """The partitions that one source merges, and its main output, which no record uses."""

    splits: tuple[SplitState, ...]
    merged_ms: int = MIN_MS
    are_splits_idle: bool = True
    is_main_idle: bool = True
    main_generator: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """An input of the gate behind several sources."""

    watermark_ms: int
    is_idle: bool
    is_aligned: bool


@dataclass(frozen=True, slots=True)
class StreamState:
    """The watermarks of a stream at a cut.

    `records` and `watermarks` are the numbers of those before the cut. `last_tick` is the last tick that ran, and
    `data_tick` the one that includes the newest records. Without a gate, `channels` is empty.
    """

    records: int
    watermarks: int
    watermark_ms: int
    is_idle: bool
    last_tick: int
    data_tick: int
    sources: tuple[SourceState, ...] = ()
    channels: tuple[ChannelState, ...] = ()
    gate_ms: int = MIN_MS

    def to_json(self) -> dict[str, Any]:
        """Return the state as an object for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the state that `to_json` wrote."""
        sources = tuple(
            SourceState(**source | {"splits": tuple(SplitState(**split) for split in source["splits"])})
            for source in content["sources"]
        )
        channels = tuple(ChannelState(**channel) for channel in content["channels"])
        return cls(**{**content, "sources": sources, "channels": channels})


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window whose state is not removed.

    `records` are the numbers of its records, ascending. `is_pending`: its on-time firing is still to come.
    `firings` is the number of its firings with these bounds, which equals the index of its next pane.
    """

    key: Hashable
    start_ms: int
    end_ms: int
    records: tuple[int, ...]
    is_pending: bool
    firings: int

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the window that `asdict` and JSON wrote."""
        return cls(**{**content, "key": _from_json_key(content["key"]), "records": tuple(content["records"])})


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of one key of a process function: pending timers, `context.state`, and its own attributes."""

    key: Hashable
    timers_ms: tuple[int, ...]
    state: Mapping[str, Any]
    function: Mapping[str, Any]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the state that `asdict` and JSON wrote."""
        return cls(**{**content, "key": _from_json_key(content["key"]), "timers_ms": tuple(content["timers_ms"])})


def _from_json_key(key: Any) -> Hashable:
    """Return a key as it was before JSON, which has lists in place of tuples."""
    return tuple(map(_from_json_key, key)) if isinstance(key, list) else key


def read_attributes(thing: object, role: str) -> dict[str, Any]:
    """Return the state of an object of the user: the result of its `snapshot_state`, or its attributes.

    Args:
        thing: the object.
        role: its role, for errors.

    Raises:
        SpecError: when JSON cannot hold a value without a change.
    """
    snapshot: Callable[[], Mapping[str, Any]] | None = getattr(thing, "snapshot_state", None)
    attributes = dict(snapshot()) if snapshot else _attributes(thing)
    for name, value in attributes.items():
        require_json(value, f"attribute {name!r} of the {role} {_class_name(thing)}")
    return attributes


def write_attributes(thing: object, attributes: Mapping[str, Any]) -> None:
    """Restore the state that `read_attributes` returned, by the object's `restore_state` if it has one."""
    restore: Callable[[Mapping[str, Any]], None] | None = getattr(thing, "restore_state", None)
    if restore:
        restore(attributes)
        return
    for name, value in attributes.items():
        object.__setattr__(thing, name, value)


def require_json(value: object, what: str) -> None:
    """Check that JSON holds a value without a change.

    Raises:
        SpecError: when it doesn't, e.g., for a set, a tuple, or a mapping whose keys are not text.
    """
    try:
        is_same = repr(json.loads(json.dumps(value))) == repr(value)
    except (TypeError, ValueError):
        is_same = False
    if not is_same:
        msg = (
            f"{what} must be a value that JSON can hold, got {type(value).__name__}\n\n"
            "hint: use text, numbers, lists, and mappings with text as keys, or write `snapshot_state` and "
            "`restore_state`"
        )
        raise SpecError(msg)


def _attributes(thing: object) -> dict[str, Any]:
    state = thing.__getstate__()
    parts = state if isinstance(state, tuple) else (state,)
    return {name: value for part in parts if part for name, value in part.items()}


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}:{type(thing).__qualname__}"
