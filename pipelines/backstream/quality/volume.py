"""Is this run as large as those before it: its distance from their median, in units of their usual distance."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

LEAST_RUNS = 5
"""Fewer past runs are no history: nothing is far from them."""

_NORMAL = 0.6745  # the MAD of a normal distribution is so many standard deviations
_LEAST_MAD = 0.01  # of the median: runs of one size, to the event, would make any other infinitely far


def volume_score(value: float, past: Sequence[float]) -> float:
    """The modified z-score `0.6745 (x - median) / MAD`, without its sign; 0 with fewer than `LEAST_RUNS` runs.

    Boris Iglewicz and David Hoaglin (1993), How to Detect and Handle Outliers, who call 3.5 and more an outlier.
    MAD is the median of the distances from the median, here at least one percent of it.
    """
    if len(past) < LEAST_RUNS:
        return 0.0
    middle = median(past)
    spread = max(median(abs(each - middle) for each in past), _LEAST_MAD * abs(middle))
    return _NORMAL * abs(value - middle) / spread if spread else float(value != middle) * 100
