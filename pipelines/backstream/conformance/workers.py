"""Run conformance cases in one process per core, each with a Spark session of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from backstream.conformance.cases import Case
from backstream.conformance.run_engine import ReplayResult, RunEngine
from backstream.errors import BackstreamError

_CASES_PER_PART = 5
"""The number of cases that a process gets at once: enough to be worth the way, and all processes end together."""
_engines: list[RunEngine] = []
"""The engine of a worker process."""


def run_in_workers(
    name: str, cases: Sequence[Case], on_finished: Callable[[int], None]
) -> list[ReplayResult | BackstreamError]:
    """Return the results of an engine for cases, in their order.

    Args:
        name: `native` or `spark`.
        cases: the cases.
        on_finished: receives the number of cases that have just finished.
    """
    starts = range(0, len(cases), _CASES_PER_PART)
    workers = max(1, min(os.cpu_count() or 1, len(starts)))
    results: dict[int, list[ReplayResult | BackstreamError]] = {}
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_engine, (name,)) as pool:
        parts = {pool.submit(_run_part, cases[start : start + _CASES_PER_PART]): start for start in starts}
        for part in as_completed(parts):
            results[parts[part]] = part.result()
            on_finished(len(results[parts[part]]))
    return [result for start in starts for result in results[start]]


def _start_engine(name: str) -> None:
    from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

    _engines.append(RunEngine(local_session("backstream conformance", SMALL_DATA_SETTINGS, input_bytes=0), name))


def _run_part(cases: Sequence[Case]) -> list[ReplayResult | BackstreamError]:
    return _engines[0](cases)
