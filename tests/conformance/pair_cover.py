"""Choose few recordings of Flink that have each pair of features that any recording has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from backstream.conformance.cases import Case, load_cases, parse_case
from backstream.errors import BackstreamError
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.windows import Session

RECORDINGS = sorted((Path(__file__).parent / "flink").glob("*.jsonl"))
Line = Mapping[str, Any]


def features(case: Case) -> dict[str, object]:
    """Return what decides the way of a case through an engine."""
    return {
        "window": type(case.window),
        "strategy": case.emission.strategy.kind,
        "markers": any(strategy.kind is StrategyKind.PUNCTUATED for strategy in case.emission.strategies),
        "idleness": any(strategy.idle_timeout_ms for strategy in case.emission.strategies),
        "topology": case.emission.topology,
        "union": bool(case.emission.sources),
        "lateness": case.allowed_lateness_ms > 0,
        "partitions": min(len(case.partitions), 2),
        "release": case.emission.drops_finished_splits,
        "timers": case.timers is not None,
        "gap": not isinstance(case.window, Session) and case.window.size_ms < getattr(case.window, "slide_ms", 0),
        "late": None,
    }


def cover_pairs(lines: Sequence[Line]) -> list[Line]:
    """Return few recordings that have each pair of features that any recording has."""
    pairs_of: list[tuple[Line, set[Any]]] = []
    for line in lines:
        try:
            values = features(parse_case(line["case"]))
        except BackstreamError:
            continue
        values["late"] = bool(line["flink"].get("late"))
        pairs_of.append((line, set(combinations(values.items(), 2))))
    missing, chosen = set().union(*(pairs for _, pairs in pairs_of)), []
    while missing:
        line, pairs = max(pairs_of, key=lambda each: len(each[1] & missing))
        missing -= pairs
        chosen.append(line)
    return chosen


def all_recordings() -> list[Line]:
    return list(load_cases(RECORDINGS))
