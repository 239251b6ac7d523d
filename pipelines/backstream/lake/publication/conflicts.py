"""Find commits that changed a range in the meantime; commits to other rows don't conflict.

A snapshot of a run records its range. The files that the snapshot of another program added and removed show which
windows it changed. A compaction changes no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import PrimitiveType

from backstream.errors import ConflictError
from backstream.eventtime.intervals import Interval
from backstream.lake import snapshots
from backstream.lake.commit import find_commit_snapshot
from backstream.lake.scans import DAY_COLUMN, digest_files
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import WINDOWS

_US_PER_MS = 1_000


class Base(NamedTuple):
    """The state of a table when a run was planned: its snapshot (None: it was empty), and a digest of its files.

    The digest is of the files in the range of the run, and empty unless the catalog keeps no history.
    """

    snapshot_id: int | None
    files: str = ""


def require_no_conflict(table: Table, plan: Plan) -> None:
    """Check that no other commit changed the plan's range since the plan was made.

    Raises:
        ConflictError: with the conflicting run or snapshot, or because the history has expired.
    """

    def is_own(snapshot: Snapshot) -> bool:
        return snapshots.summary_property(snapshot, snapshots.RUN_ID) == plan.run_id

    what = f"publish {plan.dataset} {plan.range}"
    base = Base(plan.base_snapshots.get(WINDOWS), plan.base_files.get(WINDOWS, ""))
    require_unchanged(table, base, plan.range, what, is_own)


def require_unchanged(
    table: Table,
    base: Base,
    interval: Interval,
    what: str,
    is_own: Callable[[Snapshot], bool],
    column: str = DAY_COLUMN,
) -> None:
    """Check that no other commit changed an interval since a base.

    Args:
        table: a table of windows.
        base: its state to compare with.
        interval: the interval of window starts.
        what: the action to refuse, such as `publish flights`.
        is_own: returns whether a snapshot is of the caller itself.
        column: the column of the window start, a timestamp.

    Raises:
        ConflictError: with the conflicting run or snapshot, or because the history has expired.
    """
    base_id, oldest = base.snapshot_id, None
    for snapshot in snapshots.list_ancestors(table):
        if snapshot.snapshot_id == base_id:
            return
        if not is_own(snapshot) and changes_range(table, snapshot, interval, column):
            fact = f"{_base_text(table, base_id)}, found version {snapshot.sequence_number}"
            author = describe_author(snapshot)
            raise _conflict(what, "the table changed since it was planned", f"{fact} ({author})")
        oldest = snapshot
    is_complete = oldest is None or snapshots.is_first_snapshot(oldest)
    if base.files and base.files == digest_files(table, interval, column):
        return
    if base.files:
        fact = f"{_base_text(table, base_id)}; this range has other files now"
        raise _conflict(what, "the table changed since it was planned", fact)
    if base_id is not None or not is_complete:
        fact = f"{_base_text(table, base_id)}, and the table's history does not lead back to that"
        raise _conflict(what, "the table has another history now", fact)


def changes_range(table: Table, snapshot: Snapshot, interval: Interval, column: str = DAY_COLUMN) -> bool:
    """Return whether a snapshot may have changed rows of the interval.

    Args:
        table: a table of windows.
        snapshot: one of its snapshots.
        interval: the interval of window starts.
        column: the column of the window start, a timestamp.
    """
    if (replaced := snapshots.range_of_snapshot(snapshot)) is not None:
        return replaced.overlaps(interval)
    if snapshot.summary and snapshot.summary.operation is Operation.REPLACE:
        return False
    return any(_may_hold(table, file, interval, column) for file in _list_changed_files(table, snapshot))


def describe_author(snapshot: Snapshot) -> str:
    """Return the range and the run that made a snapshot as text, or the operation of another program."""
    interval = snapshots.range_of_snapshot(snapshot)
    if interval is None:
        operation = snapshot.summary.operation.value if snapshot.summary else "change"
        return f"{operation}, made by another program"
    return f"{interval}, published by run {snapshots.summary_property(snapshot, snapshots.RUN_ID)}"


def _list_changed_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """Yield the files that a snapshot added and removed."""
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            is_changed = entry.status is not ManifestEntryStatus.EXISTING
            if is_changed and entry.snapshot_id in (None, snapshot.snapshot_id):
                yield entry.data_file


def _may_hold(table: Table, file: DataFile, interval: Interval, column: str) -> bool:
    """Return whether a file may have rows of the interval, or delete some; without bounds, it may."""
    if file.content is not DataFileContent.DATA:
        return True  # it has the bounds of paths and positions, not of windows
    field = table.schema().find_field(column)
    lower, upper = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
    if lower is None or upper is None or not isinstance(field.field_type, PrimitiveType):
        return True
    first_us, last_us = (int(from_bytes(field.field_type, bound)) for bound in (lower, upper))
    return first_us < interval.end_ms * _US_PER_MS and last_us >= interval.start_ms * _US_PER_MS


def _base_text(table: Table, base_id: int | None) -> str:
    if base_id is None:
        return "planned when the table was empty"
    base = find_commit_snapshot(table, base_id)
    return f"planned against version {base.sequence_number}" if base else f"planned against snapshot {base_id}"


def _conflict(what: str, reason: str, fact: str) -> ConflictError:
    return ConflictError(
        f"refusing to {what}: {reason}\n  {fact}\n\nhint: plan the range again; nothing was published"
    )
