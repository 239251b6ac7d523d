"""Define the request for a plan, and the definition, the mode, and the range that it resolves to."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Self

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval, LocalDays
from backstream.runs.choices import RunChoices
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.workflow.requested_range import RequestedRange


@dataclass(frozen=True, slots=True)
class PlanRequest(RunChoices):
    """A range of a definition to plan, with the choices of the user."""

    definition: Path
    """The TOML file."""
    interval: Interval
    """The range; both ends are UTC midnights."""
    _: KW_ONLY
    trigger: str
    """The origin of the run: `cli`, `python`, or an Airflow run id."""
    home: Home
    """The folder that holds all state."""
    local_days: LocalDays | None = None
    """The days of a time zone that the user requested; the range covers them."""

    @classmethod
    def of(
        cls, choices: RunChoices, definition: Path, requested: RequestedRange, *, trigger: str, home: Home
    ) -> Self:
        """Return the request for a plan of a range with these choices."""
        return cls(
            definition,
            requested.interval,
            trigger=trigger,
            home=home,
            local_days=requested.local_days,
            **asdict(choices),
        )


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
