"""Store the newest comparison of each UTC day with a live system, for the pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backstream.errors import LedgerError
from backstream.runs.home import Home
from backstream.storage.files import load_json, write_json


@dataclass(frozen=True, slots=True)
class ReconciledDay:
    """The comparison of the published windows of a day with those of a live system.

    `theirs` names the live output. `differing` counts the different ones of the `windows`. `largest` is the
    largest difference, with `window_start`, `keys`, `aggregate`, `ours`, `theirs`, and `cause` as text; None if
    there is none.
    """

    day_ms: int
    at_ms: int
    theirs: str
    windows: int
    differing: int
    largest: Mapping[str, Any] | None = None


def load_reconciled_days(home: Home, dataset: str) -> dict[int, ReconciledDay]:
    """Return the newest comparison of each day; empty if there is none, or another version wrote the file."""
    try:
        content = load_json(home.comparison(dataset), "comparison with the live system")["days"]
        return {day["day_ms"]: ReconciledDay(**day) for day in content}
    except (LedgerError, KeyError, TypeError):
        return {}


def record_reconciled_days(home: Home, dataset: str, days: Iterable[ReconciledDay]) -> Path:
    """Replace the comparisons of some days in the file of a dataset, and return the file."""
    known = load_reconciled_days(home, dataset) | {day.day_ms: day for day in days}
    path = home.comparison(dataset)
    write_json(path, {"days": [asdict(known[day_ms]) for day_ms in sorted(known)]})
    return path
