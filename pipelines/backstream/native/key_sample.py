"""Draw all records of a share of the keys from input files, and keep the rows of these keys in other tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.native.duplicates import DuplicateQueries
from backstream.native.footers import list_files_with_rest
from backstream.native.raw_input import RawInput, open_shared_database
from backstream.native.record_scans import column_alias, list_group_files, scan_query
from backstream.native.records import group_files_by_schema
from backstream.native.sql import ICEBERG_TYPES, local_time, quote_name, quote_path, quote_text, to_timestamp
from backstream.native.supported import read_spec
from backstream.native.task import ReadSpec, duckdb_type
from backstream.native.task_disk import open_task_disk
from backstream.runs.plan import InputFile, Mode
from backstream.storage.stores import Stores

if TYPE_CHECKING:
    import duckdb

IS_NEW = "backstream_is_new"
"""The column of a sample that marks the records of new files."""
_HASHES = 2**64
Column = tuple[int, str, str]
"""The field id, the name, and the Iceberg type of a column."""


@dataclass(frozen=True, slots=True)
class KeySample:
    """All records of some keys, without duplicates, in a Parquet file with the columns of `reading` and `IS_NEW`.

    A key is in the sample if its hash is below the `share` of all hashes, so a larger sample contains it, too.
    """

    share: float
    keys: int
    file: InputFile
    reading: ReadSpec


def draw_key_sample(
    raw: RawInput,
    share: float,
    span: Interval,
    path: Path,
    new_files: Collection[str] = (),
    columns: Collection[str] | None = None,
) -> KeySample:
    """Write the readable records of a share of the keys to a file.

    Args:
        raw: the input of a plan.
        share: the share of the keys, above 0 and up to 1.
        span: the interval of event time.
        path: the file to write.
        new_files: paths of files whose records are marked.
        columns: the columns that are read besides the event time; those of arrival order are included if they
            matter. None: all columns of the source.

    Raises:
        PlanError: when an input file was changed or removed since the plan.
    """
    source = raw.definition.source
    # The first file has the columns of a sample without records.
    near = raw.list_files(source.identity.reach(span))
    files = raw.require_files(near) or raw.require_files(raw.plan.inputs[:1])
    reading = _choose_reading(raw, files, columns)
    keys = [column_alias(reading, name) for name in source.key]
    with open_task_disk(Stores.from_environment()) as disk, open_shared_database() as database:
        groups = group_files_by_schema(disk.fetch(files, [*reading.types]), reading)
        located = [disk.location_of(path) for path in list_group_files(groups)]
        new = [number for number, file in enumerate(located) if file in set(new_files)]
        duplicates = DuplicateQueries(source.identity, reading, groups, located)
        _create_sample(database, duplicates, span, _key_condition(keys, share))
        columns = {name: column_alias(reading, name) for name in reading.types}
        columns |= {IS_NEW: f"list_contains({new}::INTEGER[], file::INTEGER)"}
        selected = ", ".join(f"{value} AS {quote_name(name)}" for name, value in columns.items())
        database.execute(f"COPY (SELECT {selected} FROM sampled) TO {quote_text(str(path))} (FORMAT parquet)")
        counted = f"count(DISTINCT ({', '.join(keys)}))" if keys else "least(count(*), 1)"
        bounds = "min(event_ms), max(event_ms), min(arrival_ms), max(arrival_ms)"
        query = f"SELECT {counted}, count(*), {bounds} FROM sampled"
        ((key_count, rows, *bounds_ms),) = database.execute(query).fetchall()
    status = path.stat()
    modified_ms = status.st_mtime_ns // 1_000_000
    low_ms, high_ms, first_ms, last_ms = bounds_ms
    file = InputFile(str(path), rows, status.st_size, low_ms, high_ms, first_ms, last_ms, modified_ms)
    return KeySample(share, key_count, file, reading)


def _choose_reading(raw: RawInput, files: Sequence[str], columns: Collection[str] | None) -> ReadSpec:
    """Return how to read records. A recompute needs arrivals only to find records that are not readable."""
    definition, plan = raw.definition, raw.plan
    if columns is None:
        return read_spec(definition, plan.columns, plan.columns)
    reading = read_spec(definition, plan.columns, (*columns, *definition.source.deduplicate_on))
    is_ordered = plan.mode is Mode.REPLAY or definition.source.deduplicate_on
    if is_ordered or list_files_with_rest(files, reading, reading.valid, Stores.from_environment()):
        return reading
    names = (reading.event_time, *columns, *filter(None, [reading.filter]))
    types = {name: plan.columns[name] for name in names}
    return replace(reading, arrival_time=reading.event_time, partition=None, sequence=None, types=types)


def _create_sample(
    database: duckdb.DuckDBPyConnection, duplicates: DuplicateQueries, span: Interval, is_sampled: str
) -> None:
    """Create the table `sampled` with the records of the sampled keys in an interval, without duplicates."""
    base = scan_query(duplicates.groups, duplicates.reading, span)
    if duplicates.identity.columns:
        # A copy of a record may have a key that is not in the sample.
        database.execute(
            f"CREATE TEMP TABLE identities AS SELECT DISTINCT {duplicates.by} FROM ({base})"
            f" WHERE {is_sampled} AND {duplicates.has_id}"
        )
        is_same = duplicates.is_same("r", "i")
        candidates = f"SELECT * FROM ({duplicates.scan(span)}) r SEMI JOIN identities i ON {is_same}"
        database.execute(f"CREATE TEMP TABLE copies AS {duplicates.ids_of_copies(candidates)}")
        base = f"SELECT * FROM ({duplicates.records(span, 'copies')}) WHERE NOT is_duplicate"
    database.execute(f"CREATE TEMP TABLE sampled AS SELECT * FROM ({base}) WHERE {is_sampled}")


def keep_sampled_keys(
    tables: Iterable[pa.Table], keys: Sequence[str], types: Mapping[str, str], share: float
) -> list[pa.Table]:
    """Return the rows of tables whose key is in the sample of a share.

    Args:
        tables: tables with the key columns.
        keys: the names of the key columns.
        types: the Spark SQL types of the source's columns.
        share: the share of the keys.
    """
    condition = _typed_key_condition(keys, types, share)
    kept = []
    with open_shared_database() as database:
        for table in tables:
            database.register("all_rows", table)
            kept.append(database.sql(f"SELECT * FROM all_rows WHERE {condition}").to_arrow_table())
            database.unregister("all_rows")
    return kept


def read_sampled_keys(
    paths: Sequence[str], columns: Sequence[Column], keys: Sequence[str], types: Mapping[str, str], share: float
) -> pa.Table | None:
    """Return the rows of local data files of a table whose key is in the sample of a share.

    Columns are found by their field ids; one that a file lacks is null.

    Args:
        paths: the Parquet files.
        columns: the field id, the name, and the Iceberg type of each column.
        keys: the names of the key columns.
        types: the Spark SQL types of the source's columns.
        share: the share of the keys.

    Returns:
        The rows; None if DuckDB cannot read a type.
    """
    known = {field_id: (name, ICEBERG_TYPES.get(kind)) for field_id, name, kind in columns}
    if None in {kind for _, kind in known.values()}:
        return None
    schema = ", ".join(
        f"{field_id}: {{name: {quote_text(name)}, type: {quote_text(str(kind))}, default_value: NULL}}"
        for field_id, (name, kind) in known.items()
    )
    files = ", ".join(map(quote_path, paths))
    with open_shared_database() as database:
        return database.sql(
            f"SELECT * FROM read_parquet([{files}], schema = MAP {{{schema}}})"
            f" WHERE {_typed_key_condition(keys, types, share)}"
        ).to_arrow_table()


def _typed_key_condition(keys: Sequence[str], types: Mapping[str, str], share: float) -> str:
    """Return the condition that the key is in a sample; columns of tables may have other types than the source."""
    return _key_condition([f"CAST({quote_name(name)} AS {duckdb_type(types[name])})" for name in keys], share)


def mark_new_records(rows: pa.Table, definition: Definition, sample: KeySample) -> pa.Table:
    """Return rows with the column `IS_NEW`: whether a row has a record of a new file in its window.

    Args:
        rows: rows with `window_start`, `window_end`, and the key columns.
        definition: the definition of the dataset.
        sample: the records of the keys.
    """
    names = [quote_name(name) for name in definition.source.key]
    is_same = [f"n.{name} IS NOT DISTINCT FROM r.{name}" for name in names]
    is_within = ["n.at >= r.window_start", "n.at < r.window_end"]
    at = f"{quote_name(str(definition.timed_source.event_time))}::TIMESTAMP WITH TIME ZONE"
    if zone := definition.window.spec().zone:
        at = to_timestamp(local_time(zone, f"epoch_ms({at})"))
    with open_shared_database() as database:
        database.register("changed", rows)
        database.execute(
            f"CREATE TEMP TABLE new AS SELECT {', '.join([*names, f'{at} AS at'])}"
            f" FROM read_parquet({quote_text(sample.file.path)}) WHERE {IS_NEW}"
        )
        if not database.execute("SELECT 1 FROM new LIMIT 1").fetchall():
            return rows.append_column(IS_NEW, pa.repeat(pa.scalar(value=False), rows.num_rows))
        numbered = "SELECT *, row_number() OVER () AS number FROM changed"
        database.execute(f"CREATE TEMP TABLE numbered AS {numbered}")
        marked = f"SELECT DISTINCT number FROM numbered r JOIN new n ON {' AND '.join([*is_same, *is_within])}"
        return database.sql(
            f"SELECT * EXCLUDE (number), number IN ({marked}) AS {IS_NEW} FROM numbered"
        ).to_arrow_table()


def _key_condition(columns: Sequence[str], share: float) -> str:
    """Return the condition that the key in some columns is in a sample; without columns, there is only one key."""
    if share >= 1 or not columns:
        return "true"
    return f"hash({', '.join(columns)}) < {int(share * _HASHES)}::UBIGINT"
