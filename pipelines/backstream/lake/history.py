"""What a table's snapshots say about the runs that made them: who published which range, and when."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from backstream.core.errors import ConflictError
from backstream.core.intervals import Interval
from backstream.core.plan import Plan

_PREFIX = "backstream."
RUN_ID = f"{_PREFIX}run_id"
SINCE_MS = f"{_PREFIX}since_ms"
UNTIL_MS = f"{_PREFIX}until_ms"
ROWS = f"{_PREFIX}rows"
REPLACED_ROWS = f"{_PREFIX}replaced_rows"
FILES = f"{_PREFIX}files"
_FIRST_VERSION = 1  # a table's first snapshot; when the oldest one left is a later one, history was expired


def properties(plan: Plan, rows: int, replaced_rows: int, files: int) -> dict[str, str]:
    """What a snapshot records about the run that made it."""
    said = {
        RUN_ID: plan.run_id,
        SINCE_MS: plan.since_ms,
        UNTIL_MS: plan.until_ms,
        ROWS: rows,
        REPLACED_ROWS: replaced_rows,
        FILES: files,
        f"{_PREFIX}plan_hash": plan.plan_hash,
        f"{_PREFIX}definition_hash": plan.definition_hash,
        f"{_PREFIX}mode": plan.mode.value,
    }
    return {key: str(value) for key, value in said.items()}


def said(snapshot: Snapshot, key: str) -> str | None:
    """One property of a snapshot; None where it does not carry it."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def count(snapshot: Snapshot, key: str) -> int:
    """One number that a run's snapshot recorded."""
    return int(said(snapshot, key) or 0)


def lineage(table: Table) -> Iterator[Snapshot]:
    """The snapshots that led to the table as it is, newest first."""
    yield from ancestors_of(table.current_snapshot(), table.metadata)


def snapshot_of(table: Table, run_id: str) -> Snapshot | None:
    """The snapshot that a run made; None when it made none."""
    return next((each for each in lineage(table) if said(each, RUN_ID) == run_id), None)


def require_unmoved(table: Table, plan: Plan) -> None:
    """Check that nobody else published into the plan's range since the plan was made.

    Raises:
        ConflictError: naming the run that did, or the snapshot no run made, or the lost history.
    """
    base_id, run_id, oldest = plan.base_snapshots.get(""), plan.run_id, None
    for oldest in lineage(table):
        if oldest.snapshot_id == base_id:
            return
        if _touches(oldest, plan.range) and said(oldest, RUN_ID) != run_id:
            raise _conflict(plan, "the table moved since it was planned", _moved(table, base_id, oldest))
    if base_id is not None or (oldest is not None and oldest.sequence_number != _FIRST_VERSION):
        fact = f"{_planned(table, base_id)}, and the table's history does not lead back to that"
        raise _conflict(plan, "the table has another history now", fact)


def _touches(snapshot: Snapshot, interval: Interval) -> bool:
    """Whether a snapshot may have changed rows of the interval: one that no run made may have."""
    since_ms, until_ms = said(snapshot, SINCE_MS), said(snapshot, UNTIL_MS)
    if said(snapshot, RUN_ID) is None or since_ms is None or until_ms is None:
        return True
    return Interval(int(since_ms), int(until_ms)).overlaps(interval)


def _moved(table: Table, base_id: int | None, by: Snapshot) -> str:
    return f"{_planned(table, base_id)}, found version {by.sequence_number} ({_author(by)})"


def _planned(table: Table, base_id: int | None) -> str:
    if base_id is None:
        return "planned when the table was empty"
    base = table.snapshot_by_id(base_id)
    return f"planned against version {base.sequence_number}" if base else f"planned against snapshot {base_id}"


def _author(snapshot: Snapshot) -> str:
    run_id = said(snapshot, RUN_ID)
    since_ms, until_ms = said(snapshot, SINCE_MS), said(snapshot, UNTIL_MS)
    if run_id is None or since_ms is None or until_ms is None:
        operation = snapshot.summary.operation.value if snapshot.summary else "change"
        return f"{operation}, made by no run of backstream"
    return f"{Interval(int(since_ms), int(until_ms))}, published by run {run_id}"


def _conflict(plan: Plan, what: str, fact: str) -> ConflictError:
    return ConflictError(
        f"refusing to publish {plan.dataset} {plan.range}: {what}\n  {fact}\n\n"
        "hint: plan the range again; nothing was published"
    )
