"""Define the result of a preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from backstream.workflow.preview.scaling import Estimate


@dataclass(frozen=True, slots=True)
class DayChange:
    """The changed rows of a day: those of sampled keys, those of all keys, and the number of rows by cause."""

    day_ms: int
    sampled_rows: int
    rows: Estimate
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AggregateEstimate:
    """The changed rows of an aggregate among the sampled keys, and the sum of differences over all keys."""

    name: str
    sampled_rows: int
    difference: Estimate


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of the full run.

    `files`, `rows`, and `bytes_read` are those that its chunks read. `seconds` is a lower and an upper estimate
    from earlier runs, None without one. `rows_written` are those of all keys. `tasks` is the number of Airflow's
    tasks.
    """

    files: int
    rows: int
    bytes_read: int
    seconds: tuple[float, float] | None
    rows_written: Estimate
    tasks: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The changes that a run would publish, computed for a sample of keys and estimated for all keys.

    `keys` and `rows` are those with a change; `kinds` counts the changed rows of sampled keys by kind of change.
    `details` are the changed files, keys of the definition, and code by cause. `engine` is the reason why Spark
    computed the sample; empty: DuckDB did.
    """

    dataset: str
    since_ms: int
    until_ms: int
    mode: str
    share: float
    sampled_keys: int
    sampled_records: int
    keys: Estimate
    rows: Estimate
    kinds: Mapping[str, int]
    days: Sequence[DayChange]
    aggregates: Sequence[AggregateEstimate]
    details: Mapping[str, Sequence[str]]
    cost: RunCost
    engine: str
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_exact(self) -> bool:
        """Return whether all keys were computed."""
        return self.share >= 1

    def as_json(self) -> dict[str, Any]:
        """Return all fields for a file."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the preview as `backstream preview` prints it."""
        from backstream.workflow.preview.text import preview_text

        return preview_text(self)
