"""Plans and publications at size, without Spark. Tiny files isolate the costs that grow with their number."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.instants import DAY_MS, instant_ms, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import record_run, run_row
from backstream.lake.maintenance import expire_side_table_snapshots
from backstream.lake.publication.publish import publish_range
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Verdict
from backstream.runs.status import RunStatus
from backstream.runs.table_schemas import METRICS, WINDOWS
from backstream.workflow import plan_run
from backstream.workflow.plan.plan_request import PlanRequest
from benchmarks.results import Figure

CHUNKS, FILES, RUNS = 3_000, 1_000, 500
FIRST_DAY_MS = instant_ms("2015-01-01", "first day")
_ENDS = 10
_DAYS_IN_TURN = 250
_INSTANT = pa.timestamp("us", "UTC")
_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamptz": _INSTANT}
_DEFINITION = """\
name = "benchmark"

[source]
path = "{path}"
event_time = "at"
key = ["key"]

[window]
kind = "tumbling"
size = "1d"

[aggregates]
events = "count(*)"
"""

Say = Callable[[str], None]


def figures(say: Say, chunks: int = CHUNKS, files: int = FILES, runs: int = RUNS) -> list[Figure]:
    """Return all figures. Each measurement runs in a temporary folder."""
    all_figures: list[Figure] = []
    for measure, size in ((_measure_plan, chunks), (_measure_publication, files), (_measure_many_runs, runs)):
        with tempfile.TemporaryDirectory(prefix="backstream-benchmark-") as folder:
            for figure in measure(Path(folder), size):
                say(f"{figure.what}: {figure.value:.2f} {figure.unit}")
                all_figures.append(figure)
    return all_figures


def _measure_plan(folder: Path, chunks: int) -> Iterator[Figure]:
    """Measure a plan over one file per day, as from a stream. A first plan loads the libraries."""
    _inputs(folder, chunks)
    _plan(folder, Interval(FIRST_DAY_MS, FIRST_DAY_MS + DAY_MS), "libraries")
    begin = time.perf_counter()
    plan = _plan(folder, Interval(FIRST_DAY_MS, FIRST_DAY_MS + chunks * DAY_MS), "first")
    seconds = time.perf_counter() - begin
    assert len(plan.chunks) == chunks  # noqa: S101 - the measured plan has the requested size
    yield Figure(f"plan of {chunks:,} daily chunks over {chunks:,} files", seconds, "s", 5.0)


def _measure_publication(folder: Path, files: int) -> Iterator[Figure]:
    """Measure the publication of one file per day into an empty table, and then its restatement."""
    _inputs(folder, 1)
    interval = Interval(FIRST_DAY_MS, FIRST_DAY_MS + files * DAY_MS)
    for reason, what in (("first", "publication"), ("again", "restatement")):
        plan = _plan(folder, interval, reason)
        manifests = _stage(plan)
        yield Figure(f"{what} of {files:,} files", _seconds(plan, manifests), "s", 5.0)


def _measure_many_runs(folder: Path, runs: int) -> Iterator[Figure]:
    """Publish all days at once, then one day per run in turn. Each run restates a day, and adds a ledger row."""
    _inputs(folder, 1)
    seconds = []
    days = min(_DAYS_IN_TURN, runs)
    whole = _plan(folder, Interval(FIRST_DAY_MS, FIRST_DAY_MS + days * DAY_MS), "all")
    _seconds(whole, _stage(whole))
    for number in range(runs + _ENDS):
        start_ms = FIRST_DAY_MS + number % days * DAY_MS
        plan = _plan(folder, Interval(start_ms, start_ms + DAY_MS), str(number))
        seconds.append(_seconds(plan, _stage(plan), events=number))
    first, last = statistics.median(seconds[:_ENDS]), statistics.median(seconds[-_ENDS:])
    yield Figure("publication and ledger, first ten runs (median)", first * 1_000, "ms")
    yield Figure(f"the same after {runs:,} runs", last * 1_000, "ms")
    yield Figure(f"after {runs:,} runs against the first ten", last / first, "x", 2.0)


def _seconds(plan: Plan, manifests: Sequence[Manifest], events: int = 1) -> float:
    """Measure a publication without the garbage collector, as `timeit` does.

    This process holds the objects of all runs. A real process only holds those of its own run.
    """
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        _publish(plan, manifests, events)
        return time.perf_counter() - begin
    finally:
        gc.enable()


def _publish(plan: Plan, manifests: Sequence[Manifest], events: int) -> None:
    publication = publish_range(plan, manifests)
    span_ms = (FIRST_DAY_MS, FIRST_DAY_MS + events)
    record_run(plan.home, run_row(plan, RunStatus.PUBLISHED, span_ms, Verdict.PASS, publication.rows, events))
    expire_side_table_snapshots(plan.home, plan.dataset)


def _inputs(folder: Path, files: int) -> None:
    """Write Parquet files with one event each, one day apart."""
    source = folder / "data"
    source.mkdir()
    for number in range(files):
        at = pa.array([utc_datetime(FIRST_DAY_MS + number * DAY_MS)], _INSTANT)
        pq.write_table(pa.table({"at": at, "key": ["a"]}), source / f"{number:05}.parquet")


def _plan(folder: Path, interval: Interval, reason: str) -> Plan:
    definition = folder / "benchmark.toml"
    definition.write_text(_DEFINITION.format(path=folder / "data"))
    span_ms = (interval.start_ms, interval.end_ms)
    return plan_run(
        PlanRequest(
            definition,
            Interval(*span_ms),
            mode=Mode.RECOMPUTE,
            trigger="benchmark",
            reason=reason,
            home=Home(folder / "home"),
        )
    )


def _stage(plan: Plan) -> list[Manifest]:
    """Write the files of a job, one of a window and one of metrics per chunk. Return the manifests."""
    manifests = []
    for number, chunk in enumerate(plan.chunks):
        bounds = {"window_start": utc_datetime(chunk.start_ms), "window_end": utc_datetime(chunk.end_ms)}
        run = {"run_id": plan.run_id}
        # The value differs in each run, so that each run restates the replaced rows.
        events = int(plan.reason) if plan.reason.isdigit() else number
        window = bounds | {"key": "a", "events": events, "record_count": 1} | run
        counts = {"source_partition": "", "events": 1, "on_time": 1, "late": 0, "dropped": 0, "expired": 0}
        arrivals = {"first_arrival": None, "last_arrival": None, "fired_at": None}
        rows = {WINDOWS: window, METRICS: bounds | counts | arrivals | run}
        files = {suffix: (_file(plan, chunk.chunk_id, suffix, row),) for suffix, row in rows.items()}
        fates = {"": {"on_time": 1}}
        manifests.append(Manifest(plan.run_id, chunk.chunk_id, "0", 1, fates, {"quarantine": (), **files}))
    return manifests


def _file(plan: Plan, chunk_id: str, suffix: str, row: dict[str, object]) -> StagedFile:
    table = plan.tables[suffix]
    fields = [
        pa.field(name, _TYPES[kind], metadata={b"PARQUET:field_id": str(field_id).encode()})
        for name, kind, field_id, _ in table.columns
    ]
    path = Path(table.location) / "data" / plan.run_id / chunk_id / "part-0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({field.name: [row[field.name]] for field in fields}, schema=pa.schema(fields)), path)
    return StagedFile(str(path), path.stat().st_size, 1)
