"""Compute the local times of many instants at once; tasks on executors import it, so it needs NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.time_zones import TimeZone

_Longs = np.ndarray[Any, np.dtype[np.int64]]
_FAR_MS = MAX_MS // 2
"""Beyond it, times have no offset, so that no sum overflows."""


def list_local_ms(zone: TimeZone | None, instants_ms: _Longs) -> _Longs:
    """Return `TimeZone.local_ms` of each instant."""
    if zone is None:
        return instants_ms
    offsets_ms = np.array(zone.offsets_ms)[
        np.searchsorted(np.array(zone.changes_ms, dtype=np.int64), instants_ms, side="right")
    ]
    return np.where(np.abs(instants_ms) > _FAR_MS, instants_ms, instants_ms + offsets_ms)
