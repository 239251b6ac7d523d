"""Describe the definition, the mode, and the range that a plan is made for."""

from __future__ import annotations

from dataclasses import dataclass

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode


@dataclass(frozen=True, slots=True)
class RunScope:
    """The definition, mode and range of a run; `place` is the path of the definition for error messages."""

    definition: Definition
    mode: Mode
    interval: Interval
    place: str
    home: Home

    @property
    def is_final(self) -> bool:
        """Return whether the run publishes final results, which need sealed days."""
        return self.mode is Mode.RECOMPUTE or self.definition.backfill.publish == "final"
