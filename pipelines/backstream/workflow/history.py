"""Show published rows, compare a run with them, and roll a run back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backstream import __version__
from backstream.errors import LedgerError, PlanError, SpecError
from backstream.eventtime.instants import SECOND_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.catalog_history import require_history
from backstream.lake.diff import ChangeTotals, summarize_changes
from backstream.lake.ledger import RunRow, record_run
from backstream.lake.publication.publish import preview_replacement
from backstream.lake.publication.restatements import read_restatements
from backstream.lake.publication.rollback import RollbackResult, roll_back_run
from backstream.lake.published_runs import (
    PublishedRun,
    find_published_row,
    find_published_run,
    load_published_run,
    load_replacement,
)
from backstream.lake.scans import scan_rows_by_day
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Plan
from backstream.runs.status import RunStatus
from backstream.runs.store import Runs
from backstream.storage.files import remove_file

_MAX_RUNS = 5
"""The number of earlier runs that a comparison lists."""


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The rows of a dataset, a table per day, and the table state that has them; None: nothing was published."""

    state: snapshots.TableState | None
    days: Iterator[pa.Table]
    time_zone: str | None = None
    """The time zone of the windows; None: UTC."""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """The changes that a run made or would make; `against` is the table state for the comparison."""

    run_id: str
    dataset: str
    interval: Interval
    is_published: bool
    against: snapshots.TableState | None
    changes: ChangeTotals


@contextmanager
def load_dataset_rows(
    home: Home, dataset: str, interval: Interval | None, when: str | None, limit: int | None = None
) -> Iterator[DatasetRows]:
    """Open the rows of a dataset whose windows start in an interval, at present or at an earlier time.

    Args:
        home: the folder that holds all state.
        dataset: the name of the dataset.
        interval: None for all rows.
        when: a run id, an instant, or None for now.
        limit: the maximum of rows per day; None: no maximum.

    Raises:
        LedgerError: when there is no such dataset, or its state at that time is unknown.
        SpecError: when `when` is not a published run and not an instant.
    """
    if when is not None:
        require_history(home)
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, dataset)
        state = snapshots.current_state(table) if when is None else _find_state(home, dataset, table, when)
        days = scan_rows_by_day(table, interval, state.snapshot_id, limit) if state else iter(())
        yield DatasetRows(state, days, _find_time_zone(home, state))


def _find_time_zone(home: Home, state: snapshots.TableState | None) -> str | None:
    """Return the time zone of the windows of the run that made a state."""
    folder = Runs(home).find(state.run_id) if state and state.run_id else None
    with suppress(PlanError):  # of another version of backstream
        return Plan.read(folder.plan).definition.get("window", {}).get("time_zone") if folder else None
    return None


def diff_run(home: Home, run_id: str, limit: int) -> RunDifference:
    """Return the changes that a published run made, or that a staged run would make in the current table.

    Raises:
        LedgerError: when there is no such run, a chunk has not finished, or the replaced snapshot was expired.
    """
    with open_catalog_for_writing(home) as catalog:
        published = find_published_run(catalog, run_id)
        if published is None and (folder := Runs(home).find(run_id)):
            plan = Plan.read(folder.plan)
            if find_published_row(home, plan.dataset, run_id) is None:
                return _diff_staged(catalog, plan, limit)
        require_history(home)
        return _diff_published(catalog, published or load_published_run(home, catalog, run_id), limit)


def rollback_run(home: Home, run_id: str, reason: str = "") -> RollbackResult:
    """Roll a run back, and record this in the ledger as a run of its own; a repetition changes nothing.

    Raises:
        LedgerError: when the run was not published, or the snapshot before it was expired.
        ConflictError: when a later run published into the range.
    """
    require_history(home)
    started_ms = _now_ms()
    ledger_reason = f"rollback of {run_id}" + (f": {reason}" if reason else "")
    result = roll_back_run(home, run_id, ledger_reason)
    record_run(home, _rollback_row(result, ledger_reason, started_ms))
    remove_file(home.rollbacks(result.publication.dataset) / f"{result.publication.run_id}.json")
    return result


def _find_state(home: Home, dataset: str, table: Table, when: str) -> snapshots.TableState:
    if state := snapshots.state_after_run(table, when):
        return state
    if row := find_published_row(home, dataset, when):
        msg = f"the snapshot of run {row.run_id} was expired; according to the ledger, it published into {dataset}"
        raise LedgerError(msg)
    try:
        at_ms = instant_ms(when, "--as-of")
    except SpecError:
        expected = f"a run that published into {dataset}, or an instant such as 2013-02-01T05:00Z"
        msg = f"--as-of must be {expected}, got {when!r}"
        raise SpecError(msg) from None
    return snapshots.state_at(table, at_ms)


def _diff_staged(catalog: Catalog, plan: Plan, limit: int) -> RunDifference:
    replacement = preview_replacement(catalog, plan, load_manifests(plan))
    return RunDifference(
        run_id=plan.run_id,
        dataset=plan.dataset,
        interval=plan.range,
        is_published=False,
        against=snapshots.current_state(replacement.table),
        changes=summarize_changes(replacement.changes(), replacement.keys, limit),
    )


def _diff_published(catalog: Catalog, run: PublishedRun, limit: int) -> RunDifference:
    parent = snapshots.find_parent(run.table, run.snapshot)
    keys = snapshots.key_columns_of_snapshot(run.snapshot)
    return RunDifference(
        run_id=run.run_id,
        dataset=run.dataset,
        interval=run.interval,
        is_published=True,
        against=snapshots.state_of_snapshot(parent) if parent else None,
        changes=summarize_changes(_read_changes(catalog, run), keys, limit),
    )


def _read_changes(catalog: Catalog, run: PublishedRun) -> Iterator[pa.Table]:
    """Return the changes of a published run: the recorded ones, or all its rows if it replaced none."""
    if not snapshots.summary_number(run.snapshot, snapshots.REPLACED_ROWS):
        return load_replacement(run).changes()
    if not snapshots.summary_number(run.snapshot, snapshots.CHANGED_VALUES):
        return iter(())
    keys = snapshots.key_columns_of_snapshot(run.snapshot)
    return read_restatements(catalog, run.dataset, run.run_id, keys)


def _rollback_row(result: RollbackResult, reason: str, started_ms: int) -> RunRow:
    publication = result.publication
    return RunRow(
        run_id=publication.run_id,
        dataset=publication.dataset,
        status=RunStatus.PUBLISHED,
        verdict=None,
        mode=result.mode,
        since_ms=publication.since_ms,
        until_ms=publication.until_ms,
        triggered_by="rollback",
        reason=reason,
        definition_hash=result.definition_hash,
        plan_hash=result.plan_hash,
        planned_by_version=__version__,
        rows=publication.rows,
        events_read=None,
        started_at_ms=started_ms,
        finished_at_ms=_now_ms(),
    )


def _now_ms() -> int:
    return int(time.time() * SECOND_MS)


def describe_difference(difference: RunDifference) -> str:
    """Return text: the run, the table state, rows per kind of change, aggregates, and earlier runs."""
    changes = difference.changes
    verb = "changed" if difference.is_published else "would change"
    against = f"{difference.against}" if difference.against else "the empty table"
    counts = ", ".join(f"{count:,} {change}" for change, count in changes.windows.items())
    lines = [
        f"{difference.dataset}  {difference.interval}  run {difference.run_id} {verb}",
        f"against  {against}",
        f"rows     {counts}",
        *_aggregate_lines(changes),
        *_run_lines(changes),
    ]
    return "\n".join(lines)


def _aggregate_lines(changes: ChangeTotals) -> Iterator[str]:
    if not changes.aggregates:
        return
    width = max(9, *(len(name) for name in changes.aggregates))
    yield ""
    yield f"{'aggregate':<{width}} {'rows':>12} {'sum of differences':>20} {'of their sizes':>20}"
    for name, total in changes.aggregates.items():
        yield f"{name:<{width}} {total.rows:>12,} {total.difference:>20,.6g} {total.absolute:>20,.6g}"


def _run_lines(changes: ChangeTotals) -> Iterator[str]:
    old_runs = list(changes.old_runs.items())
    if not old_runs:
        return
    yield ""
    for run_id, count in old_runs[:_MAX_RUNS]:
        yield f"run {run_id} had published different values in {count:,} rows"
    if len(old_runs) > _MAX_RUNS:
        yield f"and {len(old_runs) - _MAX_RUNS} more runs"
