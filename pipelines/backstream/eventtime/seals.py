"""Whether a day can still gain events, told by what has arrived since: not by a clock on a wall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backstream.eventtime.instants import DAY_MS, instant_text


class Seal(StrEnum):
    """What is known of one UTC day of event time."""

    SEALED = "sealed"
    """Every expected partition has delivered something since that is later than the horizon allows."""
    EMPTY = "empty"
    """The same, and the day has no event."""
    OPEN = "open"
    """No partition has come so far yet: events may still arrive."""
    MISSING = "missing"
    """Some partitions have come so far, others have not: what they had is not here."""

    @property
    def is_final(self) -> bool:
        """Whether the day cannot gain events any more."""
        return self in (Seal.SEALED, Seal.EMPTY)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one partition delivered of one day: its events, and the last arrival among them."""

    partition: str
    day_ms: int
    events: int
    last_arrival_ms: int


@dataclass(frozen=True, slots=True)
class DaySeal:
    """A day, its seal, and what it rests on where it is not final."""

    day_ms: int
    seal: Seal
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SealRule:
    """How long after its event time a record may arrive, who must deliver, and who may fall silent.

    `partitions`: None for those that were observed. `idle_timeout_ms`: 0 where a silent partition is never idle.
    """

    horizon_ms: int
    partitions: tuple[str, ...] | None = None
    idle_timeout_ms: int = 0


def seal_days(days: Sequence[int], delivered: Iterable[Delivery], rule: SealRule) -> list[DaySeal]:
    """The seal of each day, in ms."""
    last_ms: dict[str, int] = {}
    filled: set[int] = set()
    for each in delivered:
        last_ms[each.partition] = max(each.last_arrival_ms, last_ms.get(each.partition, each.last_arrival_ms))
        filled |= {each.day_ms} if each.events else set()
    expected = sorted(last_ms) if rule.partitions is None else rule.partitions
    return [_evidence(day_ms, last_ms, expected, rule, is_filled=day_ms in filled) for day_ms in days]


def _evidence(
    day_ms: int, last_ms: dict[str, int], expected: Sequence[str], rule: SealRule, *, is_filled: bool
) -> DaySeal:
    bound_ms = day_ms + DAY_MS + rule.horizon_ms
    newest_ms = max(last_ms.values(), default=None)
    behind = [name for name in expected if not _has_passed(last_ms.get(name), newest_ms, bound_ms, rule)]
    if newest_ms is not None and not behind:
        return DaySeal(day_ms, Seal.SEALED if is_filled else Seal.EMPTY)
    who = f" of {', '.join(behind)}" if behind else ""
    seal = Seal.MISSING if newest_ms is not None and newest_ms > bound_ms else Seal.OPEN
    return DaySeal(day_ms, seal, f"no arrival{who} after {instant_text(bound_ms)}")


def _has_passed(last_ms: int | None, newest_ms: int | None, bound_ms: int, rule: SealRule) -> bool:
    """Whether a partition has delivered since, or is idle by rule: silent for so long while others were not."""
    if last_ms is None or newest_ms is None:
        return False
    is_idle = 0 < rule.idle_timeout_ms <= newest_ms - last_ms
    return last_ms > bound_ms or (is_idle and newest_ms > bound_ms)
