"""Going on where a run was interrupted: the same plan, whatever has arrived since."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from backstream import __version__
from backstream.definition.loader import load_definition, require_unchanged_definition, resolve_paths
from backstream.errors import BackstreamError, ConflictError, PlanError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.snapshots import require_no_conflict
from backstream.lake.tables import find_table
from backstream.runs.home import Home, RunFolder
from backstream.runs.manifest import list_unfinished_chunks, require_unchanged_inputs, version_warning
from backstream.runs.plan import Mode, Plan, slug
from backstream.runs.results import Audit
from backstream.runs.table_schemas import WINDOWS
from backstream.source.files import list_source_files

_DIRECT_TRIGGERS = ("cli", "python")
"""Triggers of runs without Airflow: the CLI and the Python API resume the runs of each other."""


class ResumableRun(NamedTuple):
    """An interrupted run that can go on, and what a person has to know about it."""

    plan: Plan
    notes: tuple[str, ...]


def find_interrupted_run(
    definition_path: Path, interval: Interval, mode: Mode | None, home: Home
) -> ResumableRun | None:
    """The newest run of this dataset, range and mode by the command line that left finished chunks and no end.

    A run that the gate refused has ended, and so has one into whose range another has published since.

    Raises:
        PlanError: when it cannot go on: its definition has changed, or its input files have.
    """
    definition = load_definition(definition_path)
    wanted = mode or definition.backfill.mode
    found = _newest(home.path / "runs" / definition.name, interval, wanted)
    if found is None or _is_overtaken(found, home):
        return None
    require_resumable(found)
    return ResumableRun(found, _notes(found, definition_path, home))


def find_unfinished_plan(trigger: str, dataset: str, home: Home) -> Plan | None:
    """The newest plan that something asked for, such as an Airflow run, unless its run has ended.

    Ended is what was published, or what the gate refused: whoever asks again for that wants it anew.
    """
    paths = (home.path / "runs" / dataset).glob(f"{slug(trigger)}.*/plan.json")
    found = [plan for path in paths if (plan := _readable(path))]
    mine = [plan for plan in found if plan.triggered_by == trigger]
    newest = max(mine, key=lambda plan: plan.folder.plan.stat().st_mtime_ns, default=None)
    return newest if newest and not _has_ended(newest.folder) else None


def require_resumable(
    plan: Plan, hint: str = "--replan leaves that run as it is and plans the range anew"
) -> None:
    """Check that what is left of a plan can still be run as it was planned.

    Args:
        plan: what a run was begun with.
        hint: how to plan anew, for whoever is told that it cannot.

    Raises:
        PlanError: naming what differs.
    """
    if not list_unfinished_chunks(plan):
        return
    try:
        require_unchanged_definition(plan)
        require_unchanged_inputs(plan)
    except PlanError as error:
        facts, _, _ = str(error).partition("\n\nhint: ")
        done = (
            f"{len(plan.chunks) - len(list_unfinished_chunks(plan))} of {len(plan.chunks)} chunks of it are done"
        )
        msg = f"{facts}\n  {done}\n\nhint: {hint}"
        raise PlanError(msg) from None


def _newest(runs: Path, interval: Interval, mode: Mode) -> Plan | None:
    plans = (plan for trigger in _DIRECT_TRIGGERS for plan in runs.glob(f"{trigger}.*/plan.json"))
    folders = [RunFolder(plan.parent) for plan in plans]
    for folder in sorted(folders, key=lambda each: each.plan.stat().st_mtime, reverse=True):
        if not _is_open(folder):
            continue
        plan = _readable(folder.plan)
        if plan and (plan.range, plan.mode) == (interval, mode):
            return plan
    return None


def _is_open(folder: RunFolder) -> bool:
    """Whether a run has begun and not ended."""
    return any(folder.path.glob("chunks/*.json")) and not _has_ended(folder)


def _has_ended(folder: RunFolder) -> bool:
    """Whether a run was refused, or published: the report, which tells of it, is the last that a run leaves."""
    if _is_reported(folder):
        return True
    return folder.audit_result.exists() and not Audit.read(folder.audit_result).may_publish


def _is_reported(folder: RunFolder) -> bool:
    try:
        return folder.report.stat().st_mtime_ns >= folder.publication.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def _readable(file: Path) -> Plan | None:
    """None for what another version wrote: it is no plan that could be run here."""
    try:
        return Plan.read(file)
    except BackstreamError:
        return None


def _is_overtaken(plan: Plan, home: Home) -> bool:
    """Whether its publication would be refused, because another run has published into the range."""
    with open_catalog_for_reading(home) as catalog:
        table = find_table(catalog, plan.tables[WINDOWS].name)
        if table is None:  # not any more, or not yet
            return plan.base_snapshots.get(WINDOWS) is not None
        try:
            require_no_conflict(table, plan)
        except ConflictError:
            return True
    return False


def _notes(plan: Plan, definition_path: Path, home: Home) -> tuple[str, ...]:
    done = len(plan.chunks) - len(list_unfinished_chunks(plan))
    notes = [f"going on with the interrupted run {plan.run_id}: {done} of {len(plan.chunks)} chunks are done"]
    planned = {file.path for file in (*plan.inputs, *plan.damaged)} | {file.path for file in plan.skipped}
    source = resolve_paths(load_definition(definition_path), home).source
    if new := sum(str(path) not in planned for path in list_source_files(source, str(definition_path)).paths):
        files = "1 input file has" if new == 1 else f"{new} input files have"
        notes.append(
            f"{files} come since it was planned and will not be read; --replan plans anew, with all files"
        )
    if warning := version_warning(plan, __version__):
        notes.append(f"warning: {warning}")
    return tuple(notes)
