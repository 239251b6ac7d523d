"""Whole jobs, from the start of the process to its exit: the command of backstream beside a hand-written script.

Both get the same heap and all cores, read the same Parquet files and write Parquet. They take turns. The benchmark
compares their results row by row.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyarrow import dataset

from backstream.eventtime.instants import DAY_MS, instant_text, utc_datetime
from backstream.variables import CATALOG_VARIABLE, HEAP_VARIABLE, HOME_VARIABLE
from benchmarks import data, results, shapes
from benchmarks.comparisons import BY_SPARK, WHOLE_JOBS
from benchmarks.kinds import Setting, in_processes
from benchmarks.measure import Say, in_turn
from benchmarks.memory import ResidentPeak
from benchmarks.results import Results, Runs
from benchmarks.session import session

_INSTANT = pa.timestamp("us", "UTC")
_DAY = (data.FIRST_DAY_MS, data.FIRST_DAY_MS + DAY_MS)
_ERROR_LINES = 5


class JobError(Exception):
    """The error for a job with another exit status than 0. The message has the end of its output."""


@dataclass(frozen=True)
class WholeJob:
    """A process that the benchmark times, without its preparation and its check."""

    name: str
    events: int
    command: Sequence[str]
    log: Path
    prepare: Callable[[], None]
    """A function that removes earlier results of the process."""
    written: Callable[[], list[Path]]
    """A function that lists the Parquet files of the result."""
    variables: Mapping[str, str] = field(default_factory=dict)
    since_ms: int = 0
    """The start of the result. Rows of earlier windows are outside it."""

    @property
    def engine(self) -> str:
        """The name and the version of the engine, for readers."""
        return f"{'Spark SQL' if self.name.endswith('by hand') else 'backstream on Spark'} {pyspark.__version__}"

    def run(self) -> dict[str, float]:
        """Run the process, and return its seconds, processor time and memory.

        Raises:
            JobError: if the process fails.
        """
        self.prepare()
        environment = {name: value for name, value in os.environ.items() if name != CATALOG_VARIABLE}
        with self.log.open("wb") as log:
            begin = time.monotonic()
            process = subprocess.Popen(self.command, env={**environment, **self.variables}, stdout=log, stderr=log)
            with ResidentPeak(process.pid) as meter:
                status = process.wait()
            seconds = time.monotonic() - begin
        if status:
            end = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_ERROR_LINES:]
            raise JobError("\n  ".join([f"{self.name} ended with status {status}", *end]))
        return {"seconds": seconds, "processor_s": meter.processor_s, "rss_mb": meter.peak_mb}

    def rows(self) -> pa.Table:
        """Return the result: the key, the start of the window, and each aggregate."""
        files = dataset.dataset([str(file) for file in self.written()], format="parquet")
        types = {"key": pa.int64(), "window_start": _INSTANT, "events": pa.int64(), "total": pa.int64()}
        table = files.to_table([*types])
        rows = pa.table({name: table[name].cast(kind) for name, kind in types.items()})
        return rows.filter(pc.field("window_start") >= pa.scalar(utc_datetime(self.since_ms), _INSTANT))


def measured(setting: Setting, names: Sequence[str], say: Say) -> Results:
    """Run the jobs of some shapes in turn, in each round. Compare the rows that they write in the first round."""
    measurements = Results(setting.rows, setting.rounds, setting.heap, results.today(), results.computer())
    say("making the data, on first use")
    list(in_processes([partial(prepare, setting, [*names])]))
    for name in names:
        folder = setting.folder / "jobs" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _take_turns(_jobs(name, setting, folder), measurements, say)
        shutil.rmtree(folder)
    return measurements


def prepare(setting: Setting, names: list[str]) -> None:
    """Write the files of shapes if they are absent."""
    spark = session(setting.heap, setting.folder / "spark")
    shapes.prepare(spark, names, setting.rows, setting.folder)
    spark.stop()


def _take_turns(jobs: Sequence[WholeJob], measurements: Results, say: Say) -> None:
    active_jobs = {job.name: job for job in jobs}
    for number in range(1, measurements.rounds + 1):
        for name in in_turn([*active_jobs], [], number):
            job = active_jobs[name]
            try:
                use = job.run()
            except JobError as error:
                del active_jobs[name]
                measurements.jobs.pop(name, None)
                measurements.failed[name] = str(error)
                say(f"{name} is left out: {error}")
                continue
            runs = measurements.jobs.setdefault(
                name, Runs(job.engine, "Parquet", f"heap {measurements.heap}, all cores")
            )
            runs.rounds.append({**use, "events": float(job.events)})
            say(f"round {number} of {measurements.rounds}: {name}, {use['seconds']:.1f} s")
        _compare([*active_jobs.values()], measurements, is_exact=number == 1)
    in_order = {job.name: measurements.jobs.pop(job.name) for job in jobs if job.name in measurements.jobs}
    measurements.jobs.update(in_order)


def _compare(jobs: Sequence[WholeJob], measurements: Results, *, is_exact: bool) -> None:
    """Record the row counts of this round, and the differences of each job from the first job."""
    reference: pa.Table | None = None
    for job in jobs:
        rows = job.rows()
        measurements.jobs[job.name].rounds[-1]["rows"] = float(rows.num_rows)
        rows = in_order(rows) if is_exact else totals(rows)
        if reference is None:
            reference = rows
        elif details := difference(rows, reference):
            measurements.disagreements.append(f"{job.name} against {jobs[0].name}: {details}")


def in_order(rows: pa.Table) -> pa.Table:
    """Return all rows by key and window, so that you can compare those of two jobs one by one."""
    return rows.sort_by([("key", "ascending"), ("window_start", "ascending")])


def totals(rows: pa.Table) -> pa.Table:
    """Return the sums of the rows, as one row. They are enough for the rounds after the first."""
    return pa.table(
        {"rows": [rows.num_rows], **{name: [pc.sum(rows[name]).as_py()] for name in ("events", "total")}}
    )


def difference(rows: pa.Table, reference: pa.Table) -> str | None:
    """Return a text about the differing rows of two tables with the same columns. Return None if all are equal."""
    if rows.num_rows != reference.num_rows:
        return f"{rows.num_rows:,} rows, not {reference.num_rows:,}"
    differs = pa.repeat(False, rows.num_rows)  # noqa: FBT003 - a value
    for name in rows.column_names:
        differs = pc.or_(differs, pc.not_equal(rows[name], reference[name]))
    if not (count := pc.sum(differs).as_py()):
        return None
    first = pc.index(differs, True).as_py()
    return (
        f"{count:,} of {rows.num_rows:,} rows differ, such as {_text(rows, first)}, not {_text(reference, first)}"
    )


def _text(rows: pa.Table, number: int) -> str:
    return ", ".join(f"{name} {column[0]}" for name, column in rows.slice(number, 1).to_pydict().items())


def _jobs(name: str, setting: Setting, folder: Path) -> list[WholeJob]:
    """Return the jobs of a shape. The benchmark compares the others with the first."""
    if name == shapes.MANY_CHUNKS:
        return [_many_chunks(setting, folder)]
    if name == shapes.ONE_MORE_DAY:
        return [*_one_more_day(setting, folder)]
    shape = shapes.SHAPES[name].scaled(setting.rows)
    path = shape.folder(setting.folder)
    script, out = folder / "job.py", folder / "out"
    script.write_text(shape.by_hand(path, out, setting.heap))
    by_hand = WholeJob(
        f"{name}, by hand",
        shape.stream.rows,
        [sys.executable, str(script)],
        folder / "by-hand.log",
        prepare=lambda: shutil.rmtree(out, ignore_errors=True),
        written=lambda: sorted(out.glob("*.parquet")),
        variables=shape.variables(path),
    )
    jobs = [by_hand] if setting.has_scripts else []
    home = folder / "home"
    for engine, suffix in _engines(name):
        definition = folder / f"{engine}.toml"
        definition.write_text(shape.definition(path, engine))
        setup = Setup(
            definition, home, setting.heap, lambda: shutil.rmtree(home, ignore_errors=True), shape.variables(path)
        )
        jobs += [
            setup.run(f"{name}, {way}{suffix}", shape.stream.rows, _DAY, way) for way in ("recompute", "replay")
        ]
    return jobs


def _engines(name: str) -> list[tuple[str, str]]:
    """Return the engines that compute a shape, with what each adds to the names of its jobs."""
    is_compared = any(comparison.base == f"{name}, recompute {BY_SPARK}" for comparison in WHOLE_JOBS)
    return [("auto", ""), *([("spark", f" {BY_SPARK}")] if is_compared else [])]


def _many_chunks(setting: Setting, folder: Path) -> WholeJob:
    stream = shapes.years(setting.rows)
    definition, home = folder / "jobs.toml", folder / "home"
    definition.write_text(shapes.many_chunks(setting.folder / stream.name))
    setup = Setup(definition, home, setting.heap, lambda: shutil.rmtree(home, ignore_errors=True))
    span_ms = (stream.since_ms, stream.since_ms + stream.days * DAY_MS)
    return setup.run(f"{shapes.MANY_CHUNKS}, recompute", stream.rows, span_ms, "recompute")


def _one_more_day(setting: Setting, folder: Path) -> Iterator[WholeJob]:
    """Yield two jobs over the same day. Its files are equally new to both state folders."""
    before, day = shapes.published_before(setting.rows), shapes.one_more_day(setting.rows)
    earlier_ms = (before.since_ms, before.since_ms + before.days * DAY_MS)
    source, definition = folder / "source", folder / "jobs.toml"
    definition.write_text(day.definition(source))
    shutil.copytree(setting.folder / before.name, source)
    setups = []
    for name, command in (("empty table", "plan"), ("many days published", "run")):
        home = folder / name.replace(" ", "-")
        setup = Setup(definition, home, setting.heap, partial(_restore, home))
        setup.command(name, 0, earlier_ms, "recompute", command).run()
        shutil.copytree(home, _backup_of(home))
        setups.append((name, setup))
    for file in data.parquet_folder(day.stream, setting.folder).glob("*.parquet"):
        shutil.copy2(file, source)
    for name, setup in setups:
        yield setup.run(f"{shapes.ONE_MORE_DAY}, {name}", day.stream.rows, _DAY, "recompute")


def _backup_of(home: Path) -> Path:
    return home.with_name(f"{home.name}-prepared")


def _restore(home: Path) -> None:
    """Restore the prepared state folder at the same path, because tables have absolute paths of their files."""
    if _backup_of(home).exists():
        shutil.rmtree(home)
        shutil.copytree(_backup_of(home), home)


class Setup(NamedTuple):
    """A definition, and the state folder of its runs."""

    definition: Path
    home: Path
    heap: str
    prepare: Callable[[], None]
    variables: Mapping[str, str] = MappingProxyType({})

    def run(self, name: str, events: int, span_ms: tuple[int, int], way: str) -> WholeJob:
        """Return the job of the command `run` over a range."""
        return self.command(name, events, span_ms, way, "run")

    def command(self, name: str, events: int, span_ms: tuple[int, int], way: str, verb: str) -> WholeJob:
        """Return the job of a command over a range."""
        since, until = map(instant_text, span_ms)
        return WholeJob(
            name,
            events,
            [
                sys.executable,
                "-m",
                "backstream.cli",
                verb,
                str(self.definition),
                "--since",
                since,
                "--until",
                until,
                "--mode",
                way,
            ],
            self.home.with_suffix(".log"),
            prepare=self.prepare,
            written=lambda: sorted(self.home.glob("warehouse/backstream/jobs/data/**/*.parquet")),
            variables={HOME_VARIABLE: str(self.home), HEAP_VARIABLE: self.heap, **self.variables},
            since_ms=span_ms[0],
        )
