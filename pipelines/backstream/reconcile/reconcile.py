"""Reconcile a dataset with a live system: load both sides, choose the range, and compare."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.mergeable import is_record_count
from backstream.definition.model import Definition
from backstream.definition.result_sections import SessionWindow
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, SECOND_MS, epoch_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.reconcile.comparison import Comparison, Reconciliation
from backstream.reconcile.frames import START, TableShape, map_columns, parse_mapping, to_frame
from backstream.reconcile.live_side import LiveOutput, load_live_output
from backstream.reconcile.pairs import collapse_copies
from backstream.reconcile.published_side import PublishedSide, load_published_side, load_shape, load_staged_side
from backstream.runs.dataset_state import ReconciledDay, record_reconciled_days
from backstream.runs.home import Home
from backstream.runs.store import Runs
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START

_VALUES = ("window_start", "window_end", "cause", "aggregate", "ours", "theirs", "difference", "evidence")


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """Request of a comparison; `run_id` selects the staged windows of a run instead of the published ones."""

    definition_path: Path
    against: str
    columns: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    run_id: str | None = None


def reconcile_dataset(asked: ReconcileRequest, home: Home) -> Reconciliation:
    """Compare published or staged windows with the output of a live system, and classify the differences.

    The rules are in `causes.py`. The default range is the time that both sides cover.

    Raises:
        SpecError: when columns are missing or have another type, the live output is empty, or both sides have no
            time in common.
        LedgerError: when nothing is published there, or the run has not finished.
    """
    definition = resolve_paths(load_definition(asked.definition_path), home)
    shape = load_shape(home, definition)
    names = [WINDOW_START, WINDOW_END, *shape.keys, *shape.aggregates]
    mappings, live = parse_mapping(asked.columns, names), load_live_output(asked.against, home)
    columns = map_columns(mappings, shape.keys, shape.aggregates, live.names, live.where)
    shape = replace(shape, aggregates=tuple(column.name for column in columns.aggregates))
    rows = live.rows(columns, shape.types)
    if not rows.num_rows:
        msg = f"{live.where} has no rows (--against)"
        raise SpecError(msg)
    theirs = to_frame(rows, columns, shape, "theirs", live.where)
    ours = _load_ours(asked, definition, home, shape)
    interval = _compared_interval(asked, definition, ours.windows, theirs, live)
    return Comparison(definition, shape, interval, home).compare(
        ours, collapse_copies(theirs, shape), live.where, _notes(shape, definition)
    )


def _load_ours(asked: ReconcileRequest, definition: Definition, home: Home, shape: TableShape) -> PublishedSide:
    since_ms, until_ms = asked.since_ms, asked.until_ms
    if asked.run_id is not None:
        return load_staged_side(Runs(home).plan(definition.name, asked.run_id), shape)
    interval = None if since_ms is None or until_ms is None else Interval(since_ms, until_ms)
    return load_published_side(home, definition.name, shape, interval)


def _compared_interval(
    asked: ReconcileRequest, definition: Definition, ours: pd.DataFrame, theirs: pd.DataFrame, live: LiveOutput
) -> Interval:
    """Return the requested range; a missing bound is that of the time that both sides cover."""
    unit_ms = 1 if isinstance(definition.window, SessionWindow) else definition.unit_ms
    our_span, live_span = _extent(ours[ours["is_ours"]], unit_ms), _extent(theirs, unit_ms)
    since_ms = max(our_span.start_ms, live_span.start_ms) if asked.since_ms is None else asked.since_ms
    until_ms = min(our_span.end_ms, live_span.end_ms) if asked.until_ms is None else asked.until_ms
    if since_ms < until_ms and live_span.overlaps(Interval(since_ms, until_ms)):
        return Interval(since_ms, until_ms)
    lines = [
        f"{live.where} and {definition.name} have no time in common",
        f"  {live.where} has windows from {live_span}",
        f"  {definition.name} has windows from {our_span}",
    ]
    if (asked.since_ms, asked.until_ms) != (None, None):
        lines.append(f"  requested: {_bound_text(asked.since_ms)} to {_bound_text(asked.until_ms)}")
    raise SpecError("\n".join(lines))


def _extent(rows: pd.DataFrame, unit_ms: int) -> Interval:
    """Return the span from the first window start to the next start after the last window."""
    return Interval(int(rows[START].min()), int(rows[START].max()) + unit_ms)


def _bound_text(value_ms: int | None) -> str:
    return "any time" if value_ms is None else instant_text(value_ms)


def _notes(shape: TableShape, definition: Definition) -> list[str]:
    excluded = [name for name in definition.value_names if name not in shape.aggregates]
    notes = [f"not compared: {', '.join(excluded)}"] if excluded else []
    if not any(is_record_count(definition.aggregates.get(name)) for name in shape.aggregates):
        notes.append("no compared aggregate is count(*): rules that need record counts are not applied")
    return notes


def record_comparison(home: Home, result: Reconciliation) -> None:
    """Record the result of each compared day; a later comparison of the day replaces it.

    Raises:
        StorageError: when the home cannot be written.
    """
    record_reconciled_days(home, result.dataset, list(_summarize_days(result)))


def _summarize_days(result: Reconciliation) -> Iterator[ReconciledDay]:
    at_ms, differing, largest = int(time.time() * SECOND_MS), dict[int, int](), dict[int, dict[str, Any]]()
    for row in result.differing.to_pylist():
        start_ms = epoch_ms(row[WINDOW_START])
        day_ms = start_ms // DAY_MS * DAY_MS
        differing[day_ms] = differing.get(day_ms, 0) + 1
        largest.setdefault(day_ms, _describe_row(row, start_ms))
    for day_ms, windows in result.days.items():
        yield ReconciledDay(day_ms, at_ms, result.theirs, windows, differing.get(day_ms, 0), largest.get(day_ms))


def _describe_row(row: dict[str, Any], start_ms: int) -> dict[str, Any]:
    keys = " ".join(str(value) for name, value in row.items() if name not in _VALUES)
    texts = {
        name: "none" if row[name] is None else str(row[name]) for name in ("aggregate", "ours", "theirs", "cause")
    }
    return {"window_start": instant_text(start_ms), "keys": keys, **texts}
