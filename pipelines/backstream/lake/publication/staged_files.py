"""Check staged files by their footers, before a commit makes them visible."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import ContractError, LedgerError, StepError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Plan, PlannedTable
from backstream.storage.stores import Stores, is_below, map_files
from backstream.text import count_of

_FIELD_ID = b"PARQUET:field_id"
_US_PER_MS = 1_000
_MAX_NAMES = 10
_MAX_CACHED_FOOTERS = 10_000
"""A footer has a few kilobytes."""
_TYPES: Mapping[pa.DataType, str] = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.int64(): "long",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.float32(): "float",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


def require_complete_staging(plan: Plan, manifests: Sequence[Manifest]) -> None:
    """Check that each chunk of the plan has one manifest, of this run, whose counts add up.

    Raises:
        StepError: if a chunk has no manifest.
        LedgerError: if a chunk has several manifests, or one of another run or plan.
        ContractError: if the fates of a chunk don't add up, or its manifest lacks a table.
    """
    run_id, chunk_ids = plan.run_id, [chunk.chunk_id for chunk in plan.chunks]
    _require_one_each(run_id, chunk_ids, manifests)
    for manifest in manifests:
        fate_count = sum(sum(fates.values()) for fates in manifest.fates.values())
        if manifest.events_read != fate_count:
            events = f"chunk {manifest.chunk_id} of run {run_id} read {manifest.events_read} events"
            msg = f"{events}, its fates add up to {fate_count}"
            raise ContractError(msg)
        if set(manifest.files) != set(plan.tables):
            raise _wrong_tables_error(plan, manifest)


def check_staged_files(plan: Plan, suffix: str, manifests: Sequence[Manifest]) -> list[StagedFile]:
    """Return the files staged for one table, each checked against its manifest and the plan.

    Raises:
        ContractError: with the first faulty file and all its problems.
    """
    table, folders = plan.tables[suffix], (str(plan.staging(suffix)), plan.stored_staging(suffix))
    stores = Stores.from_environment()
    intervals = {chunk.chunk_id: chunk.interval for chunk in plan.chunks}
    listed = [(intervals[manifest.chunk_id], file) for manifest in manifests for file in manifest.files[suffix]]
    paths = Counter(file.path for _, file in listed)
    if repeated := [file for _, file in listed if paths[file.path] > 1]:
        raise _broken_file_error(table, repeated[0], ["is listed more than once"])

    def find_problems(each: tuple[Interval, StagedFile]) -> list[str]:
        return list(_file_problems(table, folders, *each, stores))

    files = {file.path: (interval, file) for interval, file in listed}
    for (_, file), problems in zip(listed, map_files(find_problems, files), strict=True):
        if problems:
            raise _broken_file_error(table, file, problems)
    return [file for _, file in listed]


def _require_one_each(run_id: str, planned: Sequence[str], manifests: Sequence[Manifest]) -> None:
    for manifest in manifests:
        if manifest.run_id != run_id:
            msg = f"the manifest of chunk {manifest.chunk_id} is of run {manifest.run_id}, expected {run_id}"
            raise LedgerError(msg)
    counts, whole = Counter(manifest.chunk_id for manifest in manifests), count_of(len(planned), "chunk")
    if missing := [chunk_id for chunk_id in planned if chunk_id not in counts]:
        fact = f"run {run_id} of {whole}: {len(missing)} left no manifest ({_names_text(missing)})"
        msg = f"{fact}\n\nhint: clear the task replay of the run with all tasks after it"
        raise StepError(msg)
    faults = {
        "left more than one manifest": [chunk_id for chunk_id in planned if counts[chunk_id] > 1],
        "left a manifest but are not in the plan": sorted(counts.keys() - set(planned)),
    }
    for fault, chunk_ids in faults.items():
        if chunk_ids:
            msg = f"run {run_id} of {whole}: {len(chunk_ids)} {fault} ({_names_text(chunk_ids)})"
            raise LedgerError(msg)


def _wrong_tables_error(plan: Plan, manifest: Manifest) -> ContractError:
    missing = [
        f"`{plan.tables[suffix].name}` is missing" for suffix in plan.tables if suffix not in manifest.files
    ]
    unknown = [f"{suffix!r} is not planned" for suffix in manifest.files if suffix not in plan.tables]
    facts = "".join(f"\n  {fact}" for fact in missing + unknown)
    return ContractError(
        f"the manifest of chunk {manifest.chunk_id} must list the files of each planned table{facts}"
    )


def _file_problems(
    table: PlannedTable, folders: Sequence[str], interval: Interval, file: StagedFile, stores: Stores
) -> Iterator[str]:
    scheme, separator, path = file.path.rpartition("://")
    is_plain = scheme + separator + os.path.normpath(path) == file.path
    if not is_plain or not any(is_below(file.path, folder) for folder in folders):
        # A run must neither publish nor remove the files of another run.
        yield f"must be in {' or '.join(dict.fromkeys(folders))}"
        return
    try:
        footer = stores.read_footer(file.path)
        rows, content_problems = _check_footer(footer.content, table, interval)
    except FileNotFoundError:
        yield "there is no such file"
    except (OSError, ValueError) as error:  # Arrow raises these types
        yield f"cannot be read as Parquet: {error}"
    else:
        if footer.size_bytes != file.size_bytes:
            yield f"has {footer.size_bytes} bytes, expected {file.size_bytes} by its manifest"
        if rows != file.rows:
            yield f"has {rows} rows, expected {file.rows} by its manifest"
        elif file.digest and footer.digest != file.digest:
            yield "is not the file that the job wrote: its footer differs from the one in the manifest"
        yield from content_problems


@lru_cache(_MAX_CACHED_FOOTERS)
def _check_footer(content: bytes, table: PlannedTable, interval: Interval) -> tuple[int, tuple[str, ...]]:
    """Return the number of rows of a file and its problems, from the bytes of its footer.

    The audit and the publication both check each file. The cache avoids a second check of an unchanged footer.
    """
    footer = pq.read_metadata(pa.BufferReader(content))
    return footer.num_rows, tuple(_content_problems(footer, table, interval))


def _content_problems(footer: Any, table: PlannedTable, interval: Interval) -> Iterator[str]:
    if footer.num_rows == 0:
        yield "has no rows: a table without rows must be staged without files"
    elif problems := list(_column_problems(footer, table)):
        yield from problems
    elif table.day_column is not None:
        yield from _day_problems(footer, table.day_column, interval)


def _column_problems(footer: Any, table: PlannedTable) -> Iterator[str]:
    schema = footer.schema.to_arrow_schema()
    for name, type_name, field_id, required in table.columns:
        if name not in schema.names:
            yield f"{name}: expected {type_name}, found no such column"
            continue
        field = schema.field(name)
        if (actual := _type_text(field.type)) != type_name.replace(" ", ""):
            yield f"{name}: expected {type_name}, found {actual}"
        if (actual_id := _field_id(field)) != field_id:
            yield f"{name}: expected field id {field_id}, found {actual_id}"
        if required:
            yield from _null_problems(footer, name)
    planned_names = {name for name, *_ in table.columns}
    yield from (f"{name}: expected no such column" for name in schema.names if name not in planned_names)


def _null_problems(footer: Any, name: str) -> Iterator[str]:
    chunks = list(_column_chunks(footer, name))
    if not all(_has_null_count(chunk) for chunk in chunks):
        yield f"{name}: must have a value in each row, the footer has no count of nulls"
    elif nulls := sum(chunk.statistics.null_count for chunk in chunks):
        yield f"{name}: must have a value in each row, {nulls} of {footer.num_rows} have none"


def _day_problems(footer: Any, name: str, interval: Interval) -> Iterator[str]:
    """Check that a file holds one day of its chunk, because a publication replaces the files of whole days."""
    bounds = [chunk.statistics for chunk in _column_chunks(footer, name)]
    if not all(statistics is not None and statistics.has_min_max for statistics in bounds):
        yield f"{name}: the footer has no bounds"
        return
    # The raw values are exact microseconds, because the type of the column was checked before.
    first_ms = min(statistics.min_raw for statistics in bounds) // _US_PER_MS
    last_ms = max(statistics.max_raw for statistics in bounds) // _US_PER_MS
    is_within = interval.start_ms <= first_ms and last_ms < interval.end_ms
    is_one_day = first_ms // DAY_MS == last_ms // DAY_MS
    if is_within and is_one_day:
        return
    span = f"{instant_text(first_ms)} to {instant_text(last_ms)}"
    if not is_within:
        yield f"{name}: {span} is not within its chunk, {interval}"
    if not is_one_day:
        yield f"{name}: {span} is more than one UTC day"


def _column_chunks(footer: Any, name: str) -> Iterator[Any]:
    """Yield the column's part of each row group."""
    position = footer.schema.names.index(name)
    yield from (footer.row_group(group).column(position) for group in range(footer.num_row_groups))


def _has_null_count(chunk: Any) -> bool:
    return chunk.statistics is not None and chunk.statistics.has_null_count


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"list<{_type_text(kind.value_type)}>"
    return _TYPES.get(kind, str(kind))


def _broken_file_error(table: PlannedTable, file: StagedFile, problems: Sequence[str]) -> ContractError:
    facts = "".join(f"\n  {fact}" for fact in (file.path, *problems))
    return ContractError(f"a file staged for table `{table.name}` breaks its contract{facts}")


def _names_text(chunk_ids: Sequence[str]) -> str:
    more = len(chunk_ids) - _MAX_NAMES
    return ", ".join(chunk_ids[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
