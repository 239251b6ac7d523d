"""Store the dismissal of a run that ended without a publication: a person has seen it, and nothing follows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from backstream.errors import LedgerError
from backstream.runs.home import Home
from backstream.storage.files import load_json, remove_file, write_json


@dataclass(frozen=True, slots=True)
class Dismissal:
    """The person who dismissed a run, the reason, and the time; it changes no data, no day, and no count."""

    dataset: str
    run_id: str
    by: str
    reason: str
    at_ms: int

    def write(self, home: Home) -> Path:
        """Write as JSON by atomic rename, and return the file."""
        path = home.dismissals(self.dataset) / f"{self.run_id}.json"
        write_json(path, asdict(self))
        return path

    def remove(self, home: Home) -> None:
        """Delete the file, so that the run is listed as before; a file that is gone already is no error."""
        remove_file(home.dismissals(self.dataset) / f"{self.run_id}.json")

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the dismissal from a file; None if there is none, or another version wrote it."""
        try:
            return cls(**load_json(path, "dismissal"))
        except (LedgerError, TypeError):
            return None


def load_dismissals(home: Home, dataset: str) -> dict[str, Dismissal]:
    """Return the dismissals of a dataset by run id."""
    found = (Dismissal.read(path) for path in home.dismissals(dataset).glob("*.json"))
    return {dismissal.run_id: dismissal for dismissal in found if dismissal}
