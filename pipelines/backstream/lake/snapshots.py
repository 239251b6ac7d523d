"""What a table's snapshots say about the runs that made them: who published which range, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from backstream.errors import ConflictError, LedgerError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import load_table
from backstream.lake.commit import with_retries
from backstream.runs.plan import Plan

_PREFIX = "backstream."
RUN_ID = f"{_PREFIX}run_id"
SINCE_MS = f"{_PREFIX}since_ms"
UNTIL_MS = f"{_PREFIX}until_ms"
ROWS = f"{_PREFIX}rows"
REPLACED_ROWS = f"{_PREFIX}replaced_rows"
FILES = f"{_PREFIX}files"
KEYS = f"{_PREFIX}keys"
PLAN_HASH = f"{_PREFIX}plan_hash"
DEFINITION_HASH = f"{_PREFIX}definition_hash"
MODE = f"{_PREFIX}mode"
ROLLED_BACK = f"{_PREFIX}rolled_back"
_FIRST_VERSION = 1  # a table's first snapshot; when the oldest one left is a later one, history was expired


def summary_properties(plan: Plan, rows: int, replaced_rows: int, files: int) -> dict[str, str]:
    """What a snapshot records about the run that made it."""
    said = {
        RUN_ID: plan.run_id,
        SINCE_MS: plan.since_ms,
        UNTIL_MS: plan.until_ms,
        ROWS: rows,
        REPLACED_ROWS: replaced_rows,
        FILES: files,
        KEYS: json.dumps(key_columns_of_plan(plan)),
        PLAN_HASH: plan.plan_hash,
        DEFINITION_HASH: plan.definition_hash,
        MODE: plan.mode.value,
    }
    return {key: str(value) for key, value in said.items()}


def key_columns_of_plan(plan: Plan) -> list[str]:
    """The key columns of a plan's definition."""
    return list(plan.definition.get("source", {}).get("key", ()))


def key_columns_of_snapshot(snapshot: Snapshot) -> list[str]:
    """The key columns that a run's snapshot recorded."""
    return list(json.loads(summary_property(snapshot, KEYS) or "[]"))


def backstream_properties(snapshot: Snapshot) -> dict[str, str]:
    """Every property that backstream gave a snapshot."""
    found = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key: value for key, value in found.items() if key.startswith(_PREFIX)}


def summary_property(snapshot: Snapshot, key: str) -> str | None:
    """One property of a snapshot; None where it does not carry it."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def summary_number(snapshot: Snapshot, key: str) -> int:
    """One number that a run's snapshot recorded."""
    return int(summary_property(snapshot, key) or 0)


def list_ancestors(table: Table) -> Iterator[Snapshot]:
    """The snapshots that led to the table as it is, newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}  # PyIceberg searches for each
    at = table.current_snapshot()
    while at is not None:
        yield at
        at = by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None


def is_history_expired(table: Table) -> bool:
    """Whether snapshots that led to the table as it is were expired."""
    snapshots = list(list_ancestors(table))
    return bool(snapshots) and not is_first_snapshot(snapshots[-1])


def list_retained(table: Table) -> Iterator[Snapshot]:
    """The snapshots of the lineage, newest first, and what tags keep of those before an expired one."""
    oldest = None
    for oldest in list_ancestors(table):
        yield oldest
    if oldest is None or is_first_snapshot(oldest):
        return
    first_version = snapshot_version(oldest)
    behind = [each for each in list_tagged_snapshots(table).values() if snapshot_version(each) < first_version]
    yield from sorted(behind, key=snapshot_version, reverse=True)


def is_first_snapshot(snapshot: Snapshot) -> bool:
    """Whether a snapshot found the table empty."""
    return snapshot_version(snapshot) == _FIRST_VERSION


def snapshot_version(snapshot: Snapshot) -> int:
    """Which commit of its table made a snapshot, counted from one."""
    return snapshot.sequence_number or 0


def find_snapshot_of_run(table: Table, run_id: str) -> Snapshot | None:
    """The snapshot that a run made; None when it made none, or it was expired."""
    return next((each for each in list_retained(table) if summary_property(each, RUN_ID) == run_id), None)


def find_append_of_run(table: Table, run_id: str) -> Snapshot | None:
    """The snapshot by which a run appended to a table of rows that name their run; None: it has not.

    Snapshots before it and after it may be gone, so that no lineage leads there (`resting.py`).
    """
    return next((each for each in table.snapshots() if summary_property(each, RUN_ID) == run_id), None)


def range_of_snapshot(snapshot: Snapshot) -> Interval | None:
    """The range that a run's snapshot replaced; None where no run made it."""
    since_ms, until_ms = summary_property(snapshot, SINCE_MS), summary_property(snapshot, UNTIL_MS)
    if summary_property(snapshot, RUN_ID) is None or since_ms is None or until_ms is None:
        return None
    return Interval(int(since_ms), int(until_ms))


def find_parent(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot that a run found; None when the table was empty.

    Raises:
        LedgerError: when it was expired.
    """
    if is_first_snapshot(snapshot):
        return None
    parent_id = snapshot.parent_snapshot_id  # expiring a snapshot also takes its id from its children
    parent = None if parent_id is None else table.snapshot_by_id(parent_id)
    if parent is None:
        run_id = summary_property(snapshot, RUN_ID)
        msg = (
            f"the snapshot that run {run_id} found in table `{table.name()[-1]}` was expired\n"
            f"  it was version {snapshot_version(snapshot) - 1}"
        )
        raise LedgerError(msg)
    return parent


def overlaps_range(snapshot: Snapshot, interval: Interval) -> bool:
    """Whether a snapshot may have changed rows of the interval: one that no run made may have."""
    touched = range_of_snapshot(snapshot)
    return touched is None or touched.overlaps(interval)


def require_no_conflict(table: Table, plan: Plan) -> None:
    """Check that nobody else published into the plan's range since the plan was made.

    Raises:
        ConflictError: naming the run that did, or the snapshot no run made, or the lost history.
    """
    base_id, run_id, oldest = plan.base_snapshots.get(""), plan.run_id, None
    for oldest in list_ancestors(table):
        if oldest.snapshot_id == base_id:
            return
        if overlaps_range(oldest, plan.range) and summary_property(oldest, RUN_ID) != run_id:
            raise _conflict(plan, "the table moved since it was planned", _moved(table, base_id, oldest))
    if base_id is not None or (oldest is not None and oldest.sequence_number != _FIRST_VERSION):
        fact = f"{_planned(table, base_id)}, and the table's history does not lead back to that"
        raise _conflict(plan, "the table has another history now", fact)


def _moved(table: Table, base_id: int | None, by: Snapshot) -> str:
    return f"{_planned(table, base_id)}, found version {by.sequence_number} ({describe_author(by)})"


def _planned(table: Table, base_id: int | None) -> str:
    if base_id is None:
        return "planned when the table was empty"
    base = table.snapshot_by_id(base_id)
    return f"planned against version {base.sequence_number}" if base else f"planned against snapshot {base_id}"


def describe_author(snapshot: Snapshot) -> str:
    """Who made a snapshot, in words."""
    interval = range_of_snapshot(snapshot)
    if interval is None:
        operation = snapshot.summary.operation.value if snapshot.summary else "change"
        return f"{operation}, made by no run of backstream"
    return f"{interval}, published by run {summary_property(snapshot, RUN_ID)}"


def _conflict(plan: Plan, what: str, fact: str) -> ConflictError:
    return ConflictError(
        f"refusing to publish {plan.dataset} {plan.range}: {what}\n  {fact}\n\n"
        "hint: plan the range again; nothing was published"
    )


_TAG_PREFIX = "run/"


def tag_name(run_id: str) -> str:
    """The name of a run's tag."""
    return f"{_TAG_PREFIX}{run_id}"


def list_tagged_snapshots(table: Table) -> dict[str, Snapshot]:
    """The snapshots that runs have tagged, by run id."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    return {
        name.removeprefix(_TAG_PREFIX): snapshot
        for name, ref in table.refs().items()
        if ref.snapshot_ref_type is SnapshotRefType.TAG
        and name.startswith(_TAG_PREFIX)
        and (snapshot := by_id.get(ref.snapshot_id))
    }


def ensure_tag(catalog: Catalog, name: str, run_id: str, snapshot_id: int) -> bool:
    """Set a run's tag where it is missing; False when it was there."""

    def attempt() -> bool:
        table = load_table(catalog, name)
        if run_id in list_tagged_snapshots(table):
            return False
        table.manage_snapshots().create_tag(snapshot_id, tag_name(run_id)).commit()
        return True

    return with_retries(f"tag run {run_id} of table `{name}`", attempt)


@dataclass(frozen=True, slots=True)
class TableState:
    """Which state of a table: the snapshot, the run that made it (None: another program), and when."""

    snapshot_id: int
    version: int
    run_id: str | None
    made_at_ms: int

    def __str__(self) -> str:
        by = f"run {self.run_id}" if self.run_id else "no run of backstream"
        return (
            f"version {self.version}, made {instant_text(self.made_at_ms)} by {by} (snapshot {self.snapshot_id})"
        )


def state_of_snapshot(snapshot: Snapshot) -> TableState:
    """The state that a snapshot is."""
    run_id = summary_property(snapshot, RUN_ID)
    return TableState(snapshot.snapshot_id, snapshot_version(snapshot), run_id, snapshot.timestamp_ms)


def current_state(table: Table) -> TableState | None:
    """The table as it is; None while nothing was published."""
    current = table.current_snapshot()
    return state_of_snapshot(current) if current else None


def state_after_run(table: Table, run_id: str) -> TableState | None:
    """The table as a run left it; None when no snapshot of that run is there."""
    found = find_snapshot_of_run(table, run_id)
    return state_of_snapshot(found) if found else None


def state_at(table: Table, at_ms: int) -> TableState:
    """The table as it was at an instant: the newest snapshot made at or before it.

    Raises:
        LedgerError: when nothing had been published by then, or what was then is not known any more.
    """
    name, asked, later = table.name()[-1], instant_text(at_ms), None
    for snapshot in list_retained(table):
        if snapshot.timestamp_ms <= at_ms:
            if later is not None and snapshot_version(later) != snapshot_version(snapshot) + 1:
                raise _expired(
                    name, asked, f"between {state_of_snapshot(snapshot)}\n  and {state_of_snapshot(later)}"
                )
            return state_of_snapshot(snapshot)
        later = snapshot
    if later is None:
        msg = f"nothing was ever published into table `{name}`"
        raise LedgerError(msg)
    if is_first_snapshot(later):
        msg = f"table `{name}` had no rows yet at {asked}\n  the first publication is {state_of_snapshot(later)}"
        raise LedgerError(msg)
    raise _expired(name, asked, f"before {state_of_snapshot(later)}")


def _expired(name: str, asked: str, where: str) -> LedgerError:
    return LedgerError(
        f"how table `{name}` was at {asked} is not known any more\n  snapshots were expired {where}"
    )
