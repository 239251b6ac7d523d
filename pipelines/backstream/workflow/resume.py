"""Resume interrupted runs with their original plan; files that arrived later are not read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from backstream import __version__
from backstream.definition.loader import (
    load_definition,
    resolve_paths,
)
from backstream.errors import BackstreamError, ConflictError, PlanError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.publication.conflicts import require_no_conflict
from backstream.lake.tables import find_table
from backstream.runs.home import Home, RunFolder
from backstream.runs.manifest import list_unfinished_chunks, version_warning
from backstream.runs.plan import DIRECT_TRIGGERS, Mode, Plan
from backstream.runs.results import LaterFiles, Publication
from backstream.runs.status import RunStatus, derive_status, read_facts
from backstream.runs.store import Runs
from backstream.runs.table_schemas import WINDOWS
from backstream.source.files import list_source_files
from backstream.source.footers import load_footers
from backstream.source.user_files import list_user_files
from backstream.storage.files import remove_file
from backstream.workflow.demands import has_published_rows, is_committed
from backstream.workflow.unchanged_inputs import require_nothing_changed


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
    plan = _find_newest_plan(Runs(home), definition.name, interval, mode or definition.backfill.mode)
    if plan is None or _has_conflict(plan, home):
        return None
    require_resumable(plan)
    return ResumableRun(plan, _list_notes(plan))


def find_plan_of(trigger: str, dataset: str, home: Home) -> Plan | None:
    """Return the newest plan of a trigger, such as an Airflow run; None if it needs a new one.

    A plan can only be refused if the quality gate rejected its results, or if another run has published into its
    range. The plan of a published run stays as long as a new one would lead to the rows that are published.
    """
    runs = Runs(home)
    plans = (runs.plan_or_none(dataset, folder.path.name) for folder in runs.of_trigger(dataset, trigger))
    newest = next(filter(None, plans), None)
    if newest is None or derive_status(read_facts(newest.folder)) is RunStatus.REFUSED:
        return None
    if is_committed(newest):
        return newest if _is_current(newest) else None
    return None if _has_conflict(newest, home) else newest


def _is_current(plan: Plan) -> bool:
    """Return whether a new plan of a published run would lead to the same rows, and these are published."""
    if plan.folder.publication.exists() and not has_published_rows(
        plan, Publication.read(plan.folder.publication)
    ):
        return False
    if not plan.folder.success_marker.exists():
        return True  # its report is still to be written
    try:
        require_nothing_changed(plan)
    except BackstreamError:
        return False
    return version_warning(plan, __version__) is None and _find_later_files(plan) is None


def _find_later_files(plan: Plan) -> LaterFiles | None:
    """Return the input files that came after a plan and can hold events of its range; None if there are none."""
    definition_path = Path(plan.definition_path)
    if not definition_path.exists():
        return None
    definition = resolve_paths(load_definition(definition_path), plan.home)
    planned = {file.path for file in (*plan.inputs, *plan.damaged)} | {file.path for file in plan.skipped}
    listed = list_source_files(definition.source, plan.definition_path)
    if planned.issuperset(listed.paths):
        return None
    reach = Interval(plan.since_ms, max((chunk.halo_end_ms for chunk in plan.chunks), default=plan.until_ms))
    footers = load_footers(listed, definition, plan.home).inputs
    later = [file for file in footers if file.path not in planned and file.may_hold(reach)]
    names = {path for file in later for path in list_user_files(file.path)}
    return LaterFiles(len(names), sum(file.rows for file in later)) if later else None


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
        require_nothing_changed(plan)
    except PlanError as error:
        facts, _, _ = str(error).partition("\n\nhint: ")
        msg = f"{facts}\n  {_finished_text(plan)}\n\nhint: {hint}"
        raise PlanError(msg) from None


def _find_newest_plan(runs: Runs, dataset: str, interval: Interval, mode: Mode) -> Plan | None:
    for folder in runs.of_trigger(dataset, *DIRECT_TRIGGERS):
        if not read_facts(folder).is_begun or _has_ended(folder):
            continue
        plan = runs.plan_or_none(dataset, folder.path.name)
        if plan and (plan.range, plan.mode) == (interval, mode):
            return plan
    return None


def _has_ended(folder: RunFolder) -> bool:
    """Return whether the quality gate rejected a run, or it was published and has its report.

    The ledger is not read: a failed run, and a run that an approver rejected, can be resumed.
    """
    status = derive_status(read_facts(folder))
    return status is RunStatus.REFUSED or (status is RunStatus.PUBLISHED and folder.success_marker.exists())


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


def note_later_files(plan: Plan) -> str:
    """Return a sentence about the files that a resumed run does not read, and keep it for its report and page."""
    later = _find_later_files(plan)
    if later is None:
        remove_file(plan.folder.later_files)
        return ""
    later.write(plan.folder.later_files)
    return str(later)


def _list_notes(plan: Plan) -> tuple[str, ...]:
    notes = [f"resuming the interrupted run {plan.run_id}: {_finished_text(plan)}"]
    if later := note_later_files(plan):
        notes.append(f"{later} (--replan)")
    if warning := version_warning(plan, __version__):
        notes.append(f"warning: {warning}")
    return tuple(notes)
