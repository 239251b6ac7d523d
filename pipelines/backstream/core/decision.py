"""What a person decided about a run that waited for approval."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from backstream.core.folders import read_json, write_json


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, who gave it (empty: nobody did in time), and when, as ISO 8601 text."""

    is_approved: bool
    by: str
    at: str

    def __str__(self) -> str:
        """Such as `approved by ada` or `rejected, nobody answered in time`."""
        if not self.by:
            return "rejected, nobody answered in time"
        return f"{'approved' if self.is_approved else 'rejected'} by {self.by}"

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The decision in a file; None when there is no such file."""
        if not path.exists():
            return None
        content: dict[str, Any] = read_json(path, "decision")
        return cls(**content)
