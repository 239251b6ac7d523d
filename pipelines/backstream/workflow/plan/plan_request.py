"""Define the request for a plan, and the definition, the mode, and the range that it resolves to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval, LocalDays
from backstream.runs.home import Home
from backstream.runs.plan import Mode


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A range of a definition to plan, with the options of the run."""

    definition: Path
    """The TOML file."""
    interval: Interval
    """The range; both ends are UTC midnights."""
    _: KW_ONLY
    trigger: str
    """The origin of the run: `cli`, `python`, or an Airflow run id."""
    home: Home
    """The folder that holds all state."""
    mode: Mode | None = None
    """Replaces the mode of the definition."""
    reason: str = ""
    """The user's reason for the run; planning adds the days that are not sealed."""
    is_unsealed_allowed: bool = False
    """True if the run may publish days as final that can still gain events."""
    gate_override: str = ""
    """The reason for publishing a result that fails the quality gate; empty: do not publish it."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Keys of the definition that have another value in this run; see `apply_overrides`."""
    local_days: LocalDays | None = None
    """The days of a time zone that the user requested; the range covers them."""


@dataclass(frozen=True, slots=True)
class RunScope:
    """The definition, mode and range of a run; `place` is the path of the definition for error messages.

    `raw` is the definition with the raw files as its source, if its prepared files are read.
    """

    definition: Definition
    raw: Definition
    mode: Mode
    interval: Interval
    place: str
    home: Home

    @property
    def is_final(self) -> bool:
        """Return whether the run publishes final results, which need sealed days."""
        return self.mode is Mode.RECOMPUTE or self.definition.backfill.publish == "final"
