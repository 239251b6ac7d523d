"""Which days of a definition are sealed: told by who has delivered what. Each input file is read once."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backstream.core.errors import PlanError
from backstream.core.folders import Home
from backstream.core.instants import DAY_MS, instant_text
from backstream.core.intervals import Interval
from backstream.core.plan import InputFile
from backstream.core.seals import Delivered, Evidence, SealRule, sealed_days
from backstream.core.summaries import load_summary, write_summary
from backstream.definition.model import Definition

log = logging.getLogger(__name__)
_SHOWN = 10


def seals(definition: Definition, inputs: Sequence[InputFile], interval: Interval, home: Home) -> list[Evidence]:
    """The seal of each day of an interval; none where nothing is asked (no `backfill.horizon`) or recorded.

    Raises:
        PlanError: when only Spark can evaluate the event or arrival times.
    """
    horizon_ms, quality = definition.backfill.horizon, definition.quality
    if horizon_ms is None or definition.source.arrival_time is None:
        return []
    partitions = None if quality.partitions == "observed" else tuple(quality.partitions)
    rule = SealRule(horizon_ms, partitions, definition.watermark.idle_timeout)
    files = [file for file in inputs if file.rows]
    delivered = _delivered(files, definition, _name(definition), home)
    return sealed_days(range(interval.start_ms, interval.end_ms, DAY_MS), delivered, rule)


def require_sealed(definition: Definition, days: Sequence[Evidence], where: str) -> None:
    """Check that no day that is about to be published as final can still gain events.

    Raises:
        PlanError: naming those that can, ten at most, with what is missing.
    """
    unsealed = [day for day in days if not day.seal.is_final]
    if unsealed:
        more = f"\n  and {len(unsealed) - _SHOWN} more" if len(unsealed) > _SHOWN else ""
        listed = "".join(f"\n  {day_text(day)} is {day.seal}: {day.reason}" for day in unsealed[:_SHOWN]) + more
        count = f"{len(unsealed)} of {len(days)} days are" if len(days) > 1 else "the day is"
        msg = (
            f"cannot publish {definition.name} as final: {count} not sealed ({where}){listed}\n\n"
            "hint: end the range earlier, or add --unsealed, which the report and the ledger will say"
        )
        raise PlanError(msg)


def with_unsealed(reason: str, days: Sequence[Evidence]) -> str:
    """The reason of a run, and which of its days were published before they were sealed."""
    unsealed = [f"{day_text(day)} {day.seal}" for day in days if not day.seal.is_final]
    if not unsealed:
        return reason
    more = f" and {len(unsealed) - _SHOWN} more" if len(unsealed) > _SHOWN else ""
    said = f"unsealed: {', '.join(unsealed[:_SHOWN])}{more}"
    return f"{reason}; {said}" if reason else said


def day_text(day: Evidence) -> str:
    """Such as `2024-03-01`."""
    return instant_text(day.day_ms)[:10]


def _name(definition: Definition) -> str:
    """Of the summary: another way to read the source is another one."""
    digest = hashlib.sha256(json.dumps(definition.read_by, sort_keys=True).encode()).hexdigest()[:12]
    return f"delivered-{definition.name}-{digest}"


def _delivered(files: Sequence[InputFile], definition: Definition, name: str, home: Home) -> Iterator[Delivered]:
    """What each file delivered; a file is read once, and what was found is kept for all of them together."""
    place, what = home.summary(name), f"what the input files of {definition.name} have delivered"
    known = (load_summary(place, what) or {}).get("files", {})
    found = {_identity(file): known.get(_identity(file)) for file in files}
    is_new = False
    for file in files:
        if found[_identity(file)] is None:
            found[_identity(file)] = _counted(file, definition)
            is_new |= found[_identity(file)] is not None
    if is_new:
        write_summary(place, {"files": {identity: each for identity, each in found.items() if each is not None}})
    for each in found.values():
        for partition, day_ms, events, last_arrival_ms in each or ():
            yield Delivered(partition, day_ms, events, last_arrival_ms)


def _identity(file: InputFile) -> str:
    return f"{file.size_bytes}/{file.modified_ms}/{file.path}"


def _counted(file: InputFile, definition: Definition) -> list[list[Any]] | None:
    """Read a file; None where it is damaged: that is no evidence, and only runs that read it are refused."""
    from backstream.steps.delivered import count_delivered
    from backstream.steps.reading import UnreadableError

    try:
        return count_delivered(Path(file.path), definition)
    except UnreadableError as error:
        log.warning("%s", error)
        return None
