"""Resume interrupted runs with their original plan; files that arrived later are not read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from backstream import __version__
from backstream.definition.loader import (
    load_definition,
    require_unchanged_code,
    require_unchanged_definition,
    resolve_paths,
)
from backstream.errors import BackstreamError, ConflictError, PlanError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.publication.conflicts import require_no_conflict
from backstream.lake.tables import find_table
from backstream.runs.home import Home, RunFolder
from backstream.runs.manifest import list_unfinished_chunks, version_warning
from backstream.runs.plan import Mode, Plan, slug
from backstream.runs.status import RunStatus, derive_status, read_facts
from backstream.runs.table_schemas import WINDOWS
from backstream.source.files import list_source_files
from backstream.source.input_versions import require_unchanged_inputs
from backstream.source.user_files import list_user_files
from backstream.text import count_of
from backstream.workflow.inputs.side_inputs import require_unchanged_side_inputs

_DIRECT_TRIGGERS = ("cli", "python")
"""Triggers of runs without Airflow: the CLI and the Python API resume the runs of each other."""


class ResumableRun(NamedTuple):
    """An interrupted run that can be resumed, and notes about it for the user."""

    plan: Plan
    notes: tuple[str, ...]


def find_interrupted_run(
    definition_path: Path, interval: Interval, mode: Mode | None, home: Home
) -> ResumableRun | None:
    """Return the newest unfinished run of a range that the command line started; None if there is none.

    The run has finished chunks and the same dataset and mode. A run has ended if the quality gate rejected it, or
    if another run has published into its range since.

    Raises:
        PlanError: when the run cannot be resumed, because its definition or its input files have changed.
    """
    definition = load_definition(definition_path)
    runs = home.path / "runs" / definition.name
    plan = _find_newest_plan(runs, interval, mode or definition.backfill.mode)
    if plan is None or _has_conflict(plan, home):
        return None
    require_resumable(plan)
    return ResumableRun(plan, _list_notes(plan, definition_path, home))


def find_unfinished_plan(trigger: str, dataset: str, home: Home) -> Plan | None:
    """Return the newest plan of a trigger, such as an Airflow run; None if its run has ended.

    A run has ended if it was published or if the quality gate rejected it: a repetition needs a new plan.
    """
    paths = (home.path / "runs" / dataset).glob(f"{slug(trigger)}.*/plan.json")
    plans = [plan for path in paths if (plan := _load_plan(path)) and plan.triggered_by == trigger]
    newest = max(plans, key=lambda plan: plan.folder.plan.stat().st_mtime_ns, default=None)
    return newest if newest and not _has_ended(newest.folder) else None


def require_resumable(
    plan: Plan, hint: str = "use --replan to create a new plan; the interrupted run is kept"
) -> None:
    """Check that the unfinished chunks of a plan can still be run: definition and input files are unchanged.

    Args:
        plan: the plan of the run.
        hint: the hint in the error, which explains how to create a new plan.

    Raises:
        PlanError: with the differences.
    """
    if not list_unfinished_chunks(plan):
        return
    try:
        require_unchanged_definition(plan)
        require_unchanged_code(plan)
        require_unchanged_inputs(plan)
        require_unchanged_side_inputs(plan)
    except PlanError as error:
        facts, _, _ = str(error).partition("\n\nhint: ")
        msg = f"{facts}\n  {_finished_text(plan)}\n\nhint: {hint}"
        raise PlanError(msg) from None


def _find_newest_plan(runs: Path, interval: Interval, mode: Mode) -> Plan | None:
    plans = (plan for trigger in _DIRECT_TRIGGERS for plan in runs.glob(f"{trigger}.*/plan.json"))
    folders = [RunFolder(plan.parent) for plan in plans]
    for folder in sorted(folders, key=lambda folder: folder.plan.stat().st_mtime, reverse=True):
        if not read_facts(folder).is_begun or _has_ended(folder):
            continue
        plan = _load_plan(folder.plan)
        if plan and (plan.range, plan.mode) == (interval, mode):
            return plan
    return None


def _has_ended(folder: RunFolder) -> bool:
    """Return whether the quality gate rejected a run, or it was published and has its report.

    The ledger is not read: a failed run, and a run that an approver rejected, can be resumed.
    """
    status = derive_status(read_facts(folder))
    return status is RunStatus.REFUSED or (status is RunStatus.PUBLISHED and folder.success_marker.exists())


def _load_plan(file: Path) -> Plan | None:
    """Return a plan; None if another version wrote it, because this version cannot run it."""
    try:
        return Plan.read(file)
    except BackstreamError:
        return None


def _has_conflict(plan: Plan, home: Home) -> bool:
    """Return whether another run has published into the range since the plan was made."""
    with open_catalog_for_reading(home) as catalog:
        table = find_table(catalog, plan.tables[WINDOWS].name)
        if table is None:  # it was dropped, or no run has created it yet
            return plan.base_snapshots.get(WINDOWS) is not None
        try:
            require_no_conflict(table, plan)
        except ConflictError:
            return True
    return False


def _finished_text(plan: Plan) -> str:
    finished = len(plan.chunks) - len(list_unfinished_chunks(plan))
    return f"{finished} of {len(plan.chunks)} chunks are finished"


def _list_notes(plan: Plan, definition_path: Path, home: Home) -> tuple[str, ...]:
    notes = [f"resuming the interrupted run {plan.run_id}: {_finished_text(plan)}"]
    planned = {file.path for file in (*plan.inputs, *plan.damaged)} | {file.path for file in plan.skipped}
    source = resolve_paths(load_definition(definition_path), home).source
    later = [path for path in list_source_files(source, str(definition_path)).paths if path not in planned]
    if new := {path for file in later for path in list_user_files(file)}:
        files = count_of(len(new), "input file")
        notes.append(
            f"{files} arrived after planning and will not be read; use --replan for a new plan with all files"
        )
    if warning := version_warning(plan, __version__):
        notes.append(f"warning: {warning}")
    return tuple(notes)
