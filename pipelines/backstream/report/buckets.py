"""Time in steps that a chart has room for, and the labels under it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from backstream.core.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, epoch_ms, moment
from backstream.core.intervals import Interval
from backstream.report.words import short_day_text

STEPS_MS = tuple(
    count * unit_ms
    for unit_ms, counts in (
        (SECOND_MS, (1, 5, 15, 30)),
        (MINUTE_MS, (1, 5, 10, 15, 30)),
        (HOUR_MS, (1, 2, 3, 4, 6, 8, 12)),
        (DAY_MS, (1, 2, 7, 14, 28, 91, 364)),
    )
    for count in counts
)
_LABEL_AT = 0.5  # a label stands under the middle of its bar or cell
_LAST_LABEL = 0.97  # of the range
_MONTHS = 12


def step_ms(shown: Interval, unit_ms: int, room: int) -> int:
    """The smallest step, of whole windows, by which a range makes at most `room` buckets."""
    fitting = [
        step
        for step in (unit_ms, *(each for each in STEPS_MS if each > unit_ms and each % unit_ms == 0))
        if bucket_count(shown, step) <= room
    ]
    span_ms = shown.end_ms - shown.start_ms
    return fitting[0] if fitting else -(-span_ms // room // unit_ms) * unit_ms


def bucket_count(shown: Interval, bucket_ms: int) -> int:
    """How many buckets a range needs."""
    return -(-(shown.end_ms - shown.start_ms) // bucket_ms)


def time_ticks(shown: Interval, bucket_ms: int, most: int) -> tuple[tuple[float, str], ...]:
    """At most about `most` labels: at the beginnings of months, days or hours, whichever leave room."""
    span_ms = shown.end_ms - shown.start_ms
    fitting_ms = [step for step in STEPS_MS if step >= bucket_ms and span_ms / step <= most]
    if span_ms / (14 * DAY_MS) > most or not fitting_ms:
        starts_ms, labelled = _months(shown, most), _month_label()
    else:
        starts_ms, labelled = _steps(shown, fitting_ms[0]), _clock_label(fitting_ms[0])
    # A label near the end would be cut off.
    return tuple(
        ((at_ms - shown.start_ms) // bucket_ms + _LABEL_AT, labelled(at_ms))
        for at_ms in starts_ms
        if at_ms - shown.start_ms <= span_ms * _LAST_LABEL
    )


def _steps(shown: Interval, tick_ms: int) -> list[int]:
    """Instants every `tick_ms`, from the first one on a grid of days at most."""
    grid_ms = min(tick_ms, DAY_MS)
    return list(range(-(-shown.start_ms // grid_ms) * grid_ms, shown.end_ms, tick_ms))


def _months(shown: Interval, most: int) -> list[int]:
    """Beginnings of months, or of every second, third, sixth or twelfth."""
    first, last = moment(shown.start_ms), moment(shown.end_ms - 1)
    months = [
        epoch_ms(datetime(year, month, 1, tzinfo=UTC))
        for year in range(first.year, last.year + 1)
        for month in range(1, _MONTHS + 1)
    ]
    inside = [at_ms for at_ms in months if shown.start_ms <= at_ms < shown.end_ms]
    every = next((step for step in (1, 2, 3, 6, _MONTHS) if len(inside) / step <= most), None)
    return inside[:: every or _MONTHS * -(-len(inside) // (_MONTHS * most))]


def _month_label() -> Callable[[int], str]:
    return lambda at_ms: f"{moment(at_ms):%b %Y}"


def _clock_label(tick_ms: int) -> Callable[[int], str]:
    """Labels for ticks of one step: days, else times of day with the day where it begins."""
    pattern = "%H:%M:%S" if tick_ms < MINUTE_MS else "%H:%M"
    return lambda at_ms: moment(at_ms).strftime(pattern) if at_ms % DAY_MS else short_day_text(at_ms)
