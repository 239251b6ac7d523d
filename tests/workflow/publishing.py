"""Publish counts of clicks without Spark: compute and stage them with simple loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import epoch_ms, utc_datetime
from backstream.eventtime.windows import Session, TimeWindow
from backstream.lake.publication.publish import publish_range
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import WINDOWS
from backstream.workflow.publish import create_run_tables

ARROW_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamptz": pa.timestamp("us", "UTC")}
Click = tuple[Any, ...]
Counted = Counter[tuple[str, TimeWindow]]


def publish_counts(plan: Plan, rows: Sequence[Click]) -> Counted:
    """Stage and publish the windows of a recompute of these clicks, and return them."""
    counted = stage_counts(plan, rows)
    manifests = [Manifest.read(plan.folder.manifest(chunk.chunk_id)) for chunk in plan.chunks]
    publish_range(plan, manifests).write(plan.folder.publication)
    return counted


def stage_counts(plan: Plan, rows: Sequence[Click]) -> Counted:
    """Create the tables, stage the windows, and return them."""
    create_run_tables(plan)
    counted = counts(plan, rows)
    duplicates = sum(row[0] is not None for row in rows) - len(_unique(plan, rows))
    for chunk in plan.chunks:
        _staged(plan, chunk, counted, duplicates).write(plan.folder.manifest(chunk.chunk_id))
    return counted


def counts(plan: Plan, rows: Iterable[Click]) -> Counted:
    """Count the clicks per page and window of the plan's range; a repeated click counts once."""
    window = parse_definition(plan.definition, "plan").window.spec()
    events = [(row[4], epoch_ms(row[0])) for row in _unique(plan, rows)]
    counted = _sessions(events, window) if isinstance(window, Session) else _windows(events, window)
    inside = {place: count for place, count in counted.items() if _starts_within(plan, place[1])}
    return Counter(inside)


def _unique(plan: Plan, rows: Iterable[Click]) -> list[Click]:
    """Return the clicks that are not duplicates."""
    clicks = sorted((row for row in rows if row[0] is not None), key=lambda row: (row[1], row[3], row[2]))
    ids = [((row[2], row[3]), epoch_ms(row[0])) for row in clicks]
    marks = parse_definition(plan.definition, "plan").source.identity.mark_duplicates(ids)
    return [row for row, is_copy in zip(clicks, marks, strict=True) if not is_copy]


def _starts_within(plan: Plan, window: TimeWindow) -> bool:
    return plan.since_ms <= window.start_ms < plan.until_ms


def _windows(events: Iterable[tuple[str, int]], window: Any) -> Counted:
    return Counter((page, each) for page, at_ms in events for each in window.assign(at_ms))


def _sessions(events: Iterable[tuple[str, int]], window: Session) -> Counted:
    counted: Counted = Counter()
    last: dict[str, TimeWindow] = {}
    for page, at_ms in sorted(events, key=lambda event: event[1]):
        own, before = TimeWindow(at_ms, at_ms + window.gap_ms), last.get(page)
        if before and at_ms <= before.end_ms:
            count = counted.pop((page, before))
            own = TimeWindow(before.start_ms, own.end_ms)
        else:
            count = 0
        counted[page, own] = count + 1
        last[page] = own
    return counted


def _staged(plan: Plan, chunk: Chunk, counted: Counted, duplicates: int) -> Manifest:
    """Write a file per day, as the lake requires."""
    days: dict[int, list[tuple[str, TimeWindow]]] = {}
    for page, window in counted:
        if chunk.start_ms <= window.start_ms < chunk.end_ms:
            days.setdefault(window.start_ms // 86_400_000, []).append((page, window))
    files = tuple(_file(plan, f"{chunk.chunk_id}-{day}", places, counted) for day, places in days.items())
    total = sum(counted[place] for places in days.values() for place in places)
    fates = {"A": {"on_time": total, "duplicate": duplicates}}
    staged = {suffix: files if suffix == WINDOWS else () for suffix in plan.tables}
    return Manifest(plan.run_id, chunk.chunk_id, "0", total + duplicates, fates, staged)


def _file(plan: Plan, name: str, places: Sequence[tuple[str, TimeWindow]], counted: Counted) -> StagedFile:
    table = plan.tables[WINDOWS]
    content = {
        "window_start": [utc_datetime(window.start_ms) for _, window in places],
        "window_end": [
            utc_datetime(window.start_ms) + timedelta(milliseconds=_size_ms(window)) for _, window in places
        ],
        "page": [page for page, _ in places],
        "clicks": [counted[place] for place in places],
        "record_count": [counted[place] for place in places],
        "run_id": [plan.run_id] * len(places),
    }
    fields = [
        pa.field(column, ARROW_TYPES[kind], metadata={b"PARQUET:field_id": str(field_id).encode()})
        for column, kind, field_id, _ in table.columns
    ]
    path = plan.staging(WINDOWS) / name / "part-0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({each.name: content[each.name] for each in fields}, schema=pa.schema(fields)), path)
    return StagedFile(str(path), path.stat().st_size, len(places))


def _size_ms(window: TimeWindow) -> int:
    return window.end_ms - window.start_ms
