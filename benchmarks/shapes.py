"""Shapes of whole jobs: their input, their definition, and the hand-written script for the same result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from backstream.eventtime.instants import DAY_MS, instant_ms
from benchmarks import data
from benchmarks.comparisons import SHUFFLED

ROWS = 25_000_000
"""The number of events of the largest shape. `--rows` scales all shapes."""

_DEFINITION = """\
name = "jobs"

[source]
{source}
event_time = "event_time"
arrival_time = "arrival_time"
partition = "source_partition"
sequence = "arrival_seq"
key = ["key"]

[window]
{window}

[watermark]
strategy = "bounded_out_of_orderness"
delay = "1m"
idle_timeout = "10m"

[lateness]
allowed = "5m"

[aggregates]
events = "count(*)"
total = "sum(value)"

[backfill]
chunk = "{chunk}"
engine = "{engine}"

[quality]
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
"""
SCRIPT = """\
{imports}from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.driver.memory", "{heap}")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
events = {events}.where("{read}")
windows = events.groupBy("key", {window}).agg({first}F.count("*").alias("events"), F.sum("value").alias("total"))
rows = windows.select("key", F.col("{start}").alias("window_start"), "events", "total")
{kept}rows.write.parquet("{out}")
"""
"""The script of a data engineer. A window belongs to the day in which it starts. Windows that end on the next day
need events of that day. The script leaves out windows that start on the day before."""

_IN_DAY = "event_time >= '2024-03-01' AND event_time < '2024-03-02'"
_WINDOWS_OF_DAY = "rows = rows.where(\"window_start >= '2024-03-01' AND window_start < '2024-03-02'\")\n"


class Form(StrEnum):
    """The form in which the events of a shape are stored."""

    PARQUET = "parquet"
    JSON = "json"
    ICEBERG = "iceberg"


class Script(NamedTuple):
    """The differences between the scripts of shapes: the window, the filter of events, and the filter of rows."""

    window: str
    start: str = "window.start"
    first: str = ""
    """An aggregate before the others, with its comma."""
    read: str = _IN_DAY
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """One day of events, and the job over them. `stream.rows` is the number of events at full size."""

    stream: data.Stream
    window: str
    script: Script
    form: Form = Form.PARQUET

    def scaled(self, rows: int) -> Shape:
        """Return the shape with `rows` events instead of each `ROWS`."""
        return replace(self, stream=replace(self.stream, rows=scaled(self.stream.rows, rows)))

    def definition(self, path: Path | str, engine: str = "auto") -> str:
        """Return the definition as TOML."""
        source = _SOURCES[self.form].format(path=path)
        return _DEFINITION.format(window=self.window, chunk="1d", engine=engine, source=source)

    def folder(self, folder: Path) -> Path:
        """Return the folder of the files."""
        folders = {
            Form.PARQUET: data.parquet_folder,
            Form.JSON: data.json_folder,
            Form.ICEBERG: data.iceberg_folder,
        }
        return folders[self.form](self.stream, folder)

    def variables(self, path: Path) -> dict[str, str]:
        """Return the environment variables that the jobs need."""
        return data.iceberg_variables(path) if self.form is Form.ICEBERG else {}

    def write(self, spark: SparkSession, folder: Path) -> None:
        """Write the files if they are absent."""
        writers = {Form.PARQUET: data.parquet, Form.JSON: data.json_lines, Form.ICEBERG: data.iceberg}
        writers[self.form](spark, self.stream, folder)

    def by_hand(self, path: Path, out: Path, heap: str) -> str:
        """Return the script that writes the same rows as Parquet."""
        events, imports = _READERS[self.form].format(path=path), ""
        if self.form is Form.ICEBERG:
            imports = "from pyiceberg.catalog import load_catalog\n"
        return SCRIPT.format(events=events, imports=imports, out=out, heap=heap, **self.script._asdict())


def scaled(size: int, rows: int, least: int = 1) -> int:
    """Scale a size for `ROWS` events to `rows` events."""
    return max(least, size * rows // ROWS)


_JSON_FIELDS = ", ".join(f'{name} = "{kind}"' for name, kind in data.JSON_COLUMNS.items())
_SOURCES: Mapping[Form, str] = {
    Form.PARQUET: 'path = "{path}"',
    Form.JSON: f'path = "{{path}}"\nformat = "json"\ncolumns = {{{{ {_JSON_FIELDS} }}}}',
    Form.ICEBERG: f'path = "{data.ICEBERG_CATALOG}.{data.ICEBERG_TABLE}"\nformat = "iceberg"',
}
_JSON_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in data.JSON_COLUMNS.items())
_READERS: Mapping[Form, str] = {
    Form.PARQUET: 'spark.read.parquet("{path}")',
    Form.JSON: f'spark.read.schema("{_JSON_SCHEMA}").json("{{path}}")',
    Form.ICEBERG: (
        "spark.read.parquet(*(task.file.file_path for task in"
        f' load_catalog("{data.ICEBERG_CATALOG}").load_table("{data.ICEBERG_TABLE}").scan().plan_files()))'
    ),
}
"""The expressions by which scripts read. PySpark has no reader of Iceberg tables: PyIceberg lists files."""
_TUMBLING = 'kind = "tumbling"\nsize = "{size}"'
_DENSE = data.Stream(ROWS)
_IN_ORDER: Mapping[str, Shape] = {
    "dense": Shape(_DENSE, _TUMBLING.format(size="1m"), Script('F.window("event_time", "1 minute")')),
    "uniform": Shape(
        data.Stream(ROWS, even_keys=data.KEYS),
        _TUMBLING.format(size="1m"),
        Script('F.window("event_time", "1 minute")'),
    ),
    "hourly": Shape(
        data.Stream(16_000_000, even_keys=20_000),
        _TUMBLING.format(size="1h"),
        Script('F.window("event_time", "1 hour")'),
    ),
    "sliding": Shape(
        _DENSE,
        'kind = "sliding"\nsize = "1h"\nslide = "5m"',
        Script(
            'F.window("event_time", "1 hour", "5 minutes")',
            read="event_time >= '2024-03-01' AND event_time < '2024-03-02 01:00'",
            kept=_WINDOWS_OF_DAY,
        ),
    ),
    "session": Shape(
        _DENSE,
        'kind = "session"\ngap = "30m"',
        Script(
            'F.session_window("event_time", "30 minutes")',
            # The script avoids `session_window.start`. Spark applies a filter of this column to the events, before
            # it merges sessions. Sessions over midnight would lose their first part, and count as of the day.
            start="first_event",
            first='F.min("event_time").alias("first_event"), ',
            read="event_time >= '2024-02-29' AND event_time < '2024-03-03'",
            kept=_WINDOWS_OF_DAY,
        ),
    ),
}
SHAPES: Mapping[str, Shape] = {
    name: shape
    for plain, in_order in _IN_ORDER.items()
    for name, shape in (
        (plain, in_order),
        (f"{plain}{SHUFFLED}", replace(in_order, stream=replace(in_order.stream, is_shuffled=True))),
    )
} | {
    "json-lines": replace(_IN_ORDER["hourly"], form=Form.JSON),
    "iceberg": replace(_IN_ORDER["hourly"], form=Form.ICEBERG),
}
"""The shapes with a hand-written script, by name."""

ONE_MORE_DAY, MANY_CHUNKS = "one-more-day", "many-chunks"
NAMES = (*SHAPES, ONE_MORE_DAY, MANY_CHUNKS)

PUBLISHED_DAYS, EVENTS_A_DAY, DAY_ROWS = 1_000, 1_000, 2_000_000
"""The number of days published before, the events of each, and the events of the day after them."""
FIRST_YEAR, END_YEAR = 2013, 2024
RECORDS, SOURCE_PARTITIONS = 107_914, 55


def published_before(rows: int) -> data.Sparse:
    """Return the stream of the days before the measured day."""
    days = scaled(PUBLISHED_DAYS, rows, least=2)
    return data.Sparse(days * EVENTS_A_DAY, data.FIRST_DAY_MS - days * DAY_MS, days, data.PARTITIONS, days)


def years(rows: int) -> data.Sparse:
    """Return eleven years of records, one file per year. The numbers of years and chunks are fixed."""
    since_ms = instant_ms(f"{FIRST_YEAR}-01-01", "first year")
    days = (instant_ms(f"{END_YEAR}-01-01", "end") - since_ms) // DAY_MS
    records = scaled(RECORDS, rows, least=2 * SOURCE_PARTITIONS)
    return data.Sparse(records, since_ms, days, SOURCE_PARTITIONS, END_YEAR - FIRST_YEAR)


def one_more_day(rows: int) -> Shape:
    """Return the day after the published days. Its files are in arrival order."""
    shape = SHAPES["dense"]
    return replace(shape, stream=data.Stream(scaled(DAY_ROWS, rows)))


def many_chunks(path: Path) -> str:
    """Return the definition of the years as TOML, with one window per day and 30 days per chunk."""
    source = _SOURCES[Form.PARQUET].format(path=path)
    return _DEFINITION.format(window=_TUMBLING.format(size="1d"), chunk="30d", engine="auto", source=source)


def prepare(spark: SparkSession, names: list[str], rows: int, folder: Path) -> None:
    """Write the data of shapes if it is absent."""
    for name in names:
        if name == MANY_CHUNKS:
            data.sparse_parquet(years(rows), folder)
        elif name == ONE_MORE_DAY:
            data.sparse_parquet(published_before(rows), folder)
            data.parquet(spark, one_more_day(rows).stream, folder)
        else:
            SHAPES[name].scaled(rows).write(spark, folder)
