"""Scale a total over sampled keys to all keys, with an interval that covers the true total in 95% of samples.

Each key is in the sample with the same probability, its share, independently of other keys. The number of sampled
keys with a change is then binomial, which gives an interval for the number of all keys with a change. The mean
change of a key has an interval by Student's t. The interval of the total combines both, so it is cautious.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_KEYS_RISK, _MEAN_RISK = 0.03, 0.02
"""The risks that the two intervals miss the truth; together 5%."""
_STEPS = 200
_TINY, _PRECISION = 1e-300, 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A total over all keys with its 95% interval; `low` and `high` are None without a bound."""

    value: float
    low: float | None
    high: float | None

    @property
    def is_exact(self) -> bool:
        """Return whether all keys were in the sample."""
        return self.low == self.value == self.high


def estimate_total(values: Sequence[float], share: float, *, is_count: bool = False) -> Estimate:
    """Return the total over all keys.

    Args:
        values: the values of the sampled keys; keys with 0 may be left out.
        share: the probability of a key to be in the sample, above 0 and up to 1.
        is_count: whether no value is negative, so that the total has a lower bound in any case.
    """
    nonzero = [value for value in values if value]
    total = math.fsum(nonzero)
    if share >= 1:
        return Estimate(total, total, total)
    count = len(nonzero)
    low_keys, high_keys = estimate_keys(count, share)
    scaled = total / share
    if not count:
        return Estimate(0.0, 0.0 if is_count else None, None)
    if count == 1:
        return Estimate(scaled, total if is_count else None, None)
    mean = total / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in nonzero) / (count - 1))
    margin = _t_quantile(1 - _MEAN_RISK / 2, count - 1) * deviation * math.sqrt((1 - share) / count)
    corners = [keys * each for keys in (low_keys, high_keys) for each in (mean - margin, mean + margin)]
    low, high = min(corners), max(corners)
    return Estimate(scaled, max(low, total) if is_count else low, high)


def estimate_keys(count: int, share: float) -> tuple[float, float]:
    """Return bounds of the number of all keys of which `count` are in the sample."""
    if share >= 1:
        return float(count), float(count)
    half = _KEYS_RISK / 2
    low = float(count)
    if count:
        low = _solve(
            lambda keys: 1 - _binomial_cdf(count - 1, keys, share) < half, float(count), count / share + 1
        )
    high = _solve(
        lambda keys: _binomial_cdf(count, keys, share) > half, count / share, 4 * count / share + 20 / share
    )
    return low, high


def _binomial_cdf(successes: int, trials: float, probability: float) -> float:
    """Return the probability of at most some successes; the number of trials need not be whole."""
    if successes < 0:
        return 0.0
    return 1.0 if successes >= trials else _beta_cdf(1 - probability, trials - successes, successes + 1)


def _t_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution above its median."""

    def is_below(value: float) -> bool:
        tail = _beta_cdf(freedom / (freedom + value * value), freedom / 2, 0.5) / 2
        return 1 - tail < probability

    high = 1.0
    while is_below(high):
        high *= 2
    return _solve(is_below, 0.0, high)


def _beta_cdf(at: float, first: float, second: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction."""
    if at <= 0 or at >= 1:
        return 0.0 if at <= 0 else 1.0
    if at > (first + 1) / (first + second + 2):
        return 1 - _beta_cdf(1 - at, second, first)
    front = math.exp(
        math.lgamma(first + second)
        - math.lgamma(first)
        - math.lgamma(second)
        + first * math.log(at)
        + second * math.log1p(-at)
    )
    # The algorithm of Lentz, with two terms per step.
    ratio, product = 1.0, 1.0 / _nonzero(1 - (first + second) * at / (first + 1))
    fraction = product
    for step in range(1, 10 * _STEPS):
        even = step * (second - step) * at / ((first + 2 * step - 1) * (first + 2 * step))
        odd = -(first + step) * (first + second + step) * at / ((first + 2 * step) * (first + 2 * step + 1))
        for term in (even, odd):
            product = 1 / _nonzero(1 + term * product)
            ratio = _nonzero(1 + term / ratio)
            fraction *= ratio * product
        if abs(ratio * product - 1) < _PRECISION:
            break
    return front * fraction / first


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _solve(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the value at which a condition that holds below it ends."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if high - low <= 1e-9 * max(1.0, abs(high)):
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
