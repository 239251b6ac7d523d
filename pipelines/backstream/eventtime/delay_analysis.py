"""What every delay of bounded watermarks would have cost, from one histogram of critical delays.

Let `v(d)` be the watermark that a record meets if the delay is `d`. Then `v(d) = v(0) - d`, and -inf where `v(0)`
is -inf. Proof:

* A partition's generator says -inf before its first record, and `greatest event time - d - 1` from then on, at
  instants that do not depend on `d`: ticks, arrivals, ends of batches. So its watermark at `d` is its watermark
  at 0 under the map `x -> x - d` that leaves -inf alone. The map is strictly increasing, since event times lie
  further above -inf than any delay is long.
* Whatever follows only compares watermarks and picks among them: the minimum over active partitions, the maximum
  when all are idle, the rule that no watermark falls, the gate that leaves out a channel behind its last output.
  A choice by comparison is the same before and after a strictly increasing map.
* Who is idle, and when, follows from arrivals and ticks; at a gate also from whether a watermark rises, which is a
  comparison again. Who has left for good follows from arrivals.

So watermarks rise at the same instants for every delay. A record whose latest window has the maximum timestamp
`m`, with allowed lateness `L`, is late or dropped iff `m <= v(0) - d`, and dropped iff `m + L <= v(0) - d`:

    late or dropped   d <= v(0) - m
    dropped           d <= v(0) - m - L          between windows, with event time t: d <= v(0) - t - L
    behind            d <= v(0) - t              the record is behind the watermark, whatever its window says

The right sides do not depend on `d`. They are the record's critical delays: count them once, and the loss at every
delay is a sum over the counts. A window fires at the first rise to `m`, which is the first with `v(0) >= m + d`.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from statistics import fmean, median
from typing import Any, NamedTuple, TypeAlias

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, instant_text
from backstream.eventtime.intervals import Interval

Longs: TypeAlias = "array[int]"
"""64-bit integers (`array("q")`): histograms can have a million rows."""

_ROUND_MS = [
    *(count * SECOND_MS for count in (1, 10)),
    *(count * MINUTE_MS for count in (1, 5, 15, 30)),
    *(count * HOUR_MS for count in (1, 2, 3, 6, 12)),
    *(count * DAY_MS for count in (1, 2, 7, 30, 100, 365, 3_650)),
]
_MOST_ROUND = 5
"""How many round delays a table shows besides 0."""


@dataclass(frozen=True, slots=True)
class CriticalDelays:
    """Per record the greatest delay at which something still happens to it, counted.

    `delays_ms` ascend; `at_least[i]` records have a critical delay of `delays_ms[i]` or more. `records` counts
    all, also those to which it happens at no delay. With a `step_ms` above 1, critical delays were rounded down to
    multiples of it: counts are exact at multiples, and any other delay gets those of the next one.
    """

    delays_ms: Longs
    at_least: Longs
    records: int
    step_ms: int = 1

    @classmethod
    def from_counts(cls, counts: Iterable[tuple[int, int]], records: int, step_ms: int = 1) -> CriticalDelays:
        """From pairs of a critical delay and how many records have it."""
        ascending = sorted(counts)
        sums = list(accumulate(count for _, count in reversed(ascending)))
        return cls(array("q", (delay for delay, _ in ascending)), array("q", reversed(sums)), records, step_ms)

    def affected(self, delay_ms: int) -> int:
        """To how many records it happens at this delay."""
        place = bisect_left(self.delays_ms, delay_ms)
        return self.at_least[place] if place < len(self.at_least) else 0

    def unaffected_share(self, delay_ms: int) -> float:
        """The share of records to which it does not happen; 1 without records."""
        return 1 - self.affected(delay_ms) / self.records if self.records else 1.0

    def smallest_delay_ms(self, share: float) -> int:
        """The smallest delay that spares this share of records; in decimals as written, not as floats hold it."""
        allowed = self.records - math.ceil(Fraction(repr(share)) * self.records)
        place = bisect_left(self.at_least, -allowed, key=lambda count: -count)
        return max(0, self.delays_ms[place - 1] + self.step_ms) if place else 0

    def counts(self) -> Iterator[tuple[int, int]]:
        """Each critical delay and how many records have it."""
        following = [*self.at_least[1:], 0]
        for delay_ms, count, further in zip(self.delays_ms, self.at_least, following, strict=True):
            yield delay_ms, count - further


class NormalDistribution(NamedTuple):
    """A normal distribution with the mean and the deviation of what was observed."""

    mean_ms: float
    deviation_ms: float

    @classmethod
    def from_quantiles(cls, behind: CriticalDelays) -> NormalDistribution:
        """To lateness: the smallest delay at which a record is not behind the watermark; negative: ahead."""
        total = sum((delay_ms + 1) * count for delay_ms, count in behind.counts())
        squares = sum((delay_ms + 1) ** 2 * count for delay_ms, count in behind.counts())
        number = max(1, behind.records)
        return cls(total / number, math.sqrt((squares * number - total * total) / number**2))

    def delay_ms(self, deviations: float) -> int:
        """The mean and so many deviations, as a delay: whole milliseconds, not negative."""
        return max(0, math.ceil(self.mean_ms + deviations * self.deviation_ms))


class FiringDelay(NamedTuple):
    """From a window's end to its firing, over windows; `open_at_end`: those that only the end of input fired."""

    mean_ms: int
    median_ms: int
    open_at_end: int


@dataclass(frozen=True, slots=True)
class FiringDelays:
    """The windows that hold records, by their end, and what fires them: the rises of the watermark at delay 0."""

    ends_ms: Longs
    watermark_ms: Longs
    risen_at_ms: Longs
    input_end_ms: int

    def wait(self, delay_ms: int) -> FiringDelay:
        """How long results wait at this delay; zeros without windows."""
        if not self.ends_ms:
            return FiringDelay(0, 0, 0)
        places = [bisect_left(self.watermark_ms, end_ms - 1 + delay_ms) for end_ms in self.ends_ms]
        fired_at_ms = [*self.risen_at_ms, self.input_end_ms]
        waits_ms = [fired_at_ms[place] - end_ms for place, end_ms in zip(places, self.ends_ms, strict=True)]
        return FiringDelay(round(fmean(waits_ms)), round(median(waits_ms)), places.count(len(self.risen_at_ms)))


class DelayEffect(NamedTuple):
    """What a delay does to the records of the range: counts, and the share that some result holds."""

    delay_ms: int
    dropped: int
    late: int
    kept: float
    wait: FiringDelay


@dataclass(frozen=True, slots=True)
class DelayAdvice:
    """Everything that a choice of delay rests on. `current_ms` is None where the definition has no such delay.

    `overdue` counts records that are late or dropped. `behind` counts those that met any watermark.
    """

    dataset: str
    interval: Interval
    keep: float
    current_ms: int | None
    overdue: CriticalDelays
    dropped: CriticalDelays
    behind: CriticalDelays
    firings: FiringDelays

    @property
    def records(self) -> int:
        """Records of the range."""
        return self.overdue.records

    @property
    def recommended_ms(self) -> int:
        """The smallest delay at which no more than the rest is dropped."""
        return self.dropped.smallest_delay_ms(self.keep)

    @property
    def on_time_ms(self) -> int:
        """The smallest delay at which the share to keep is on time, too."""
        return self.overdue.smallest_delay_ms(self.keep)

    def at(self, delay_ms: int) -> DelayEffect:
        """What a delay does."""
        dropped = self.dropped.affected(delay_ms)
        late = self.overdue.affected(delay_ms) - dropped
        return DelayEffect(
            delay_ms, dropped, late, self.dropped.unaffected_share(delay_ms), self.firings.wait(delay_ms)
        )

    def shown_ms(self) -> list[int]:
        """Delays for a table: none, the recommended, the current, some round ones between and one beyond."""
        marks = {self.recommended_ms, self.recommended_ms if self.current_ms is None else self.current_ms}
        below = [value for value in _ROUND_MS if value < max(marks)]
        beyond = next((value for value in _ROUND_MS if value > max(marks)), max(marks))
        return sorted({0, *below[-_MOST_ROUND:], *marks, beyond})

    def curve(self) -> Iterator[tuple[int, int, int]]:
        """Each delay at which a count changes, from 0 on, with how many are dropped and late from there on."""
        step_ms = self.dropped.step_ms
        changes = {each + step_ms for some in (self.overdue, self.dropped) for each in some.delays_ms}
        for delay_ms in sorted({0, *(each for each in changes if each > 0)}):
            dropped = self.dropped.affected(delay_ms)
            yield delay_ms, dropped, self.overdue.affected(delay_ms) - dropped

    def json_text(self) -> str:
        """The whole curve, and what a table shows, as one JSON object; durations are milliseconds."""
        delay_ms, dropped, late = zip(*self.curve(), strict=True)
        content = {
            "dataset": self.dataset,
            "since": instant_text(self.interval.start_ms),
            "until": instant_text(self.interval.end_ms),
            "records": self.records,
            "keep": self.keep,
            "recommended_ms": self.recommended_ms,
            "on_time_ms": self.on_time_ms,
            "current_ms": self.current_ms,
            "shown": [_flat(self.at(each)) for each in self.shown_ms()],
            "normal": NormalDistribution.from_quantiles(self.behind)._asdict(),
            "curve": {"step_ms": self.dropped.step_ms, "delay_ms": delay_ms, "dropped": dropped, "late": late},
        }
        return json.dumps(content) + "\n"


def require_share(keep: float) -> None:
    """Check that a share to keep is one.

    Raises:
        SpecError: when it is not above 0 and at most 1.
    """
    if not 0 < keep <= 1:
        msg = f"the share to keep must be above 0 and at most 1, got {keep}\n\nhint: 0.999 keeps 99.9 %"
        raise SpecError(msg)


def _flat(outcome: DelayEffect) -> dict[str, Any]:
    wait = outcome.wait
    waits = {"mean_wait_ms": wait.mean_ms, "median_wait_ms": wait.median_ms, "open_at_end": wait.open_at_end}
    return {name: each for name, each in outcome._asdict().items() if name != "wait"} | waits
