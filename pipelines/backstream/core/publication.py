"""What a publication leaves: which snapshots now hold the range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from backstream.core.folders import read_json, write_json

_ROLLBACK = "rollback-"
"""What the id of a run that undoes another begins with; the other id follows."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The commit of one run.

    `snapshots` maps each table's suffix to its snapshot; `already` says that an earlier attempt did it.
    """

    run_id: str
    dataset: str
    since_ms: int
    until_ms: int
    snapshots: Mapping[str, int]
    rows: int
    replaced_rows: int
    files: int
    published_at: str
    already: bool = False

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The publication in a file.

        Raises:
            LedgerError: when there is no such file.
        """
        content: dict[str, Any] = read_json(path, "publication")
        return cls(**content)


def rollback_id(run_id: str) -> str:
    """The id under which the rollback of a run is itself published."""
    return f"{_ROLLBACK}{run_id}"


def run_undone(rollback: str) -> str | None:
    """The run that a rollback undid, by the id of the rollback; None: it is no rollback."""
    return rollback.removeprefix(_ROLLBACK) if rollback.startswith(_ROLLBACK) else None
