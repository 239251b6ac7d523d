"""Find the keys in which two versions of a definition differ, by their effect on the published values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backstream.runs.plan import Mode

_POLICY = (
    "watermark",
    "lateness",
    "backfill.publish",
    "source.arrival_time",
    "source.partition",
    "source.sequence",
    "quality.expected_partitions",
)
_NO_EFFECT = (
    "name",
    "description",
    "quality",
    "approval",
    "backfill",
    "source.path",
    "publish",
)
"""Keys without an effect on values; the mode of a run is in its plan."""
_BATCHES = "watermark.batches"
"""The table of a job's batches, which gets another name with each batch; it is no rule."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Dotted names of changed keys; `policy` are those of the lateness policy, which only a replay applies."""

    rules: tuple[str, ...]
    policy: tuple[str, ...]

    @classmethod
    def between(cls, old: Mapping[str, Any], new: Mapping[str, Any]) -> ChangedKeys:
        """Compare two definitions, given as JSON; keys without an effect on values are left out."""
        changed = sorted(_list_changed_keys(old, new))
        return cls(
            tuple(key for key in changed if not _has_prefix(key, (*_POLICY, *_NO_EFFECT))),
            tuple(key for key in changed if _has_prefix(key, _POLICY) and key != _BATCHES),
        )

    def of_mode(self, mode: Mode) -> tuple[str, ...]:
        """Return the keys that matter to a run in a mode."""
        return self.rules if mode is Mode.RECOMPUTE else (*self.rules, *self.policy)


def _list_changed_keys(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of the keys with different values."""
    for name in {*old, *new}:
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _list_changed_keys(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}"


def _has_prefix(key: str, prefixes: Iterable[str]) -> bool:
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)
