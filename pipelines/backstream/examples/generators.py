"""Watermark generators in a user's own words, for `strategy = "custom"`."""

from __future__ import annotations

from collections import deque

from backstream.eventtime.records import Record


class SmoothedLag:
    """The greatest arrival so far, less the mean lag of the last records, less a margin.

    The lag of a record is its arrival less its event time. A stream that is usually minutes behind gets a
    watermark minutes behind its arrivals; one record that is days late moves the mean, where a fixed bound would
    have to cover it for good. Nothing is promised about how many records come late.
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
        """Take the record's lag into the mean."""
        if len(self._lags_ms) == self._lags_ms.maxlen:
            self._sum_ms -= self._lags_ms[0]
        lag_ms = record.arrival_time_ms - record.event_time_ms
        self._lags_ms.append(lag_ms)
        self._sum_ms += lag_ms
        self._arrived_ms = record.arrival_time_ms

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Nothing before the first record; then the mean's answer, rounded down."""
        if not self._lags_ms:
            return None
        mean_ms = -(-self._sum_ms // len(self._lags_ms))
        return self._arrived_ms - mean_ms - self._margin_ms - 1


class Heartbeat:
    """A marker record moves the watermark to its event time, less a delay; other records never do.

    For sources whose producers say themselves that they are done up to some instant. A marker that is a number is
    the watermark itself.
    """

    is_steady = True

    def __init__(self, delay_ms: int = 0) -> None:
        self._delay_ms = delay_ms

    def on_event(self, record: Record) -> int | None:
        """Emit what a marker says."""
        if record.marker is None or record.marker is False:
            return None
        return record.event_time_ms - self._delay_ms if record.marker is True else record.marker

    def on_periodic_emit(self, now_ms: int) -> None:
        """Nothing."""
