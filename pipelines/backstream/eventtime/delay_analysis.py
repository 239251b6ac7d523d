"""Compute the effect of every delay of bounded watermarks from one histogram of critical delays.

Let `v(d)` be the watermark at the arrival of a record if the delay is `d`. Then `v(d) = v(0) - d`, and -inf where
`v(0)` is -inf. Proof:

* The generator of a partition emits -inf before its first record, and `maximum event time - d - 1` afterwards. The
  instants of its emissions (ticks, arrivals, ends of batches) do not depend on `d`. So its watermark at `d` is its
  watermark at 0 under the map `x -> x - d` that leaves -inf unchanged. The map is strictly increasing, since every
  event time is further above -inf than any delay is long.
* All later steps only compare watermarks and select one: the minimum over active partitions, the maximum when all
  are idle, the rule that a watermark never falls, the gate that ignores a channel behind its last output. A
  selection by comparison is the same before and after a strictly increasing map.
* Idleness depends on arrivals and ticks; at a gate it also depends on whether a watermark rises, which is again a
  comparison. The end of a partition depends on arrivals.

So watermarks rise at the same instants for every delay. Take a record whose latest window has the maximum
timestamp `m`, with allowed lateness `L`. It is late or dropped iff `m <= v(0) - d`, and dropped iff `m + L <= v(0)
- d`:

    late or dropped   d <= v(0) - m
    dropped           d <= v(0) - m - L          between windows, with event time t: d <= v(0) - t - L
    behind            d <= v(0) - t              the record is behind the watermark, whatever its window

The right sides do not depend on `d`. They are the critical delays of the record. Count them once: the loss at
every delay is then a sum over the counts. A window fires at the first rise to `m`, which is the first with `v(0)
>= m + d`.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import accumulate
from statistics import fmean, median
from typing import Any, NamedTuple, TypeAlias

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_holders import Span, WatermarkHolder

Longs: TypeAlias = "array[int]"
"""64-bit integers (`array("q")`), since histograms can have a million rows."""

_ROUND_DELAYS_MS = [
    *(count * SECOND_MS for count in (1, 10)),
    *(count * MINUTE_MS for count in (1, 5, 15, 30)),
    *(count * HOUR_MS for count in (1, 2, 3, 6, 12)),
    *(count * DAY_MS for count in (1, 2, 7, 30, 100, 365, 3_650)),
]
_MAX_ROUND_DELAYS = 5
"""Limit of round delays in a table, besides 0."""


@dataclass(frozen=True, slots=True)
class CriticalDelays:
    """A histogram of critical delays. The critical delay of a record is the greatest delay with an effect on it.

    `delays_ms` ascend; `at_least[i]` records have a critical delay of `delays_ms[i]` or more. `records` counts all
    records, also those that no delay affects. With a `step_ms` above 1, critical delays are rounded down to its
    multiples. Counts are then exact at multiples; any other delay has the count of the next multiple.
    """

    delays_ms: Longs
    at_least: Longs
    records: int
    step_ms: int = 1

    @classmethod
    def from_counts(cls, counts: Iterable[tuple[int, int]], records: int, step_ms: int = 1) -> CriticalDelays:
        """Create a histogram from pairs of a critical delay and its number of records."""
        ascending = sorted(counts)
        sums = list(accumulate(count for _, count in reversed(ascending)))
        return cls(array("q", (delay for delay, _ in ascending)), array("q", reversed(sums)), records, step_ms)

    def count_affected(self, delay_ms: int) -> int:
        """Return the number of records that this delay affects."""
        place = bisect_left(self.delays_ms, delay_ms)
        return self.at_least[place] if place < len(self.at_least) else 0

    def unaffected_share(self, delay_ms: int) -> float:
        """Return the share of records that this delay does not affect; 1 without records."""
        return 1 - self.count_affected(delay_ms) / self.records if self.records else 1.0

    def smallest_delay_ms(self, share: float) -> int:
        """Return the smallest delay that leaves this share of records unaffected.

        The share is taken as the decimal that was written, since its float is rounded.
        """
        allowed = self.records - math.ceil(Fraction(repr(share)) * self.records)
        place = bisect_left(self.at_least, -allowed, key=lambda count: -count)
        return max(0, self.delays_ms[place - 1] + self.step_ms) if place else 0

    def counts(self) -> Iterator[tuple[int, int]]:
        """Return each critical delay with its number of records."""
        next_at_least = [*self.at_least[1:], 0]
        for delay_ms, count, next_count in zip(self.delays_ms, self.at_least, next_at_least, strict=True):
            yield delay_ms, count - next_count


class NormalDistribution(NamedTuple):
    """A normal distribution with the mean and the deviation of the observed values."""

    mean_ms: float
    deviation_ms: float

    @classmethod
    def fit(cls, behind: CriticalDelays) -> NormalDistribution:
        """Fit to lateness: the smallest delay at which a record is not behind the watermark; negative if ahead."""
        total = sum((delay_ms + 1) * count for delay_ms, count in behind.counts())
        squares = sum((delay_ms + 1) ** 2 * count for delay_ms, count in behind.counts())
        number = max(1, behind.records)
        return cls(total / number, math.sqrt((squares * number - total * total) / number**2))

    def delay_ms(self, deviations: float) -> int:
        """Return the mean plus this number of deviations as a delay: whole milliseconds, not negative."""
        return max(0, math.ceil(self.mean_ms + deviations * self.deviation_ms))


class FiringDelay(NamedTuple):
    """The time from the end of a window to its firing, over windows.

    `open_at_end` counts the windows that fire only at the end of input.
    """

    mean_ms: int
    median_ms: int
    open_at_end: int


@dataclass(frozen=True, slots=True)
class FiringDelays:
    """The ends of windows with records, and the rises of the watermark at delay 0, which fire them."""

    ends_ms: Longs
    watermark_ms: Longs
    risen_at_ms: Longs
    input_end_ms: int

    def wait(self, delay_ms: int) -> FiringDelay:
        """Return the firing delay at this delay; zeros without windows."""
        if not self.ends_ms:
            return FiringDelay(0, 0, 0)
        places = [bisect_left(self.watermark_ms, end_ms - 1 + delay_ms) for end_ms in self.ends_ms]
        fired_at_ms = [*self.risen_at_ms, self.input_end_ms]
        waits_ms = [fired_at_ms[place] - end_ms for place, end_ms in zip(places, self.ends_ms, strict=True)]
        return FiringDelay(round(fmean(waits_ms)), round(median(waits_ms)), places.count(len(self.risen_at_ms)))


class DelayEffect(NamedTuple):
    """The effect of a delay on the records of the range: counts, and the share that results include."""

    delay_ms: int
    dropped: int
    late: int
    kept: float
    wait: FiringDelay


@dataclass(frozen=True, slots=True)
class DelayAdvice:
    """The data for the choice of a delay. `current_ms` is None if the definition has no such delay.

    `overdue` is about records that are late or dropped, `behind` about those that arrived after any watermark.
    `holders` are the partitions that hold the watermark back, the slowest first. `idle_timeout_ms` is the
    recommended timeout; None if no silence is long. `lateness_ms` is the allowed lateness. `has_gaps`: some
    instants are in no window. `assumed` describes a hypothesis; empty without one. `recorded` is then the advice
    without it. `charted` is the time of the chart of the holders.
    """

    dataset: str
    interval: Interval
    keep: float
    current_ms: int | None
    overdue: CriticalDelays
    dropped: CriticalDelays
    behind: CriticalDelays
    firings: FiringDelays
    holders: Sequence[WatermarkHolder] = ()
    idle_timeout_ms: int | None = None
    lateness_ms: int = 0
    has_gaps: bool = False
    assumed: str = ""
    recorded: DelayAdvice | None = None
    charted: Span | None = None

    @property
    def records(self) -> int:
        """Number of records of the range."""
        return self.overdue.records

    @property
    def recommended_ms(self) -> int:
        """The smallest delay that drops at most the share not to keep."""
        return self.dropped.smallest_delay_ms(self.keep)

    @property
    def on_time_ms(self) -> int:
        """The smallest delay at which the share to keep is on time."""
        return self.overdue.smallest_delay_ms(self.keep)

    def at(self, delay_ms: int) -> DelayEffect:
        """Return the effect of a delay."""
        dropped = self.dropped.count_affected(delay_ms)
        late = self.overdue.count_affected(delay_ms) - dropped
        return DelayEffect(
            delay_ms, dropped, late, self.dropped.unaffected_share(delay_ms), self.firings.wait(delay_ms)
        )

    def lateness_sweep(self) -> list[tuple[int, DelayEffect]]:
        """Return some allowed latenesses, each with its effect at the current delay, or at the recommended one.

        A record is dropped at a delay and a lateness if it is late or dropped at their sum. This does not hold for
        records in gaps between windows; then the list is empty.
        """
        if self.has_gaps:
            return []
        delay_ms = self.recommended_ms if self.current_ms is None else self.current_ms
        overdue, wait = self.overdue.count_affected(delay_ms), self.firings.wait(delay_ms)
        swept = []
        for lateness_ms in self._swept_ms(delay_ms):
            dropped = self.overdue.count_affected(delay_ms + lateness_ms)
            kept = 1 - dropped / self.records if self.records else 1.0
            swept.append((lateness_ms, DelayEffect(delay_ms, dropped, overdue - dropped, kept, wait)))
        return swept

    def _swept_ms(self, delay_ms: int) -> list[int]:
        """Return 0, the lateness in force, round ones, and the smallest one that drops no record."""
        most_ms = max(0, self.overdue.smallest_delay_ms(1.0) - delay_ms)
        below = [value for value in _ROUND_DELAYS_MS if value < most_ms]
        return sorted({0, self.lateness_ms, *below[-_MAX_ROUND_DELAYS:], most_ms})

    def shown_ms(self) -> list[int]:
        """Return the delays for a table: 0, recommended, current, some round ones below, and one above."""
        marks = {self.recommended_ms, self.recommended_ms if self.current_ms is None else self.current_ms}
        below = [value for value in _ROUND_DELAYS_MS if value < max(marks)]
        above = next((value for value in _ROUND_DELAYS_MS if value > max(marks)), max(marks))
        return sorted({0, *below[-_MAX_ROUND_DELAYS:], *marks, above})

    def curve(self) -> Iterator[tuple[int, int, int]]:
        """Return each delay from 0 on at which a count changes, with its dropped and late records."""
        step_ms = self.dropped.step_ms
        changes = {
            critical_ms + step_ms for delays in (self.overdue, self.dropped) for critical_ms in delays.delays_ms
        }
        for delay_ms in sorted({0, *(change_ms for change_ms in changes if change_ms > 0)}):
            dropped = self.dropped.count_affected(delay_ms)
            yield delay_ms, dropped, self.overdue.count_affected(delay_ms) - dropped

    def curve_columns(self) -> dict[str, Any]:
        """Return the curve as columns, in steps of `step_ms`."""
        delay_ms, dropped, late = zip(*self.curve(), strict=True)
        return {"step_ms": self.dropped.step_ms, "delay_ms": delay_ms, "dropped": dropped, "late": late}

    @property
    def compared_ms(self) -> int:
        """The delay at which a hypothesis is compared with the recording: the current or the recommended one."""
        if self.current_ms is not None:
            return self.current_ms
        return self.recommended_ms if self.recorded is None else self.recorded.recommended_ms

    def json_text(self) -> str:
        """Return the whole curve and the rows of the table as one JSON object; durations are milliseconds."""
        recorded = None
        if self.recorded is not None:
            effects = [_flat(each.at(self.compared_ms)) for each in (self.recorded, self)]
            recorded = {"curve": self.recorded.curve_columns(), "compared": effects}
        content = {
            "dataset": self.dataset,
            "since": instant_text(self.interval.start_ms),
            "until": instant_text(self.interval.end_ms),
            "records": self.records,
            "keep": self.keep,
            "recommended_ms": self.recommended_ms,
            "on_time_ms": self.on_time_ms,
            "current_ms": self.current_ms,
            "idle_timeout_ms": self.idle_timeout_ms,
            "holders": [asdict(holder) for holder in self.holders],
            "assumed": self.assumed,
            "lateness_ms": self.lateness_ms,
            "lateness": [{"allowed_ms": ms, **_flat(effect)} for ms, effect in self.lateness_sweep()],
            "shown": [_flat(self.at(shown_ms)) for shown_ms in self.shown_ms()],
            "normal": NormalDistribution.fit(self.behind)._asdict(),
            "curve": self.curve_columns(),
            "charted": self.charted,
            "recorded": recorded,
        }
        return json.dumps(content) + "\n"


def require_share(keep: float) -> None:
    """Check that a share to keep is in its range.

    Raises:
        SpecError: when it is not above 0 and at most 1.
    """
    if not 0 < keep <= 1:
        msg = f"the share to keep must be above 0 and at most 1, got {keep}\n\nhint: 0.999 keeps 99.9 %"
        raise SpecError(msg)


def _flat(effect: DelayEffect) -> dict[str, Any]:
    wait = effect.wait
    waits = {"mean_wait_ms": wait.mean_ms, "median_wait_ms": wait.median_ms, "open_at_end": wait.open_at_end}
    return {name: value for name, value in effect._asdict().items() if name != "wait"} | waits
