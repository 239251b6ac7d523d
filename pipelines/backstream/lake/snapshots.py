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
from backstream.lake.catalog import loaded
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


def properties(plan: Plan, rows: int, replaced_rows: int, files: int) -> dict[str, str]:
    """What a snapshot records about the run that made it."""
    said = {
        RUN_ID: plan.run_id,
        SINCE_MS: plan.since_ms,
        UNTIL_MS: plan.until_ms,
        ROWS: rows,
        REPLACED_ROWS: replaced_rows,
        FILES: files,
        KEYS: json.dumps(keys_of(plan)),
        PLAN_HASH: plan.plan_hash,
        DEFINITION_HASH: plan.definition_hash,
        MODE: plan.mode.value,
    }
    return {key: str(value) for key, value in said.items()}


def keys_of(plan: Plan) -> list[str]:
    """The key columns of a plan's definition."""
    return list(plan.definition.get("source", {}).get("key", ()))


def keys_said(snapshot: Snapshot) -> list[str]:
    """The key columns that a run's snapshot recorded."""
    return list(json.loads(said(snapshot, KEYS) or "[]"))


def all_said(snapshot: Snapshot) -> dict[str, str]:
    """Every property that backstream gave a snapshot."""
    found = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key: value for key, value in found.items() if key.startswith(_PREFIX)}


def said(snapshot: Snapshot, key: str) -> str | None:
    """One property of a snapshot; None where it does not carry it."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def count(snapshot: Snapshot, key: str) -> int:
    """One number that a run's snapshot recorded."""
    return int(said(snapshot, key) or 0)


def lineage(table: Table) -> Iterator[Snapshot]:
    """The snapshots that led to the table as it is, newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}  # PyIceberg searches for each
    at = table.current_snapshot()
    while at is not None:
        yield at
        at = by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None


def is_cut(table: Table) -> bool:
    """Whether snapshots that led to the table as it is were expired."""
    snapshots = list(lineage(table))
    return bool(snapshots) and not is_first(snapshots[-1])


def retained(table: Table) -> Iterator[Snapshot]:
    """The snapshots of the lineage, newest first, and what tags keep of those before an expired one."""
    oldest = None
    for oldest in lineage(table):
        yield oldest
    if oldest is None or is_first(oldest):
        return
    first_version = version(oldest)
    behind = [each for each in tagged(table).values() if version(each) < first_version]
    yield from sorted(behind, key=version, reverse=True)


def is_first(snapshot: Snapshot) -> bool:
    """Whether a snapshot found the table empty."""
    return version(snapshot) == _FIRST_VERSION


def version(snapshot: Snapshot) -> int:
    """Which commit of its table made a snapshot, counted from one."""
    return snapshot.sequence_number or 0


def snapshot_of(table: Table, run_id: str) -> Snapshot | None:
    """The snapshot that a run made; None when it made none, or it was expired."""
    return next((each for each in retained(table) if said(each, RUN_ID) == run_id), None)


def appended_by(table: Table, run_id: str) -> Snapshot | None:
    """The snapshot by which a run appended to a table of rows that name their run; None: it has not.

    Snapshots before it and after it may be gone, so that no lineage leads there (`resting.py`).
    """
    return next((each for each in table.snapshots() if said(each, RUN_ID) == run_id), None)


def interval_of(snapshot: Snapshot) -> Interval | None:
    """The range that a run's snapshot replaced; None where no run made it."""
    since_ms, until_ms = said(snapshot, SINCE_MS), said(snapshot, UNTIL_MS)
    if said(snapshot, RUN_ID) is None or since_ms is None or until_ms is None:
        return None
    return Interval(int(since_ms), int(until_ms))


def parent_of(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot that a run found; None when the table was empty.

    Raises:
        LedgerError: when it was expired.
    """
    if is_first(snapshot):
        return None
    parent_id = snapshot.parent_snapshot_id  # expiring a snapshot also takes its id from its children
    parent = None if parent_id is None else table.snapshot_by_id(parent_id)
    if parent is None:
        msg = (
            f"the snapshot that run {said(snapshot, RUN_ID)} found in table `{table.name()[-1]}` was expired\n"
            f"  it was version {version(snapshot) - 1}"
        )
        raise LedgerError(msg)
    return parent


def touches(snapshot: Snapshot, interval: Interval) -> bool:
    """Whether a snapshot may have changed rows of the interval: one that no run made may have."""
    touched = interval_of(snapshot)
    return touched is None or touched.overlaps(interval)


def require_unmoved(table: Table, plan: Plan) -> None:
    """Check that nobody else published into the plan's range since the plan was made.

    Raises:
        ConflictError: naming the run that did, or the snapshot no run made, or the lost history.
    """
    base_id, run_id, oldest = plan.base_snapshots.get(""), plan.run_id, None
    for oldest in lineage(table):
        if oldest.snapshot_id == base_id:
            return
        if touches(oldest, plan.range) and said(oldest, RUN_ID) != run_id:
            raise _conflict(plan, "the table moved since it was planned", _moved(table, base_id, oldest))
    if base_id is not None or (oldest is not None and oldest.sequence_number != _FIRST_VERSION):
        fact = f"{_planned(table, base_id)}, and the table's history does not lead back to that"
        raise _conflict(plan, "the table has another history now", fact)


def _moved(table: Table, base_id: int | None, by: Snapshot) -> str:
    return f"{_planned(table, base_id)}, found version {by.sequence_number} ({author(by)})"


def _planned(table: Table, base_id: int | None) -> str:
    if base_id is None:
        return "planned when the table was empty"
    base = table.snapshot_by_id(base_id)
    return f"planned against version {base.sequence_number}" if base else f"planned against snapshot {base_id}"


def author(snapshot: Snapshot) -> str:
    """Who made a snapshot, in words."""
    interval = interval_of(snapshot)
    if interval is None:
        operation = snapshot.summary.operation.value if snapshot.summary else "change"
        return f"{operation}, made by no run of backstream"
    return f"{interval}, published by run {said(snapshot, RUN_ID)}"


def _conflict(plan: Plan, what: str, fact: str) -> ConflictError:
    return ConflictError(
        f"refusing to publish {plan.dataset} {plan.range}: {what}\n  {fact}\n\n"
        "hint: plan the range again; nothing was published"
    )


_TAG_PREFIX = "run/"


def tag_of(run_id: str) -> str:
    """The name of a run's tag."""
    return f"{_TAG_PREFIX}{run_id}"


def tagged(table: Table) -> dict[str, Snapshot]:
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
        table = loaded(catalog, name)
        if run_id in tagged(table):
            return False
        table.manage_snapshots().create_tag(snapshot_id, tag_of(run_id)).commit()
        return True

    return with_retries(f"tag run {run_id} of table `{name}`", attempt)


@dataclass(frozen=True, slots=True)
class AsOf:
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


def told(snapshot: Snapshot) -> AsOf:
    """The state that a snapshot is."""
    run_id = said(snapshot, RUN_ID)
    return AsOf(snapshot.snapshot_id, version(snapshot), run_id, snapshot.timestamp_ms)


def now(table: Table) -> AsOf | None:
    """The table as it is; None while nothing was published."""
    current = table.current_snapshot()
    return told(current) if current else None


def after_run(table: Table, run_id: str) -> AsOf | None:
    """The table as a run left it; None when no snapshot of that run is there."""
    found = snapshot_of(table, run_id)
    return told(found) if found else None


def at_instant(table: Table, at_ms: int) -> AsOf:
    """The table as it was at an instant: the newest snapshot made at or before it.

    Raises:
        LedgerError: when nothing had been published by then, or what was then is not known any more.
    """
    name, asked, later = table.name()[-1], instant_text(at_ms), None
    for snapshot in retained(table):
        if snapshot.timestamp_ms <= at_ms:
            if later is not None and version(later) != version(snapshot) + 1:
                raise _expired(name, asked, f"between {told(snapshot)}\n  and {told(later)}")
            return told(snapshot)
        later = snapshot
    if later is None:
        msg = f"nothing was ever published into table `{name}`"
        raise LedgerError(msg)
    if is_first(later):
        msg = f"table `{name}` had no rows yet at {asked}\n  the first publication is {told(later)}"
        raise LedgerError(msg)
    raise _expired(name, asked, f"before {told(later)}")


def _expired(name: str, asked: str, where: str) -> LedgerError:
    return LedgerError(
        f"how table `{name}` was at {asked} is not known any more\n  snapshots were expired {where}"
    )
