"""Store the request to approve a publication, with everything that the approver sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from backstream.errors import LedgerError
from backstream.storage.files import load_json, write_json


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request to approve the publication of a run; times are in epoch milliseconds.

    `dag_id`, `dag_run_id`, and `task_id` are those of the task in Airflow that asks.
    `text` is the request as Markdown. `unit_ms` is the distance of two windows. `verdict` and `finding` come from
    the audit. `against` describes the published state. `rows` counts rows by kind of change. `aggregates` are the
    changed aggregates with the rows that change most.
    """

    dag_id: str
    dag_run_id: str
    task_id: str
    asked_at_ms: int
    until_ms: int
    text: str
    unit_ms: int = 0
    verdict: str = ""
    finding: str = ""
    against: str = ""
    rows: Mapping[str, int] | None = None
    aggregates: Sequence[Mapping[str, Any]] = ()

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the request from a file; None if there is none, or another version wrote it."""
        try:
            return cls(**load_json(path, "approval request"))
        except (LedgerError, TypeError):
            return None
