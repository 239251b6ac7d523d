"""Explain a published row: its records, watermarks, and firings, recomputed by the reference engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from backstream.definition.model import Definition
from backstream.errors import LedgerError, SpecError
from backstream.eventtime.instants import DAY_MS, epoch_ms, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Cumulate, Session, TimeWindow
from backstream.lake.published_windows import load_published_windows
from backstream.lake.reader import load_window_rows
from backstream.lake.run_rows import list_runs
from backstream.native.raw_input import RawInput, Target
from backstream.reconcile.reconcile import ReconcileRequest, reconcile_dataset
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.store import Runs
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.workflow.explanation import Difference, Explanation
from backstream.workflow.recomputation.values import are_equal, rounding_error
from backstream.workflow.recomputation.windows import RecomputedWindow, recompute_windows


def explain_window(home: Home, dataset: str, window: str, key: Mapping[str, str | None]) -> Explanation:
    """Return the explanation of a published row.

    Args:
        home: the home folder.
        dataset: the dataset.
        window: the start of the window, or `START/END`; sessions and cumulating windows need the end if there are
            several with this start.
        key: the values of all key columns as text; None is null.

    Raises:
        SpecError: when no window begins then, or the key does not fit.
        LedgerError: when no run published the day of the window.
        PlanError: when the reference engine cannot compute the dataset, or an input file does not exist.
    """
    start_text, _, end_text = window.partition("/")
    start_ms = instant_ms(start_text, "--window")
    end_ms = instant_ms(end_text, "--window") if end_text else None
    plan = _find_plan(home, dataset, start_ms)
    raw = RawInput.from_plan(plan, "explain")
    values = raw.parse_key(key)
    rows = load_window_rows(home, dataset, [start_ms], dict(zip(raw.definition.source.key, values, strict=True)))
    target = Target(_find_window(raw.definition, start_ms, end_ms, rows), values)
    row = next((row for row in rows if epoch_ms(row["window_end"]) == target.window.end_ms), None)
    if row is not None and row["run_id"] != plan.run_id:
        plan = Runs(home).plan(dataset, row["run_id"])
        raw = RawInput.from_plan(plan, "explain")
    return explain_row(home, raw, target, row)


def explain_row(home: Home, raw: RawInput, target: Target, row: Mapping[str, Any] | None) -> Explanation:
    """Return the explanation of a row, or of its absence, under the plan of a run."""
    (recomputed,) = recompute_windows(raw, [target])
    run = next((each for each in list_runs(home, raw.plan.dataset) if each.run_id == raw.plan.run_id), None)
    differences = compare_row(raw, recomputed, row)
    columns = list(dict.fromkeys(each.column for each in raw.aggregates if each.column))
    return Explanation(raw.plan, raw.definition, recomputed, row, differences, raw.not_recomputed, columns, run)


def compare_row(raw: RawInput, recomputed: RecomputedWindow, row: Mapping[str, Any] | None) -> list[Difference]:
    """Return the columns in which the table and the reference engine differ."""
    if row is None:
        # Only Spark can evaluate the condition or the order by which a row is withheld.
        is_absent = recomputed.values is None or raw.definition.withholds_rows
        return [] if is_absent else [Difference(RECORD_COUNT, None, recomputed.record_count)]
    if recomputed.values is None:
        return [Difference(RECORD_COUNT, row[RECORD_COUNT], None)]
    values = {RECORD_COUNT: recomputed.record_count, **recomputed.values}
    rows = [each.record.values for each in recomputed.records]
    errors = {each.name: rounding_error(each, raw.plan.columns, rows) for each in raw.aggregates}
    return [
        Difference(name, row.get(name), value)
        for name, value in values.items()
        if not are_equal(row.get(name), value, errors.get(name, 0.0))
    ]


def _find_plan(home: Home, dataset: str, start_ms: int) -> Plan:
    """Return the plan of the newest run that published the day of a window."""
    published = load_published_windows(home, dataset)
    if published.location is None:
        msg = f"cannot explain {dataset}: nothing is published\n\nhint: `backstream status` lists the datasets"
        raise LedgerError(msg)
    runs = published.runs_by_day().get(start_ms // DAY_MS * DAY_MS)
    if not runs:
        day = instant_text(start_ms // DAY_MS * DAY_MS)[:10]
        msg = f"cannot explain {dataset} at {instant_text(start_ms)}: no run has published {day}"
        raise LedgerError(msg)
    newest = next((run.run_id for run in list_runs(home, dataset) if run.run_id in runs), min(runs))
    return Runs(home).plan(dataset, newest)


def _find_window(
    definition: Definition, start_ms: int, end_ms: int | None, rows: Sequence[Mapping[str, Any]]
) -> TimeWindow:
    """Return the window with this start and end.

    Raises:
        SpecError: with the windows that contain the instant, if none starts there.
    """
    spec = definition.window.spec()
    if isinstance(spec, Session):
        ends_ms = {epoch_ms(row["window_end"]) for row in rows}
        possible = [TimeWindow(start_ms, each) for each in sorted(ends_ms if end_ms is None else {end_ms})]
    else:
        near = spec.assign(start_ms)
        if isinstance(spec, Cumulate) and end_ms is None:
            near = near[-1:]
        possible = [each for each in near if each.start_ms == start_ms and end_ms in (None, each.end_ms)]
        if not possible and near:
            others = ", ".join(f"{instant_text(each.start_ms)}/{instant_text(each.end_ms)}" for each in near[:5])
            msg = (
                f"no window of {definition.name} begins at {instant_text(start_ms)}\n\n"
                f"hint: the instant is in {others}"
            )
            raise SpecError(msg)
    if len(possible) == 1:
        return possible[0]
    if possible:
        listed = "".join(f"\n  {Interval(*each)}" for each in possible)
        msg = f"{len(possible)} windows of {definition.name} begin at {instant_text(start_ms)}{listed}"
        raise SpecError(msg + "\n\nhint: add the end, as in START/END")
    msg = (
        f"no session of {definition.name} with this key begins at {instant_text(start_ms)}\n\n"
        "hint: `backstream show` lists the sessions"
    )
    raise SpecError(msg)


def compare_with_live(found: Explanation, against: str, columns: str, home: Home) -> list[str]:
    """Return lines on the value of a live system in this window, with the cause of each difference.

    Args:
        found: the explanation.
        against: the output of the live system, as in `ReconcileRequest`.
        columns: the names of its columns.
        home: the home folder.

    Raises:
        SpecError: when the output cannot be compared.
    """
    window = found.target.window
    asked = ReconcileRequest(Path(found.plan.definition_path), against, columns, window.start_ms, window.end_ms)
    rows = reconcile_dataset(asked, home).differing.to_pylist()
    key = {name: str(value) for name, value in found.key.items()}
    own = [
        row
        for row in rows
        if instant_text(window.start_ms) == _instant_of(row["window_start"])
        and all(str(row.get(name)) == value for name, value in key.items())
    ]
    return [
        f"{row['aggregate']} is {row['theirs']} there and {row['ours']} here: {row['cause']} ({row['evidence']})"
        for row in own
    ] or ["equal"]


def _instant_of(value: Any) -> str:
    return instant_text(epoch_ms(value)) if isinstance(value, datetime) else str(value)
