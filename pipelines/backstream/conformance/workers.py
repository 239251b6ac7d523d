"""Run conformance cases in one process per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING

from backstream.chunks.threads import Threads
from backstream.conformance.comparison import AnyCase, EngineResult
from backstream.conformance.run_engine import RunEngine
from backstream.errors import BackstreamError
from backstream.workflow.runners import LocalRunner, SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CASES_PER_PART = 5
"""The number of cases that a process gets at once: enough to be worth the way, and all processes end together."""
_engines: list[RunEngine] = []
"""The engine of a worker process."""


def run_in_workers(
    name: str, cases: Sequence[AnyCase], on_finished: Callable[[int], None]
) -> list[EngineResult | BackstreamError]:
    """Return the results of an engine for cases, in their order.

    Args:
        name: `native` or `spark`.
        cases: the cases.
        on_finished: receives the number of cases that have just finished.
    """
    starts = range(0, len(cases), _CASES_PER_PART)
    workers = max(1, min(os.cpu_count() or 1, len(starts)))
    results: dict[int, list[EngineResult | BackstreamError]] = {}
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_engine, (name,)) as pool:
        parts = {pool.submit(_run_part, cases[start : start + _CASES_PER_PART]): start for start in starts}
        for part in as_completed(parts):
            results[parts[part]] = part.result()
            on_finished(len(results[parts[part]]))
    return [result for start in starts for result in results[start]]


class ConformanceRunner(LocalRunner):
    """Native tasks in a thread of this process; Spark, which starts at its first use, only prepares files."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        super().__init__(Threads(slots=1))
        self._session = session

    def session(self, reason: str) -> SparkSession:
        """Return the session."""
        return self._session()


@cache
def _session() -> SparkSession:
    from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

    return local_session("backstream conformance", SMALL_DATA_SETTINGS, input_bytes=0)


def _start_engine(name: str) -> None:
    runner = ConformanceRunner(_session) if name == "native" else SparkRunner(_session)
    _engines.append(RunEngine(runner, name))


def _run_part(cases: Sequence[AnyCase]) -> list[EngineResult | BackstreamError]:
    return _engines[0](cases)
