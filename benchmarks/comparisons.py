"""The comparisons of jobs with their bases, and the limit of each ratio."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from benchmarks.peers.registry import PEERS, to_parquet
from benchmarks.results import Results


class Section(StrEnum):
    """A part of the benchmark that you can measure alone."""

    TUMBLING = "tumbling"
    NATIVE = "native"
    """The native engine in a warm session beside DuckDB alone, and libraries that could be in its tasks."""
    SLIDING = "sliding"
    SESSION = "session"
    SCALE = "scale"
    HOT_KEY = "hot-key"
    """A stream in which one key has half of all events."""
    CHUNKS = "chunks"
    GROWTH = "growth"
    """Each command and page over larger and larger published tables. Each table gets one small run, with Spark."""
    JOB = "job"
    """Whole jobs, from the start of a process to its exit."""


class Asked(StrEnum):
    """The form of a ratio, and the meaning of its limit."""

    AT_MOST = "at most"
    """The job divided by the base, which must not exceed the limit."""
    FASTER = "faster"
    """The base divided by the job, which must reach the limit."""
    SECONDS = "seconds"
    """The seconds of the job, which must not exceed the limit. It has no base."""
    NOTHING = "-"
    """The job divided by the base, without a limit."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the table: the names of a job and its base. `measure` is the key of a measured round."""

    section: Section
    what: str
    job: str
    against: str
    base: str
    asked: Asked
    limit: float = 0.0
    measure: str = "seconds"


class Ratio(NamedTuple):
    """The median, the least and the greatest of the ratios of all rounds. `Asked.SECONDS` has seconds instead."""

    median: float
    low: float
    high: float


_REPLAY, _RECOMPUTE = "tumbling, replay", "tumbling, recompute"
_HAND = "hand-written groupBy(key, F.window)"
_SLIDING, _SESSION = "sliding 1 h every 5 min", "session 30 min"


def _at_most(
    limit: float, section: Section, what: str, job: str, against: str, base: str, measure: str = "seconds"
) -> Comparison:
    return Comparison(section, what, job, against, base, Asked.AT_MOST, limit, measure)


def _replay_faster(limit: float, against: str, base: str) -> Comparison:
    return Comparison(Section.TUMBLING, "replay, tumbling 1 min", _REPLAY, against, base, Asked.FASTER, limit)


def _recompute_ratio(against: str, base: str) -> Comparison:
    what = "recompute, tumbling 1 min"
    return Comparison(Section.TUMBLING, what, _RECOMPUTE, against, base, Asked.NOTHING)


def _four_times(limit: float, what: str, job: str, measure: str = "seconds") -> Comparison:
    return _at_most(limit, Section.SCALE, what, job, "a quarter of the rows", f"quarter: {job}", measure)


def _hot(way: str, window: str, job: str) -> Comparison:
    what = f"{way}, {window}: one key has half of the events"
    return Comparison(Section.HOT_KEY, what, f"hot key: {job}", "the same without", job, Asked.NOTHING)


def _of_window(limit: float, section: Section, way: str, window: str, against: str, base: str) -> Comparison:
    return _at_most(limit, section, f"{way}, {window}", f"{section}, {way}", against, f"{section}, {base}")


COMPARISONS = (
    _of_window(0.8, Section.TUMBLING, "recompute", "tumbling 1 min", _HAND, "by hand"),
    _of_window(0.35, Section.SLIDING, "recompute", _SLIDING, "hand-written F.window, sliding", "by hand"),
    _of_window(0.55, Section.SESSION, "recompute", _SESSION, "hand-written F.session_window", "by hand"),
    _of_window(1.0, Section.TUMBLING, "replay", "tumbling 1 min", _HAND, "by hand"),
    _of_window(1.6, Section.SLIDING, "replay", _SLIDING, "our recompute of it", "recompute"),
    _of_window(2.0, Section.SESSION, "replay", _SESSION, "our recompute of it", "recompute"),
    _replay_faster(4.0, "Structured Streaming, default state store", "structured-streaming, default"),
    _replay_faster(4.0, "Structured Streaming, RocksDB state store", "structured-streaming, rocksdb"),
    _replay_faster(2.0, "Flink, streaming", "flink, streaming"),
    _recompute_ratio("Flink, batch", "flink, batch"),
    _recompute_ratio("DuckDB", "duckdb"),
    _recompute_ratio("Polars", "polars"),
    *(
        Comparison(
            Section.NATIVE,
            f"{way}, tumbling 1 min, by native tasks",
            f"tumbling, native {way}",
            "DuckDB alone, 2 threads",
            to_parquet("duckdb", 2),
            asked,
            limit,
        )
        for way, asked, limit in (("recompute", Asked.AT_MOST, 1.5), ("replay", Asked.NOTHING, 0.0))
    ),
    *(
        Comparison(
            Section.NATIVE,
            f"groups of a minute in one thread: {measure}",
            to_parquet("duckdb", 1),
            f"{other.title()}, 1 thread",
            to_parquet(other, 1),
            Asked.NOTHING,
            measure=measure,
        )
        for other in ("polars", "arrow")
        for measure in ("seconds", "rss_mb")
    ),
    _four_times(4.4, "recompute, four times the rows", _RECOMPUTE),
    _four_times(4.4, "replay, four times the rows", _REPLAY),
    _four_times(1.1, "replay, four times the rows: MB sent to the driver", _REPLAY, "collected_mb"),
    _hot("recompute", "tumbling 1 min", _RECOMPUTE),
    _hot("recompute", _SESSION, "session, recompute"),
    _hot("replay", _SESSION, "session, replay"),
    _at_most(
        1.2, Section.CHUNKS, "replay of 30 days in 30 chunks", "30 days in 30 chunks", "uncut", "30 days uncut"
    ),
)

SHUFFLED = "-shuffled"
"""The end of the name of a shape with files in random order."""


def _beside_script(shape: str, what: str, way: str, limits: tuple[float, float]) -> Iterator[Comparison]:
    """Yield the comparisons with files in arrival order and with shuffled files."""
    orders = (("", "files in arrival order"), (SHUFFLED, "shuffled files"))
    for (suffix, order), limit in zip(orders, limits, strict=True):
        name = f"{shape}{suffix}"
        text = f"{way}, {what}, {order}"
        yield _at_most(limit, Section.JOB, text, f"{name}, {way}", "a script by hand", f"{name}, by hand")


BY_SPARK = "by Spark's kernels"
"""The end of the name of a job with `backfill.engine = "spark"`."""


def _beside_kernels(shape: str, what: str, way: str) -> Iterator[Comparison]:
    """Yield the comparisons of the native engine with Spark's kernels: seconds and memory."""
    for suffix, order in (("", "files in arrival order"), (SHUFFLED, "shuffled files")):
        job, base = f"{shape}{suffix}, {way}", f"{shape}{suffix}, {way} {BY_SPARK}"
        text = f"{way}, {what}, {order}"
        yield Comparison(Section.JOB, text, job, "Spark's kernels", base, Asked.NOTHING)
        yield _at_most(1.0, Section.JOB, f"{text}: memory", job, "Spark's kernels", base, "rss_mb")


WHOLE_JOBS = (
    *_beside_script("uniform", "100,000 keys of equal frequency x 1 min", "recompute", (0.5, 0.8)),
    *_beside_script("uniform", "100,000 keys of equal frequency x 1 min", "replay", (0.8, 1.1)),
    *_beside_script("dense", "100,000 keys x 1 min", "recompute", (0.8, 0.8)),
    *_beside_script("dense", "100,000 keys x 1 min", "replay", (1.1, 1.1)),
    *_beside_kernels("uniform", "100,000 keys of equal frequency x 1 min", "recompute"),
    *_beside_kernels("uniform", "100,000 keys of equal frequency x 1 min", "replay"),
    *_beside_script("hourly", "20,000 keys x 1 h", "recompute", (1.2, 1.2)),
    *_beside_script("hourly", "20,000 keys x 1 h", "replay", (1.5, 1.5)),
    *_beside_script("sliding", _SLIDING, "recompute", (1.0, 1.2)),
    *_beside_script("sliding", _SLIDING, "replay", (1.4, 1.7)),
    *_beside_script("session", _SESSION, "recompute", (1.0, 1.2)),
    *_beside_script("session", _SESSION, "replay", (1.4, 1.7)),
    *(
        _at_most(
            1.2,
            Section.JOB,
            f"{way}, 20,000 keys x 1 h, {name}",
            f"{shape}, {way}",
            "a script by hand",
            f"{shape}, by hand",
        )
        for shape, name in (("json-lines", "JSON lines"), ("iceberg", "Iceberg"))
        for way in ("recompute", "replay")
    ),
    _at_most(
        1.1,
        Section.JOB,
        "recompute of one more day, into a table of many days",
        "one-more-day, many days published",
        "into an empty table",
        "one-more-day, empty table",
    ),
    Comparison(
        Section.JOB,
        "recompute of 11 years in 134 chunks",
        "many-chunks, recompute",
        "-",
        "many-chunks, recompute",
        Asked.SECONDS,
        20.0,
    ),
)
"""Comparisons of whole jobs. The part of a job name before the comma is its shape."""
ALL = (*WHOLE_JOBS, *COMPARISONS)


def wanted(sections: Sequence[Section], peers: set[str]) -> list[Comparison]:
    """Return the comparisons of some sections, except those of whole jobs and those with peers outside `peers`."""
    others = {peer.name for peer in PEERS} - peers
    selection = [comparison for comparison in COMPARISONS if comparison.section in sections]
    return [comparison for comparison in selection if not {comparison.job, comparison.base} & others]


def of_shapes(names: Sequence[str]) -> list[Comparison]:
    """Return the comparisons of whole jobs of some shapes."""
    return [comparison for comparison in WHOLE_JOBS if comparison.job.partition(",")[0] in names]


def ratio(comparison: Comparison, results: Results) -> Ratio | None:
    """Return the summary of the ratios of all rounds. Return None if one of the two jobs was not measured.

    Both jobs run in each round. If the machine is busy for a while, it is busy for both.
    """
    runs = results.jobs if comparison.section is Section.JOB else results.runs
    pair = [runs.get(name) for name in (comparison.job, comparison.base)]
    if pair[0] is None or pair[1] is None:
        return None
    if comparison.asked is Asked.SECONDS:
        seconds = pair[0].values(comparison.measure)
        return Ratio(statistics.median(seconds), min(seconds), max(seconds))
    rounds = zip(pair[0].values(comparison.measure), pair[1].values(comparison.measure), strict=True)
    ratios = [base / job if comparison.asked is Asked.FASTER else job / base for job, base in rounds]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def is_met(comparison: Comparison, result: Ratio) -> bool | None:
    """Return whether the median keeps the limit. Return None if there is no limit."""
    if comparison.asked is Asked.NOTHING:
        return None
    if comparison.asked is Asked.FASTER:
        return result.median >= comparison.limit
    return result.median <= comparison.limit
