"""Steps about what was published: show it, compare with it, undo a run, clean up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backstream import __version__
from backstream.errors import LedgerError, SpecError
from backstream.eventtime.instants import SECOND_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.diff import ChangeTotals, summarize_changes
from backstream.lake.ledger import RunRow, Status, record_run
from backstream.lake.publish import preview_replacement
from backstream.lake.published_runs import (
    PublishedRun,
    find_published_row,
    find_published_run,
    load_published_run,
    load_replacement,
)
from backstream.lake.rollback import RollbackResult, roll_back_run
from backstream.lake.scans import scan_rows_by_day
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Rows of a dataset, a table per day, and which state of it they are of; None: nothing was published."""

    state: snapshots.TableState | None
    days: Iterator[pa.Table]


@dataclass(frozen=True, slots=True)
class RunDifference:
    """What a run changed or would change; `against` says which state of the table that is compared with."""

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
    """A dataset's rows, of the windows that start in the interval, now or as they were.

    Args:
        home: where the lake lies.
        dataset: its name.
        interval: None for all rows.
        when: a run id, an instant, or None for now.
        limit: of no day more rows than this are wanted; None: all.

    Raises:
        LedgerError: when there is no such dataset, or nothing is known of that time.
        SpecError: when `when` is neither a run that published nor an instant.
    """
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, dataset)
        state = snapshots.current_state(table) if when is None else _state(home, dataset, table, when)
        yield DatasetRows(
            state, scan_rows_by_day(table, interval, state.snapshot_id, limit) if state else iter(())
        )


def diff_run(home: Home, run_id: str, limit: int) -> RunDifference:
    """What a staged run would change in the table as it is; of a published run, what it changed.

    Raises:
        LedgerError: when there is no such run, a chunk of it has not finished, or what it replaced was expired.
    """
    with open_catalog_for_writing(home) as catalog:
        found = find_published_run(catalog, run_id)
        plans = sorted((home.path / "runs").glob(f"*/{run_id}/plan.json"))
        if found is None and plans:
            return _staged_difference(catalog, Plan.read(plans[0]), limit)
        return _published_difference(found or load_published_run(home, catalog, run_id), limit)


def find_newest_run(
    home: Home, dataset: str, since_ms: int | None = None, until_ms: int | None = None, mode: Mode | None = None
) -> Plan:
    """The plan that was made last for a dataset, of the range and in the mode when given.

    Raises:
        SpecError: when there is none.
    """
    paths = (home.path / "runs" / dataset).glob("*/plan.json")
    for path in sorted(paths, key=lambda each: each.stat().st_mtime, reverse=True):
        plan = Plan.read(path)
        is_of_range = since_ms in (None, plan.since_ms) and until_ms in (None, plan.until_ms)
        if is_of_range and mode in (None, plan.mode):
            return plan
    msg = f"no run of {dataset}{'' if since_ms is None and until_ms is None else ' of that range'} in {home.path}"
    raise SpecError(msg)


def rollback_run(home: Home, run_id: str, reason: str = "") -> RollbackResult:
    """Undo a run, and record it in the ledger as a run of its own; doing it again changes nothing.

    Raises:
        LedgerError: when the run was never published, or what its range held before was expired.
        ConflictError: when a later run published into the range.
    """
    started_ms = _now_ms()
    undone = roll_back_run(home, run_id)
    why = f"rollback of {run_id}" + (f": {reason}" if reason else "")
    record_run(home, _ledger_row(undone, why, started_ms))
    return undone


def _state(home: Home, dataset: str, table: Table, when: str) -> snapshots.TableState:
    if found := snapshots.state_after_run(table, when):
        return found
    if row := find_published_row(home, dataset, when):
        msg = f"the snapshot of run {row.run_id} was expired; the ledger says that it published into {dataset}"
        raise LedgerError(msg)
    try:
        at_ms = instant_ms(when, "--as-of")
    except SpecError:
        wanted = f"a run that published into {dataset}, or an instant such as 2013-02-01T05:00Z"
        msg = f"--as-of must be {wanted}, got {when!r}"
        raise SpecError(msg) from None
    return snapshots.state_at(table, at_ms)


def _staged_difference(catalog: Catalog, plan: Plan, limit: int) -> RunDifference:
    would = preview_replacement(catalog, plan, load_manifests(plan))
    return RunDifference(
        run_id=plan.run_id,
        dataset=plan.dataset,
        interval=plan.range,
        is_published=False,
        against=snapshots.current_state(would.table),
        changes=summarize_changes(would.changes(), would.keys, limit),
    )


def _published_difference(found: PublishedRun, limit: int) -> RunDifference:
    did = load_replacement(found)
    parent = snapshots.find_parent(found.table, found.snapshot)
    return RunDifference(
        run_id=found.run_id,
        dataset=found.dataset,
        interval=found.interval,
        is_published=True,
        against=snapshots.state_of_snapshot(parent) if parent else None,
        changes=summarize_changes(did.changes(), did.keys, limit),
    )


def _ledger_row(undone: RollbackResult, reason: str, started_ms: int) -> RunRow:
    publication = undone.publication
    return RunRow(
        run_id=publication.run_id,
        dataset=publication.dataset,
        status=Status.PUBLISHED,
        verdict=None,
        mode=undone.mode,
        since_ms=publication.since_ms,
        until_ms=publication.until_ms,
        triggered_by="rollback",
        reason=reason,
        definition_hash=undone.definition_hash,
        plan_hash=undone.plan_hash,
        planned_by_version=__version__,
        rows=publication.rows,
        events_read=None,
        started_at_ms=started_ms,
        finished_at_ms=_now_ms(),
    )


def _now_ms() -> int:
    return int(time.time() * SECOND_MS)


_RUNS_SHOWN = 5


def describe_difference(found: RunDifference) -> str:
    """Which run against which state; rows per kind of change; a line per aggregate; who had said otherwise."""
    changes = found.changes
    verb = "changed" if found.is_published else "would change"
    against = f"{found.against}" if found.against else "the empty table"
    counts = ", ".join(f"{count:,} {change}" for change, count in changes.windows.items())
    lines = [
        f"{found.dataset}  {found.interval}  run {found.run_id} {verb}",
        f"against  {against}",
        f"rows     {counts}",
        *_aggregate_lines(found),
        *_run_lines(found),
    ]
    return "\n".join(lines)


def _aggregate_lines(found: RunDifference) -> Iterator[str]:
    if not found.changes.aggregates:
        return
    width = max(9, *(len(name) for name in found.changes.aggregates))
    yield ""
    yield f"{'aggregate':<{width}} {'rows':>12} {'sum of differences':>20} {'of their sizes':>20}"
    for name, total in found.changes.aggregates.items():
        yield f"{name:<{width}} {total.rows:>12,} {total.difference:>20,.6g} {total.absolute:>20,.6g}"


def _run_lines(found: RunDifference) -> Iterator[str]:
    old_runs = list(found.changes.old_runs.items())
    if not old_runs:
        return
    yield ""
    for run_id, count in old_runs[:_RUNS_SHOWN]:
        yield f"run {run_id} had said otherwise of {count:,} rows"
    if len(old_runs) > _RUNS_SHOWN:
        yield f"and {len(old_runs) - _RUNS_SHOWN} more runs"
