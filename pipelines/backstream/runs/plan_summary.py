"""Store a summary of a plan beside it, for lists of runs: a plan may be large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from backstream.errors import LedgerError
from backstream.eventtime.intervals import Interval
from backstream.storage.files import load_json, write_json


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A planned run; `expected_events` is by chunk, `staging` are the folders of its staged files."""

    dataset: str
    run_id: str
    plan_hash: str
    triggered_by: str
    reason: str
    mode: str
    since_ms: int
    until_ms: int
    expected_events: Mapping[str, int]
    staging: tuple[str, ...]

    @property
    def interval(self) -> Interval:
        """The backfill range."""
        return Interval(self.since_ms, self.until_ms)

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the summary from a file.

        Raises:
            LedgerError: when there is no such file, or it contains no summary of this version.
        """
        content = load_json(path, "summary of a plan")
        try:
            return cls(**content | {"staging": tuple(content["staging"])})
        except (KeyError, TypeError) as error:
            msg = f"summary of a plan at {path} was written by another version: {error}"
            raise LedgerError(msg) from None
