"""Planning and publishing at size: no Spark, tiny files, so that only what grows with their number is measured."""

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
from backstream.lake.ledger import Status, record_run, run_row
from backstream.lake.maintenance import expire_side_table_snapshots
from backstream.lake.publish import publish_range
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Verdict
from backstream.runs.table_schemas import METRICS, WINDOWS
from backstream.workflow import plan_run
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
    """All of it, each in a folder that is removed at the end."""
    found: list[Figure] = []
    for measure, size in ((_planned, chunks), (_published, files), (_repeated, runs)):
        with tempfile.TemporaryDirectory(prefix="backstream-benchmark-") as folder:
            for figure in measure(Path(folder), size):
                say(f"{figure.what}: {figure.value:.2f} {figure.unit}")
                found.append(figure)
    return found


def _planned(folder: Path, chunks: int) -> Iterator[Figure]:
    """A file a day, as a stream would have left them; after a first plan, which loads the libraries."""
    _inputs(folder, chunks)
    _plan(folder, Interval(FIRST_DAY_MS, FIRST_DAY_MS + DAY_MS), "libraries")
    begin = time.perf_counter()
    plan = _plan(folder, Interval(FIRST_DAY_MS, FIRST_DAY_MS + chunks * DAY_MS), "first")
    seconds = time.perf_counter() - begin
    assert len(plan.chunks) == chunks  # noqa: S101 - what is measured is what was asked for
    yield Figure(f"plan of {chunks:,} daily chunks over {chunks:,} files", seconds, "s", 5.0)


def _published(folder: Path, files: int) -> Iterator[Figure]:
    """A file a day: published into an empty table, then again in place of what is there."""
    _inputs(folder, 1)
    interval = Interval(FIRST_DAY_MS, FIRST_DAY_MS + files * DAY_MS)
    for reason, what in (("first", "publication"), ("again", "restatement")):
        plan = _plan(folder, interval, reason)
        manifests = _staged(plan)
        yield Figure(f"{what} of {files:,} files", _seconds(plan, manifests), "s", 5.0)


def _repeated(folder: Path, runs: int) -> Iterator[Figure]:
    """All days at once, then a day per run in turn: each run restates a day, and leaves its row in the ledger."""
    _inputs(folder, 1)
    seconds = []
    days = min(_DAYS_IN_TURN, runs)
    whole = _plan(folder, Interval(FIRST_DAY_MS, FIRST_DAY_MS + days * DAY_MS), "all")
    _seconds(whole, _staged(whole))
    for number in range(runs + _ENDS):
        start_ms = FIRST_DAY_MS + number % days * DAY_MS
        plan = _plan(folder, Interval(start_ms, start_ms + DAY_MS), str(number))
        seconds.append(_seconds(plan, _staged(plan), events=number))
    first, last = statistics.median(seconds[:_ENDS]), statistics.median(seconds[-_ENDS:])
    yield Figure("publication and ledger, first ten runs (median)", first * 1_000, "ms")
    yield Figure(f"the same after {runs:,} runs", last * 1_000, "ms")
    yield Figure(f"after {runs:,} runs against the first ten", last / first, "x", 2.0)


def _seconds(plan: Plan, manifests: Sequence[Manifest], events: int = 1) -> float:
    """Without the garbage collector, as `timeit` does: this process holds all runs, a real one holds its own."""
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        _carried_out(plan, manifests, events)
        return time.perf_counter() - begin
    finally:
        gc.enable()


def _carried_out(plan: Plan, manifests: Sequence[Manifest], events: int) -> None:
    done = publish_range(plan, manifests)
    span_ms = (FIRST_DAY_MS, FIRST_DAY_MS + events)
    record_run(Home(Path(plan.home)), run_row(plan, Status.PUBLISHED, span_ms, Verdict.PASS, done.rows, events))
    expire_side_table_snapshots(Home(Path(plan.home)), plan.dataset)


def _inputs(folder: Path, files: int) -> None:
    """Parquet files with one event each, a day apart."""
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
        definition, *span_ms, mode=Mode.RECOMPUTE, trigger="benchmark", reason=reason, home=Home(folder / "home")
    )


def _staged(plan: Plan) -> list[Manifest]:
    """What the job would leave: a file of one window per chunk, and one of its metrics."""
    found = []
    for number, chunk in enumerate(plan.chunks):
        bounds = {"window_start": utc_datetime(chunk.start_ms), "window_end": utc_datetime(chunk.end_ms)}
        run = {"run_id": plan.run_id}
        # Another value in each run, so that each restates what it replaces.
        events = int(plan.reason) if plan.reason.isdigit() else number
        window = bounds | {"key": "a", "events": events, "record_count": 1} | run
        counts = {"source_partition": "", "events": 1, "on_time": 1, "late": 0, "dropped": 0, "expired": 0}
        arrivals = {"first_arrival": None, "last_arrival": None, "fired_at": None}
        rows = {WINDOWS: window, METRICS: bounds | counts | arrivals | run}
        files = {suffix: (_file(plan, chunk.chunk_id, suffix, row),) for suffix, row in rows.items()}
        fates = {"": {"on_time": 1}}
        found.append(Manifest(plan.run_id, chunk.chunk_id, "0", 1, fates, {"quarantine": (), **files}))
    return found


def _file(plan: Plan, chunk_id: str, suffix: str, row: dict[str, object]) -> StagedFile:
    table = plan.tables[suffix]
    fields = [
        pa.field(name, _TYPES[kind], metadata={b"PARQUET:field_id": str(field_id).encode()})
        for name, kind, field_id, _ in table.columns
    ]
    path = Path(table.location) / "data" / plan.run_id / chunk_id / "part-0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({each.name: [row[each.name]] for each in fields}, schema=pa.schema(fields)), path)
    return StagedFile(str(path), path.stat().st_size, 1)
