"""Read the raw records of windows, and the arrivals of the whole stream, from the input files of a plan."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.definition.prepared import reads_prepared_files
from backstream.definition.prepared_columns import FILE
from backstream.errors import PlanError, SpecError
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import TimeWindow
from backstream.native.database import open_database
from backstream.native.duplicates import DuplicateQueries
from backstream.native.recomputed_aggregates import parse_recomputed
from backstream.native.record_scans import (
    INSTANT_OF_EVENT,
    column_alias,
    is_counted,
    list_group_files,
    scan_query,
)
from backstream.native.records import group_files_by_schema
from backstream.native.sql import PARTITION_TEXT, floor_to_step, quote_name, quote_text
from backstream.native.supported import read_spec, reason_not_readable
from backstream.native.task import Aggregate, duckdb_type
from backstream.native.task_disk import open_task_disk
from backstream.runs.plan import InputFile, Plan
from backstream.source.input_versions import require_input_files
from backstream.source.raw_files import path_of_uri
from backstream.source.user_files import describe_input_file
from backstream.storage.stores import Stores

if TYPE_CHECKING:
    import duckdb

_MEMORY_MB = 1_500


@dataclass(frozen=True, slots=True)
class Target:
    """A window of one key: the key's values in the order of `source.key`."""

    window: TimeWindow
    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A readable record of the input, with the values of the columns that the aggregates read."""

    event_ms: int
    """The event time by which windows are assigned, local with `window.time_zone`."""
    arrival_ms: int
    arrival_seq: int
    source_partition: str
    is_duplicate: bool
    is_filtered: bool
    file: str
    values: Mapping[str, Any]
    instant_ms: int
    """The event time as an instant."""

    @property
    def place(self) -> tuple[int, int, str]:
        """The position in arrival order."""
        return self.arrival_ms, self.arrival_seq, self.source_partition


@dataclass(frozen=True)
class RawInput:
    """The input of a plan, read with DuckDB."""

    plan: Plan
    definition: Definition

    @classmethod
    def from_plan(cls, plan: Plan, action: str, *, reads_code: bool = False) -> RawInput:
        """Return the input of a plan.

        Args:
            plan: the plan of a run.
            action: the verb for error messages, e.g., `explain`.
            reads_code: whether the code of a user may make the rows.

        Raises:
            PlanError: when a record cannot be read without Spark, or the code of a user makes the rows.
        """
        definition = parse_definition(plan.definition, f"plan {plan.run_id}")
        reason = reason_not_readable(definition, plan.columns)
        if definition.code_columns is not None and not reads_code:
            reason = (
                f"[{'job' if definition.job else 'process'}] is your own code, and the reference engine is not"
            )
        if reason is None:
            unreadable = [name for name in definition.source.key if duckdb_type(plan.columns[name]) is None]
            reason = f"only Spark can read the key {unreadable[0]!r}" if unreadable else None
        if reason:
            msg = f"cannot {action} {definition.name}: {reason}"
            raise PlanError(msg)
        return cls(plan, definition)

    def parse_key(self, texts: Mapping[str, str | None]) -> tuple[Any, ...]:
        """Return the values of a key in the types of its columns; None is null.

        Raises:
            SpecError: when a column is missing or unknown, or a value does not have its type.
        """
        names = self.definition.source.key
        if set(texts) != set(names):
            wanted = " ".join(f"--key {name}=VALUE" for name in names) or "no --key"
            msg = (
                f"the key of {self.definition.name} has the columns {', '.join(names) or '(none)'},"
                f" got {', '.join(sorted(texts)) or 'none'}\n\nhint: write {wanted}"
            )
            raise SpecError(msg)
        return tuple(self._parse_value(name, texts[name]) for name in names)

    def _parse_value(self, name: str, text: str | None) -> Any:
        if text is None:
            return None
        kind = self.plan.columns[name]
        with open_shared_database() as database:
            query = f"SELECT TRY_CAST(? AS {duckdb_type(kind)})"
            value = database.execute(query, [text]).fetchall()[0][0]
        if value is None:
            msg = f"key {name!r} must be of type {kind}, got {text!r}"
            raise SpecError(msg)
        return value

    @cached_property
    def aggregates(self) -> list[Aggregate]:
        """The aggregates that plain Python can recompute."""
        calls = self.definition.aggregates.items()
        parsed = (parse_recomputed(name, call, self.plan.columns) for name, call in calls)
        return [aggregate for aggregate in parsed if aggregate is not None]

    @property
    def not_recomputed(self) -> list[str]:
        """The names of result columns that only Spark can evaluate."""
        known = {aggregate.name for aggregate in self.aggregates}
        return [name for name in self.definition.value_names if name not in known]

    def list_files(self, span: Interval) -> list[InputFile]:
        """Return the files that may hold an event of an interval."""
        return [file for file in self.plan.inputs if file.may_hold(span)]

    def load_records(self, spans: Sequence[tuple[Interval, tuple[Any, ...]]]) -> list[list[RawRecord]]:
        """Return, for each interval of event time and key, the readable records in arrival order.

        Raises:
            PlanError: when a file was changed or removed since the plan.
        """
        whole = Interval(min(span.start_ms for span, _ in spans), max(span.end_ms for span, _ in spans))
        source = self.definition.source
        files = self.require_files(self.list_files(source.identity.reach(whole)))
        if not files:
            return [[] for _ in spans]
        columns = [*source.key, *source.deduplicate_on, *(each.column for each in self.aggregates if each.column)]
        named = {FILE: "string"} if reads_prepared_files(source) else {}
        reading = read_spec(self.definition, {**self.plan.columns, **named}, [*columns, *named])
        with open_task_disk(Stores.from_environment()) as disk, open_shared_database() as database:
            groups = group_files_by_schema(disk.fetch(files, [*reading.types]), reading)
            register_wanted(database, spans, source.key, self.plan.columns)
            paths = [disk.location_of(path) for path in list_group_files(groups)]
            rows = self._query_records(database, DuplicateQueries(source.identity, reading, groups, paths), whole)
        found: list[list[RawRecord]] = [[] for _ in spans]
        names = {name: column_alias(reading, name) for name in reading.types}
        describe = cache(describe_input_file)
        for row in rows.to_pylist():
            place = (row["event_ms"], row["arrival_ms"], row["arrival_seq"], row["source_partition"])
            values = {name: row[alias] for name, alias in names.items()}
            uri = values.pop(FILE, None)
            file = describe(paths[row["file"]]) if uri is None else path_of_uri(uri)
            instant_ms = row.get(INSTANT_OF_EVENT, row["event_ms"])
            is_filtered = reading.filter is not None and not values[reading.filter]
            record = RawRecord(*place, row["is_duplicate"], is_filtered, file, values, instant_ms)
            found[row["target"]].append(record)
        return found

    def _query_records(
        self, database: duckdb.DuckDBPyConnection, duplicates: DuplicateQueries, whole: Interval
    ) -> pa.Table:
        reading, base = duplicates.reading, scan_query(duplicates.groups, duplicates.reading, whole)
        is_same_key = [
            f"r.{column_alias(reading, name)} IS NOT DISTINCT FROM w.k{number}"
            for number, name in enumerate(self.definition.source.key)
        ]
        is_wanted = " AND ".join([*is_same_key, "r.event_ms >= w.low", "r.event_ms < w.high"])
        marked = f"SELECT *, false AS is_duplicate FROM ({base})"
        if duplicates.identity.columns:
            database.execute(
                f"CREATE TEMP TABLE identities AS SELECT DISTINCT {duplicates.by} FROM"
                f" (SELECT r.* FROM ({base}) r JOIN wanted w ON {is_wanted}) WHERE {duplicates.has_id}"
            )
            marked = duplicates.records(whole, "identities")
        return database.sql(
            f"SELECT r.* REPLACE ({PARTITION_TEXT} AS source_partition), w.target FROM ({marked}) r"
            f" JOIN wanted w ON {is_wanted} ORDER BY arrival_ms, arrival_seq, {PARTITION_TEXT}"
        ).to_arrow_table()

    def draw_keys(
        self, spans: Sequence[Interval], count: int, salt: str
    ) -> list[list[tuple[tuple[Any, ...], int]]]:
        """Return, for each interval of event time, some keys with the event time of one of their records.

        Args:
            spans: the intervals.
            count: the largest number of keys of an interval.
            salt: the text that decides by its hash with a key which keys are drawn.

        Raises:
            PlanError: when a file was changed or removed since the plan.
        """
        names = self.definition.source.key
        whole = Interval(min(span.start_ms for span in spans), max(span.end_ms for span in spans))
        files = self.require_files(self.list_files(whole))
        if not files:
            return [[] for _ in spans]
        reading = read_spec(self.definition, self.plan.columns, names)
        keys = [column_alias(reading, name) for name in names]
        grouped = ", ".join(["target", *keys])
        order = key_order_sql(keys, salt)
        with open_task_disk(Stores.from_environment()) as disk, open_shared_database() as database:
            groups = group_files_by_schema(disk.fetch(files, [*reading.types]), reading)
            base = scan_query(groups, reading, whole)
            piece = _create_pieces(database, spans)
            rows = database.execute(
                f"SELECT {grouped}, min(event_ms) FROM ({base}) r JOIN pieces p ON {piece} = p.piece"
                f" WHERE {is_counted(reading)}"
                f" GROUP BY {grouped} QUALIFY row_number() OVER (PARTITION BY target ORDER BY {order}) <= {count}"
            ).fetchall()
        drawn: list[list[tuple[tuple[Any, ...], int]]] = [[] for _ in spans]
        for target, *key, event_ms in rows:
            drawn[target].append((tuple(key), event_ms))
        return drawn

    def require_files(self, files: Sequence[InputFile]) -> list[str]:
        """Return the paths of the files with records.

        Raises:
            PlanError: when a file was changed or removed since the plan.
        """
        require_input_files(files, f"recompute windows of run {self.plan.run_id}")
        return [file.path for file in files if file.rows]

    def summarize_arrivals(self, width_ms: int) -> pa.Table:
        """Return a row per source partition and bucket of arrivals: first and last event and arrival, in ms."""
        columns = {
            "source_partition": PARTITION_TEXT,
            "arrival_bucket": _bucket(width_ms),
            "first_event_ms": "min(event_ms)",
            "last_event_ms": "max(event_ms)",
            "first_arrival_ms": "min(arrival_ms)",
            "last_arrival_ms": "max(arrival_ms)",
        }
        return self._query_stream(columns, " GROUP BY 1, 2")

    def load_arrivals(self, width_ms: int, buckets: Collection[int], tick: tuple[int, int] | None) -> pa.Table:
        """Return the arrivals in some buckets: partition, sequence, event time and arrival.

        Args:
            width_ms: the width of the buckets.
            buckets: the numbers of the buckets.
            tick: the start and the interval of the clock: one row per partition and tick, with the greatest event
                time. None: one row per record.
        """
        low_ms, high_ms = min(buckets) * width_ms, (max(buckets) + 1) * width_ms
        only = ", ".join(map(str, sorted(buckets)))
        where = f"arrival_ms >= {low_ms} AND arrival_ms < {high_ms} AND {_bucket(width_ms)} IN ({only})"
        columns = {"source_partition": PARTITION_TEXT, "arrival_seq": "arrival_seq"}
        columns |= {"event_ms": "event_ms", "arrival_ms": "arrival_ms"}
        files = [file for file in self.plan.inputs if _may_arrive(file, Interval(low_ms, high_ms))]
        if tick is None:
            return self._query_stream(columns, "", where, files)
        start_ms, interval_ms = tick
        number = f"greatest(arrival_ms - {start_ms}, 0) // {interval_ms}"
        columns |= {
            "arrival_seq": "max(arrival_seq)",
            "event_ms": "max(event_ms)",
            "arrival_ms": "max(arrival_ms)",
        }
        return self._query_stream(columns, f" GROUP BY {PARTITION_TEXT}, {number}", where, files)

    def _query_stream(
        self,
        columns: Mapping[str, str],
        grouping: str,
        where: str = "true",
        files: Sequence[InputFile] | None = None,
    ) -> pa.Table:
        chosen = self.require_files(self.plan.inputs if files is None else files)
        reading = replace(read_spec(self.definition, self.plan.columns), zone=None)  # watermarks are instants
        selected = ", ".join(f"{value} AS {quote_name(name)}" for name, value in columns.items())
        if not chosen:
            return pa.table({name: pa.array([], pa.int64()) for name in columns})
        with open_task_disk(Stores.from_environment()) as disk, open_shared_database() as database:
            groups = group_files_by_schema(disk.fetch(chosen, [*reading.types]), reading)
            records = scan_query(groups, reading)
            return database.sql(f"SELECT {selected} FROM ({records}) WHERE {where}{grouping}").to_arrow_table()


def register_wanted(
    database: duckdb.DuckDBPyConnection,
    spans: Sequence[tuple[Interval, tuple[Any, ...]]],
    names: Sequence[str],
    types: Mapping[str, str],
) -> None:
    """Create the table `wanted` of intervals and keys: `low` and `high` in ms, `k0`.., and the position `target`.

    Args:
        database: the database.
        spans: the intervals and keys.
        names: the names of the key columns.
        types: the Spark SQL types of columns.
    """
    keys = {f"k{number}": pa.array([key[number] for _, key in spans]) for number in range(len(names))}
    bounds = {"low": [span.start_ms for span, _ in spans], "high": [span.end_ms for span, _ in spans]}
    database.register("wanted_rows", pa.table({**keys, **bounds, "target": list(range(len(spans)))}))
    casts = [f"CAST(k{at} AS {duckdb_type(types[name])}) AS k{at}" for at, name in enumerate(names)]
    selected = ", ".join([*casts, "low", "high", "target"])
    database.execute(f"CREATE TEMP TABLE wanted AS SELECT {selected} FROM wanted_rows")


def _create_pieces(database: duckdb.DuckDBPyConnection, spans: Sequence[Interval]) -> str:
    """Create the table `pieces` with equal parts of intervals, and return the part of a record as an expression.

    A join by the number of a part is fast. DuckDB sorts all records for a join by intervals.
    """
    first_ms = min(span.start_ms for span in spans)
    bounds = {
        "low": [span.start_ms - first_ms for span in spans],
        "high": [span.end_ms - first_ms for span in spans],
    }
    width_ms = math.gcd(*bounds["low"], *bounds["high"])
    database.register("spans", pa.table({**bounds, "target": list(range(len(spans)))}))
    database.execute(
        "CREATE TEMP TABLE pieces AS"
        f" SELECT target, unnest(range(low // {width_ms}, high // {width_ms})) AS piece FROM spans"
    )
    return f"((event_ms - {first_ms}) // {width_ms})"


def key_order_sql(columns: Sequence[str], salt: str) -> str:
    """Return an expression that orders keys as if at random: the same for the same values and salt."""
    texts = [f"coalesce({name}::VARCHAR, chr(0))" for name in columns]
    return f"md5(concat_ws(chr(1), {', '.join([quote_text(salt), *texts])}))"


def _bucket(width_ms: int) -> str:
    return f"({floor_to_step('arrival_ms', 0, width_ms)} // {width_ms})"


def _may_arrive(file: InputFile, span: Interval) -> bool:
    if file.min_arrival_ms is None or file.max_arrival_ms is None:
        return True
    return span.overlaps(Interval(file.min_arrival_ms, file.max_arrival_ms + 1))


@contextmanager
def open_shared_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that uses all cores of this machine."""
    with open_database(_MEMORY_MB) as database:
        database.execute(f"SET threads = {os.cpu_count() or 1}")
        yield database
