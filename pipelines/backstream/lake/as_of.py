"""A table as it was: after a run, or at an instant."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from backstream.core.errors import LedgerError
from backstream.core.instants import instant_text
from backstream.lake import history


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
    run_id = history.said(snapshot, history.RUN_ID)
    return AsOf(snapshot.snapshot_id, history.version(snapshot), run_id, snapshot.timestamp_ms)


def now(table: Table) -> AsOf | None:
    """The table as it is; None while nothing was published."""
    current = table.current_snapshot()
    return told(current) if current else None


def after_run(table: Table, run_id: str) -> AsOf | None:
    """The table as a run left it; None when no snapshot of that run is there."""
    found = history.snapshot_of(table, run_id)
    return told(found) if found else None


def at_instant(table: Table, at_ms: int) -> AsOf:
    """The table as it was at an instant: the newest snapshot made at or before it.

    Raises:
        LedgerError: when nothing had been published by then, or what was then is not known any more.
    """
    name, asked, later = table.name()[-1], instant_text(at_ms), None
    for snapshot in history.retained(table):
        if snapshot.timestamp_ms <= at_ms:
            if later is not None and history.version(later) != history.version(snapshot) + 1:
                raise _expired(name, asked, f"between {told(snapshot)}\n  and {told(later)}")
            return told(snapshot)
        later = snapshot
    if later is None:
        msg = f"nothing was ever published into table `{name}`"
        raise LedgerError(msg)
    if history.is_first(later):
        msg = f"table `{name}` had no rows yet at {asked}\n  the first publication is {told(later)}"
        raise LedgerError(msg)
    raise _expired(name, asked, f"before {told(later)}")


def _expired(name: str, asked: str, where: str) -> LedgerError:
    return LedgerError(
        f"how table `{name}` was at {asked} is not known any more\n  snapshots were expired {where}"
    )
