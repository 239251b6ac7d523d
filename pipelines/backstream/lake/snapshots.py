"""Read and write the properties that runs record in the snapshots of a table: their ids, ranges, and counts.

The module also finds ancestors, tags, commit conflicts, and earlier states of a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from backstream import __version__
from backstream.errors import LedgerError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import load_table
from backstream.lake.commit import OWNER_PROPERTIES, with_retries
from backstream.lake.commit_marks import PREFIX, list_marks
from backstream.runs.plan import Plan, definition_id

RUN_ID = f"{PREFIX}run_id"
SINCE_MS = f"{PREFIX}since_ms"
UNTIL_MS = f"{PREFIX}until_ms"
ROWS = f"{PREFIX}rows"
REPLACED_ROWS = f"{PREFIX}replaced_rows"
FILES = f"{PREFIX}files"
CHANGED_VALUES = f"{PREFIX}changed_values"
"""The number of rows that the run added to the table of restatements."""
PLAN_HASH = f"{PREFIX}plan_hash"
DEFINITION, KEYS = OWNER_PROPERTIES
DEFINITION_HASH = f"{PREFIX}definition_hash"
MODE = f"{PREFIX}mode"
TARGET = f"{PREFIX}target"
"""The section `[publish]` of the definition, JSON."""
ROLLED_BACK = f"{PREFIX}rolled_back"
_FIRST_VERSION = 1  # if the oldest retained snapshot has a later version, snapshots have expired
_TAG_PREFIX, _BEFORE_PREFIX = "run/", "before/"


def summary_properties(plan: Plan, rows: int, replaced_rows: int, files: int) -> dict[str, str]:
    """Return the properties that a run records in the summary of its snapshot."""
    properties = {
        RUN_ID: plan.run_id,
        SINCE_MS: plan.since_ms,
        UNTIL_MS: plan.until_ms,
        ROWS: rows,
        REPLACED_ROWS: replaced_rows,
        FILES: files,
        KEYS: json.dumps(key_columns_of_plan(plan)),
        PLAN_HASH: plan.plan_hash,
        DEFINITION: definition_id(Path(plan.definition_path)),
        DEFINITION_HASH: plan.definition_hash,
        MODE: plan.mode.value,
        "engine-name": "backstream",
        "engine-version": __version__,
    }
    if target := plan.definition.get("publish"):
        properties[TARGET] = json.dumps(target)
    return {key: str(value) for key, value in properties.items()}


def key_columns_of_plan(plan: Plan) -> list[str]:
    """Return the columns that identify a row of a plan within its window."""
    return list(plan.row_key)


def key_columns_of_snapshot(snapshot: Snapshot) -> list[str]:
    """Return the key columns that a run recorded in its snapshot."""
    return list(json.loads(summary_property(snapshot, KEYS) or "[]"))


def backstream_properties(snapshot: Snapshot) -> dict[str, str]:
    """Return all properties of a snapshot that backstream recorded."""
    properties = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key: value for key, value in properties.items() if key.startswith(PREFIX)}


def summary_property(snapshot: Snapshot, key: str) -> str | None:
    """Return a property of a snapshot; None if it is missing."""
    return snapshot.summary.additional_properties.get(key) if snapshot.summary else None


def summary_number(snapshot: Snapshot, key: str) -> int:
    """Return a number that a run recorded in its snapshot; 0 if it is missing."""
    return int(summary_property(snapshot, key) or 0)


def list_ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and its retained ancestors, newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}  # PyIceberg searches linearly
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent_id = snapshot.parent_snapshot_id
        snapshot = by_id.get(parent_id) if parent_id is not None else None


def is_history_expired(table: Table) -> bool:
    """Return whether some ancestors of the current snapshot have expired."""
    ancestors = list(list_ancestors(table))
    return bool(ancestors) and not is_first_snapshot(ancestors[-1])


def list_retained_snapshots(table: Table) -> Iterator[Snapshot]:
    """Yield the retained ancestors and the older tagged snapshots, newest first."""
    oldest = None
    for ancestor in list_ancestors(table):
        yield ancestor
        oldest = ancestor
    if oldest is None or is_first_snapshot(oldest):
        return
    tagged = list_tagged_snapshots(table).values()
    older = [snapshot for snapshot in tagged if snapshot_version(snapshot) < snapshot_version(oldest)]
    yield from sorted(older, key=snapshot_version, reverse=True)


def is_first_snapshot(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is the first one of its table."""
    return snapshot_version(snapshot) == _FIRST_VERSION


def snapshot_version(snapshot: Snapshot) -> int:
    """Return the number of the commit that made a snapshot, counted from 1 in its table."""
    return snapshot.sequence_number or 0


def find_snapshot_of_run(table: Table, run_id: str) -> Snapshot | None:
    """Return the snapshot of a run; None if it made none, or the snapshot has expired."""
    return next(
        (item for item in list_retained_snapshots(table) if summary_property(item, RUN_ID) == run_id), None
    )


def list_commits(table: Table) -> Iterator[Snapshot]:
    """Yield the retained snapshots, and the marks of expired ones (`commit_marks.py`), which have no files."""
    yield from list_retained_snapshots(table)
    if is_history_expired(table):
        known = {snapshot.snapshot_id for snapshot in table.snapshots()}
        yield from (mark for mark in list_marks(table) if mark.snapshot_id not in known)


def find_commit_of_run(table: Table, run_id: str) -> Snapshot | None:
    """Return the snapshot of a run, or its mark if the snapshot has expired; None if it made no commit."""
    return next((item for item in list_commits(table) if summary_property(item, RUN_ID) == run_id), None)


def find_append_of_run(table: Table, run_id: str) -> Snapshot | None:
    """Return the snapshot in which a run appended to an append-only table; None if it did not append.

    All snapshots and marks are searched, because snapshots before and after it may have expired (`compaction.py`).
    """
    commits = (*table.snapshots(), *list_marks(table))
    return next((item for item in commits if summary_property(item, RUN_ID) == run_id), None)


def range_of_snapshot(snapshot: Snapshot) -> Interval | None:
    """Return the range that a run replaced in a snapshot; None if another program made it."""
    since_ms, until_ms = summary_property(snapshot, SINCE_MS), summary_property(snapshot, UNTIL_MS)
    if summary_property(snapshot, RUN_ID) is None or since_ms is None or until_ms is None:
        return None
    return Interval(int(since_ms), int(until_ms))


def find_parent(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot before that of a run; None if the table was empty.

    Raises:
        LedgerError: if it has expired.
    """
    if is_first_snapshot(snapshot):
        return None
    parent_id = snapshot.parent_snapshot_id  # expiring a snapshot also removes its id from its children
    parent = None if parent_id is None else table.snapshot_by_id(parent_id)
    if parent is None:
        run_id = summary_property(snapshot, RUN_ID)
        msg = (
            f"the snapshot before run {run_id} in table `{table.name()[-1]}` has expired\n"
            f"  it was version {snapshot_version(snapshot) - 1}"
        )
        raise LedgerError(msg)
    return parent


def tag_name(run_id: str) -> str:
    """Return the name of a run's tag."""
    return f"{_TAG_PREFIX}{run_id}"


def tag_names(run_id: str) -> tuple[str, str]:
    """Return the names of the tags of a run: of its state, and of the state before it."""
    return tag_name(run_id), f"{_BEFORE_PREFIX}{run_id}"


def list_tagged_snapshots(table: Table) -> dict[str, Snapshot]:
    """Return the snapshots with a run's tag, by run id."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    return {
        name.removeprefix(_TAG_PREFIX): snapshot
        for name, ref in table.refs().items()
        if ref.snapshot_ref_type is SnapshotRefType.TAG
        and name.startswith(_TAG_PREFIX)
        and (snapshot := by_id.get(ref.snapshot_id))
    }


def ensure_tag(catalog: Catalog, name: str, run_id: str, snapshot_id: int) -> bool:
    """Set a run's tag if it is missing; return False if it exists."""

    def attempt() -> bool:
        table = load_table(catalog, name)
        if run_id in list_tagged_snapshots(table):
            return False
        table.manage_snapshots().create_tag(snapshot_id, tag_name(run_id)).commit()
        return True

    return with_retries(f"tag run {run_id} of table `{name}`", attempt)


@dataclass(frozen=True, slots=True)
class TableState:
    """A state of a table: the snapshot, its time, and the run that made it (None: another program)."""

    snapshot_id: int
    version: int
    run_id: str | None
    made_at_ms: int

    def __str__(self) -> str:
        author = f"run {self.run_id}" if self.run_id else "another program"
        made = f"made {instant_text(self.made_at_ms)} by {author}"
        return f"version {self.version}, {made} (snapshot {self.snapshot_id})"


def state_of_snapshot(snapshot: Snapshot) -> TableState:
    """Return the state of the table in a snapshot."""
    run_id = summary_property(snapshot, RUN_ID)
    return TableState(snapshot.snapshot_id, snapshot_version(snapshot), run_id, snapshot.timestamp_ms)


def current_state(table: Table) -> TableState | None:
    """Return the current state of a table; None if nothing was published yet."""
    current = table.current_snapshot()
    return state_of_snapshot(current) if current else None


def state_after_run(table: Table, run_id: str) -> TableState | None:
    """Return the state of a table after a run; None if the run has no snapshot."""
    snapshot = find_snapshot_of_run(table, run_id)
    return state_of_snapshot(snapshot) if snapshot else None


def state_at(table: Table, at_ms: int) -> TableState:
    """Return the state of a table at an instant: the newest snapshot made at or before it.

    Raises:
        LedgerError: if nothing had been published by then, or the snapshot has expired.
    """
    name, instant, later = table.name()[-1], instant_text(at_ms), None
    for snapshot in list_retained_snapshots(table):
        if snapshot.timestamp_ms <= at_ms:
            if later is not None and snapshot_version(later) != snapshot_version(snapshot) + 1:
                place = f"between {state_of_snapshot(snapshot)}\n  and {state_of_snapshot(later)}"
                raise _expired_error(name, instant, place)
            return state_of_snapshot(snapshot)
        later = snapshot
    if later is None:
        msg = f"nothing was ever published into table `{name}`"
        raise LedgerError(msg)
    if is_first_snapshot(later):
        msg = f"table `{name}` had no rows yet at {instant}\n  the first publication is {state_of_snapshot(later)}"
        raise LedgerError(msg)
    raise _expired_error(name, instant, f"before {state_of_snapshot(later)}")


def _expired_error(name: str, instant: str, place: str) -> LedgerError:
    return LedgerError(f"the state of table `{name}` at {instant} has expired\n  snapshots expired {place}")
