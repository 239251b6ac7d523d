"""Define what a user chooses for a run besides its definition and its range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.runs.plan import Mode


class RunnerName(StrEnum):
    """A place for the work of a command: a session of Spark, or processes of this machine."""

    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """The choices of a user, from the command line, a notebook, or the form of Airflow."""

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
