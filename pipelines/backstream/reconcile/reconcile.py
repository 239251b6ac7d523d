"""Reconciliation: what is asked for, read from both sides and compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from backstream.definition.aggregate_kinds import is_record_count
from backstream.definition.loader import load_definition, resolve_paths
from backstream.definition.model import Definition, SessionWindow
from backstream.errors import SpecError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.reconcile.comparison import Comparison, Reconciliation
from backstream.reconcile.frames import END as END_NAME
from backstream.reconcile.frames import START, TableShape, map_columns, parse_mapping, to_frame
from backstream.reconcile.frames import START as START_NAME
from backstream.reconcile.live_side import LiveOutput, load_live_output
from backstream.reconcile.pairs import collapse_copies
from backstream.reconcile.published_side import PublishedSide, load_published_side, load_shape, load_staged_side
from backstream.runs.home import Home
from backstream.runs.plan import Plan


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """What is to be compared: `run_id` takes a staged run instead of what is published."""

    definition_path: Path
    against: str
    columns: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    run_id: str | None = None


def reconcile_dataset(asked: ReconcileRequest, home: Home) -> Reconciliation:
    """Compare what is published, or staged, with a live system's output, and say why windows differ.

    The rules are in `causes.py`. Without a range, the time that both cover is compared.

    Raises:
        SpecError: when columns are missing or of another kind, theirs is empty, or both have no time in common.
        LedgerError: when nothing is published there, or the run has not finished.
    """
    definition = resolve_paths(load_definition(asked.definition_path), home)
    shape = load_shape(home, definition)
    known = [START_NAME, END_NAME, *shape.keys, *shape.aggregates]
    said, there = parse_mapping(asked.columns, known), load_live_output(asked.against, home)
    chosen = map_columns(said, shape.keys, shape.aggregates, there.names, there.where)
    shape = TableShape(shape.keys, tuple(each.name for each in chosen.aggregates), shape.types, shape.window_ms)
    rows = there.rows(chosen, shape.types)
    if not rows.num_rows:
        msg = f"{there.where} has no rows (--against)"
        raise SpecError(msg)
    theirs = to_frame(rows, chosen, shape, "theirs", there.where)
    ours = _ours(asked, definition, home, shape)
    interval = _interval(asked, definition, ours.windows, theirs, there)
    return Comparison(definition, shape, interval, home).compare(
        ours, collapse_copies(theirs, shape), there.where, _notes(shape, definition)
    )


def _ours(asked: ReconcileRequest, definition: Definition, home: Home, shape: TableShape) -> PublishedSide:
    since_ms, until_ms = asked.since_ms, asked.until_ms
    if asked.run_id is not None:
        return load_staged_side(Plan.read(home.run(definition.name, asked.run_id).plan), shape)
    both = None if since_ms is None or until_ms is None else Interval(since_ms, until_ms)
    return load_published_side(home, definition.name, shape, both)


def _interval(
    asked: ReconcileRequest, definition: Definition, ours: pd.DataFrame, theirs: pd.DataFrame, there: LiveOutput
) -> Interval:
    """What was asked for; on a side without a bound, the time that both cover."""
    unit_ms = 1 if isinstance(definition.window, SessionWindow) else definition.unit_ms
    of_ours, of_theirs = (_extent(each, unit_ms) for each in (ours[ours["is_ours"]], theirs))
    since_ms = max(of_ours.start_ms, of_theirs.start_ms) if asked.since_ms is None else asked.since_ms
    until_ms = min(of_ours.end_ms, of_theirs.end_ms) if asked.until_ms is None else asked.until_ms
    if since_ms < until_ms and of_theirs.overlaps(Interval(since_ms, until_ms)):
        return Interval(since_ms, until_ms)
    asked_for = f"\n  asked for {_text(asked.since_ms)} to {_text(asked.until_ms)}"
    msg = (
        f"{there.where} and ours have no time in common\n  theirs has windows from {of_theirs}\n"
        f"  ours has windows from {of_ours}{asked_for if (asked.since_ms, asked.until_ms) != (None, None) else ''}"
    )
    raise SpecError(msg)


def _extent(rows: pd.DataFrame, unit_ms: int) -> Interval:
    """From the first window's start to where the one after the last would start."""
    return Interval(int(rows[START].min()), int(rows[START].max()) + unit_ms)


def _text(value_ms: int | None) -> str:
    return "any time" if value_ms is None else instant_text(value_ms)


def _notes(shape: TableShape, definition: Definition) -> list[str]:
    left_out = [name for name in definition.aggregates if name not in shape.aggregates]
    notes = [f"not compared: {', '.join(left_out)}"] if left_out else []
    if not any(is_record_count(definition.aggregates[name]) for name in shape.aggregates):
        notes.append("no compared aggregate is count(*): what needs counts of records cannot be told")
    return notes
