"""Checks of staged files, from their footers, before a commit makes them visible."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import ContractError, LedgerError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.parquet_footer import Footer
from backstream.runs.plan import Plan, PlannedTable

_FIELD_ID = b"PARQUET:field_id"
_US_PER_MS = 1_000
_NAMES_SHOWN = 10
_REMEMBERED = 10_000
"""Footers, of some KB each."""
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
    """Check that each chunk of the plan left one manifest, of this run, in which no record is lost.

    Raises:
        LedgerError: when a chunk has none, or more than one, or one of another run or plan.
        ContractError: when a chunk's fates do not add up, or it says nothing about a table.
    """
    run_id, wanted = plan.run_id, [chunk.chunk_id for chunk in plan.chunks]
    _require_one_each(run_id, wanted, manifests)
    for manifest in manifests:
        counted = sum(sum(fates.values()) for fates in manifest.fates.values())
        if manifest.events_read != counted:
            read = f"chunk {manifest.chunk_id} of run {run_id} read {manifest.events_read} events"
            msg = f"{read}, its fates count {counted}"
            raise ContractError(msg)
        if set(manifest.files) != set(plan.tables):
            raise _other_tables(plan, manifest)


def check_staged_files(plan: Plan, suffix: str, manifests: Sequence[Manifest]) -> list[StagedFile]:
    """The files staged for one table, each found to be what its manifest and the plan say.

    Raises:
        ContractError: naming the first file that is not, and all that is wrong with it.
    """
    table, folder = plan.tables[suffix], plan.staging(suffix)
    owned = {chunk.chunk_id: chunk.interval for chunk in plan.chunks}
    listed = [(owned[manifest.chunk_id], file) for manifest in manifests for file in manifest.files[suffix]]
    checked: dict[str, StagedFile] = {}
    for interval, file in listed:
        if file.path in checked:
            raise _broken(table, file, ["is listed more than once"])
        if found := list(_problems(table, folder, interval, file)):
            raise _broken(table, file, found)
        checked[file.path] = file
    return list(checked.values())


def _require_one_each(run_id: str, wanted: Sequence[str], manifests: Sequence[Manifest]) -> None:
    for manifest in manifests:
        if manifest.run_id != run_id:
            msg = f"the manifest of chunk {manifest.chunk_id} is of run {manifest.run_id}, expected {run_id}"
            raise LedgerError(msg)
    found = Counter(manifest.chunk_id for manifest in manifests)
    faults = {
        "left no manifest": [each for each in wanted if each not in found],
        "left more than one manifest": [each for each in wanted if found[each] > 1],
        "left a manifest but are not in the plan": sorted(found.keys() - set(wanted)),
    }
    for fault, chunk_ids in faults.items():
        if chunk_ids:
            msg = f"run {run_id} of {len(wanted)} chunks: {len(chunk_ids)} {fault} ({_named(chunk_ids)})"
            raise LedgerError(msg)


def _other_tables(plan: Plan, manifest: Manifest) -> ContractError:
    unnamed = [f"`{plan.tables[each].name}` is missing" for each in plan.tables if each not in manifest.files]
    unknown = [f"{each!r} is not planned" for each in manifest.files if each not in plan.tables]
    facts = "".join(f"\n  {fact}" for fact in unnamed + unknown)
    return ContractError(
        f"the manifest of chunk {manifest.chunk_id} must list the files of each planned table{facts}"
    )


def _problems(table: PlannedTable, folder: Path, interval: Interval, file: StagedFile) -> Iterator[str]:
    if os.path.normpath(file.path) != file.path or not file.path.startswith(f"{folder}/"):
        yield f"must lie in {folder}"  # so that no run takes in, or takes away, what another staged
        return
    try:
        end = Footer.from_file(file.path)
        rows, found = _looked_up(end.content, table, interval)
    except FileNotFoundError:
        yield "there is no such file"
    except (OSError, ValueError) as error:  # Arrow's own errors are among these
        yield f"cannot be read as Parquet: {error}"
    else:
        if end.size_bytes != file.size_bytes:
            yield f"has {end.size_bytes} bytes, the manifest says {file.size_bytes}"
        if rows != file.rows:
            yield f"has {rows} rows, the manifest says {file.rows}"
        elif file.digest and end.digest != file.digest:
            yield "is another file than the job wrote: its footer is not the one that the manifest knows"
        yield from found


@lru_cache(_REMEMBERED)
def _looked_up(content: bytes, table: PlannedTable, interval: Interval) -> tuple[int, tuple[str, ...]]:
    """The rows of a file and what is wrong with it, by the bytes of its footer alone.

    Audit and publication both read the footer of each file; where it is the same, it need not be looked at twice.
    """
    footer = pq.read_metadata(pa.BufferReader(content))
    return footer.num_rows, tuple(_content_problems(footer, table, interval))


def _content_problems(footer: Any, table: PlannedTable, interval: Interval) -> Iterator[str]:
    if footer.num_rows == 0:
        yield "has no rows: a table without rows is staged as no file at all"
    elif found := list(_column_problems(footer, table)):
        yield from found
    elif table.day_column is not None:
        yield from _day_problems(footer, table.day_column, interval)


def _column_problems(footer: Any, table: PlannedTable) -> Iterator[str]:
    schema = footer.schema.to_arrow_schema()
    for name, kind, field_id, required in table.columns:
        if name not in schema.names:
            yield f"{name}: expected {kind}, there is no such column"
            continue
        field = schema.field(name)
        if (found := _type_text(field.type)) != kind.replace(" ", ""):
            yield f"{name}: expected {kind}, found {found}"
        if (found_id := _field_id(field)) != field_id:
            yield f"{name}: expected field id {field_id}, found {found_id}"
        if required:
            yield from _null_problems(footer, name)
    known = {name for name, *_ in table.columns}
    yield from (f"{name}: no column of the table" for name in schema.names if name not in known)


def _null_problems(footer: Any, name: str) -> Iterator[str]:
    chunks = list(_chunks(footer, name))
    if not all(_counts_nulls(chunk) for chunk in chunks):
        yield f"{name}: must have a value in each row, the footer does not count nulls"
    elif nulls := sum(chunk.statistics.null_count for chunk in chunks):
        yield f"{name}: must have a value in each row, {nulls} of {footer.num_rows} have none"


def _day_problems(footer: Any, name: str, interval: Interval) -> Iterator[str]:
    """A file holds one day, so that a day can be replaced by files, and only what its chunk owns."""
    bounds = [chunk.statistics for chunk in _chunks(footer, name)]
    if not all(each is not None and each.has_min_max for each in bounds):
        yield f"{name}: the footer has no bounds"
        return
    # Raw, because exact microseconds decide: the column's type was found to be just that.
    first_ms = min(each.min_raw for each in bounds) // _US_PER_MS
    last_ms = max(each.max_raw for each in bounds) // _US_PER_MS
    is_within = interval.start_ms <= first_ms and last_ms < interval.end_ms
    is_one_day = first_ms // DAY_MS == last_ms // DAY_MS
    if is_within and is_one_day:
        return
    span = f"{instant_text(first_ms)} to {instant_text(last_ms)}"
    if not is_within:
        yield f"{name}: {span} is not within its chunk, {interval}"
    if not is_one_day:
        yield f"{name}: {span} is more than one UTC day"


def _chunks(footer: Any, name: str) -> Iterator[Any]:
    """The column's part of each row group."""
    position = footer.schema.names.index(name)
    yield from (footer.row_group(group).column(position) for group in range(footer.num_row_groups))


def _counts_nulls(chunk: Any) -> bool:
    return chunk.statistics is not None and chunk.statistics.has_null_count


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPES.get(kind, str(kind))


def _broken(table: PlannedTable, file: StagedFile, found: Sequence[str]) -> ContractError:
    facts = "".join(f"\n  {each}" for each in (file.path, *found))
    return ContractError(f"a file staged for table `{table.name}` breaks its contract{facts}")


def _named(chunk_ids: Sequence[str]) -> str:
    more = len(chunk_ids) - _NAMES_SHOWN
    return ", ".join(chunk_ids[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
