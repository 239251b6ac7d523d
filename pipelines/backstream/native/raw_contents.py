"""Summarize the records of prepared files per raw file and slice of event time, with DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.definition.prepared_columns import ARRIVAL_TIME, EVENT_TIME, FILE, LINE
from backstream.native.database import duckdb_version, open_database
from backstream.native.sql import quote_name, quote_path, quote_text
from backstream.source.raw_contents import MAX_SLICES, WIDTHS_MS, RawContents, contents_schema
from backstream.source.raw_files import RawFile, path_in_records, path_of_uri

if TYPE_CHECKING:
    import duckdb

_MEMORY_MB = 1_000


def summarize_contents(folder: Path, files: Sequence[RawFile], made_with: str) -> RawContents:
    """Return the contents of raw files by their prepared files.

    The slices are as narrow as the number of slices allows.

    Args:
        folder: the folder of the prepared files.
        files: the raw files.
        made_with: a digest of the code and the side inputs that changed the records.
    """
    paths = sorted(map(str, folder.glob("*.parquet")))
    columns = {name for path in paths for name in pq.read_schema(path).names}
    if not paths:
        return RawContents(
            tuple(files), made_with, duckdb_version(), WIDTHS_MS[0], contents_schema().empty_table()
        )
    with open_database(_MEMORY_MB) as database:
        listed = ", ".join(map(quote_path, paths))
        file = FILE if FILE in columns else "NULL::VARCHAR"
        arrival = _floor(f"epoch_us({ARRIVAL_TIME})", 1_000) if ARRIVAL_TIME in columns else "NULL::BIGINT"
        database.execute(
            f"CREATE VIEW records AS SELECT {file} AS uri, {_floor(f'epoch_us({EVENT_TIME})', 1_000)} AS event_ms,"
            f" {arrival} AS arrival_ms, {_hash_of(columns - {FILE, LINE})} AS hash"
            f" FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        )
        width_ms = _choose_width(database)
        rows = database.sql(
            f"SELECT uri, {_slice(width_ms)} AS slice_ms, count(*) AS records,"
            f" (sum(hash) % {2**64})::UBIGINT AS checksum, min(arrival_ms) AS first_arrival_ms"
            " FROM records GROUP BY ALL"
        ).to_arrow_table()
    return RawContents(tuple(files), made_with, duckdb_version(), width_ms, _with_file_numbers(rows, files))


def _choose_width(database: duckdb.DuckDBPyConnection) -> int:
    counts = ", ".join(f"approx_count_distinct(hash(uri, {_slice(width_ms)}))" for width_ms in WIDTHS_MS)
    [slices] = database.execute(f"SELECT {counts} FROM records").fetchall()
    fitting = [width_ms for width_ms, count in zip(WIDTHS_MS, slices, strict=True) if count <= MAX_SLICES]
    return min(fitting, default=WIDTHS_MS[-1])


def _slice(width_ms: int) -> str:
    return f"{_floor('event_ms', width_ms)} * {width_ms}"


def _floor(value: str, divisor: int) -> str:
    """Return a quotient that is rounded down; DuckDB's division truncates towards zero."""
    return f"(({value} - ({value} % {divisor} + {divisor}) % {divisor}) // {divisor})"


def _hash_of(columns: set[str]) -> str:
    """Return the hash of a record. A column without a value counts as one that the file lacks."""
    combined = "0::UBIGINT"
    for name in sorted(columns):
        value = quote_name(name)
        own = f"CASE WHEN {value} IS NULL THEN 0::UBIGINT ELSE hash({quote_text(name)}, {value}) END"
        combined = f"xor({combined}, {own})"
    return f"hash({combined})"


def _with_file_numbers(rows: pa.Table, files: Sequence[RawFile]) -> pa.Table:
    uris = rows["uri"].combine_chunks().dictionary_encode()
    number_by_path = {path_in_records(file.path): number for number, file in enumerate(files)}
    numbers = pa.array([number_by_path.get(path_of_uri(uri)) for uri in uris.dictionary.to_pylist()], pa.int32())
    return pa.table(
        [pc.take(numbers, uris.indices), *(rows[name] for name in contents_schema().names[1:])],
        schema=contents_schema(),
    )
