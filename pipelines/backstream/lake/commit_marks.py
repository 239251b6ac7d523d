"""Keep the newest commits of backstream in a property of their table, where they outlive their snapshots.

A catalog may keep only the newest snapshot of a table, and other programs expire snapshots. A commit sets the
property together with its snapshot, and commits of other programs keep it. So a run whose answer was lost, or that
is repeated, knows its own commit, whatever was committed after it.
"""

from __future__ import annotations

import json

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

PREFIX = "backstream."
_PROPERTY = f"{PREFIX}commits"
_MAX_MARKS = 50  # each is a few hundred bytes in each metadata file


def mark_properties(table: Table, snapshot: Snapshot) -> dict[str, str]:
    """Return the property that adds a new snapshot to the commits that a table knows."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    operation = snapshot.summary.operation if snapshot.summary else Operation.OVERWRITE
    own = {key: value for key, value in summary.items() if key.startswith(PREFIX)}
    mark = {
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "summary": {"operation": operation.value, **own},
    }
    marks = [mark, *json.loads(table.properties.get(_PROPERTY, "[]"))]
    return {_PROPERTY: json.dumps(marks[:_MAX_MARKS], separators=(",", ":"))}


def list_marks(table: Table) -> list[Snapshot]:
    """Return the newest commits of backstream, newest first: snapshots without files and without a parent."""
    marks = json.loads(table.properties.get(_PROPERTY, "[]"))
    return [Snapshot.model_validate({"manifest-list": "", **mark}) for mark in marks]
