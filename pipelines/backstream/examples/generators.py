"""Show custom watermark generators, for `strategy = "custom"`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from backstream.eventtime.records import Record


class SmoothedLag:
    """Generator of the greatest arrival time so far, minus the mean lag of the last records, minus a margin.

    The lag of a record is its arrival time minus its event time. If a stream is usually minutes behind, its
    watermark is minutes behind the arrivals. A record that is days late moves the mean only; a fixed bound would
    have to cover it. The generator does not limit the number of late records.
    """

    is_steady = True

    def __init__(self, records: int = 100, margin_ms: int = 0) -> None:
        if records < 1:
            msg = f"records must be positive, got {records}"
            raise ValueError(msg)
        self._lags_ms: deque[int] = deque(maxlen=records)
        self._sum_ms = 0
        self._margin_ms = margin_ms
        self._arrived_ms = 0

    def on_event(self, record: Record) -> None:
        """Add the lag of the record to the mean."""
        if len(self._lags_ms) == self._lags_ms.maxlen:
            self._sum_ms -= self._lags_ms[0]
        lag_ms = record.arrival_time_ms - record.event_time_ms
        self._lags_ms.append(lag_ms)
        self._sum_ms += lag_ms
        self._arrived_ms = record.arrival_time_ms

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Return the watermark, with the mean rounded up; None before the first record."""
        if not self._lags_ms:
            return None
        mean_ms = -(-self._sum_ms // len(self._lags_ms))
        return self._arrived_ms - mean_ms - self._margin_ms - 1

    def snapshot_state(self) -> dict[str, Any]:
        """Return the lags as a list: a hand-over stores them as JSON, which has no deque."""
        return {"lags_ms": list(self._lags_ms), "arrived_ms": self._arrived_ms}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Restore the lags, and their sum."""
        self._lags_ms.extend(state["lags_ms"])
        self._sum_ms, self._arrived_ms = sum(self._lags_ms), state["arrived_ms"]


class Heartbeat:
    """Generator that advances the watermark at marker records only, to the event time minus a delay.

    It is for sources with producers that mark the instant up to which they are complete. A numeric marker is the
    watermark itself.
    """

    is_steady = True

    def __init__(self, delay_ms: int = 0) -> None:
        self._delay_ms = delay_ms

    def on_event(self, record: Record) -> int | None:
        """Return the watermark of a marker record; None for other records."""
        if record.marker is None or record.marker is False:
            return None
        return record.event_time_ms - self._delay_ms if record.marker is True else record.marker

    def on_periodic_emit(self, now_ms: int) -> None:
        """Return no watermark."""
