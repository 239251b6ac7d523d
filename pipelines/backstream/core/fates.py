"""What becomes of a record: exactly one fate each, so that the sums must agree."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Fate(StrEnum):
    """What became of one record that was read. A record of several windows is judged by its latest one."""

    ON_TIME = "on_time"
    """Arrived before its window fired."""
    LATE = "late"
    """Arrived after its window fired, within allowed lateness: the window fired again."""
    DROPPED = "dropped"
    """Arrived when its window was gone: the side output."""
    UNASSIGNED = "unassigned"
    """Fell into a hole between windows (slide > size)."""
    DUPLICATE = "duplicate"
    """Arrived before, as another row."""
    QUARANTINED = "quarantined"
    """Could not be normalised; kept with the reason."""
    OUTSIDE = "outside"
    """Read as halo: another chunk owns it."""


def unaccounted(events_read: int, fates: Mapping[str, int]) -> int:
    """How many records read have no fate (negative: more than one); 0 in a run that can be trusted."""
    return events_read - sum(fates.values())
