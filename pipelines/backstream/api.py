"""Run, compare, and read backfills from Python, e.g., from a notebook: the commands of the CLI as functions.

`import backstream` provides all functions of this module. A function imports its libraries at its first call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from backstream.definition.folder import find_definition
from backstream.definition.loader import load_definition
from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import require_range_of_days
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Publication
from backstream.runs.settings import provide_settings
from backstream.text import ReportFormat
from backstream.workflow.execution import (
    RunObserver,
    SparkStart,
    execute_run,
    prepare_for_run,
    run_range,
    spark_on_demand,
)
from backstream.workflow.plan_request import PlanRequest
from backstream.workflow.requested_range import parse_open_range, parse_range

if TYPE_CHECKING:
    import pyarrow as pa

    from backstream.lake.rollback import RollbackResult
    from backstream.runs.verification import Receipt
    from backstream.workflow.explain import Explanation
    from backstream.workflow.history import RunDifference
    from backstream.workflow.preview.result import Preview

log = logging.getLogger(__name__)

__all__ = [
    "RunResult",
    "diff",
    "execute",
    "explain",
    "hand_over",
    "load_definition",
    "plan",
    "preview",
    "publish",
    "read",
    "roll_back",
    "run",
    "run_report",
    "verify",
]

RangeEnd = str | date
"""An instant as ISO 8601 text, a `date` (midnight UTC), or a `datetime` with a time zone."""

_TRIGGER = "python"


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """The result of a published run. `print(result)` shows the counts of the run."""

    plan: Plan
    """The plan of the run."""
    audit: Audit
    """The verdict with all checks."""
    publication: Publication
    """The number of rows and the snapshots of the commit."""
    report: Path
    """The HTML file of the report."""

    @property
    def run_id(self) -> str:
        """The id of the run, for the other functions."""
        return self.plan.run_id

    def __repr__(self) -> str:
        """Return the run id, the verdict, and the number of rows."""
        verdict, rows = self.audit.verdict.value, self.publication.rows
        return f"RunResult(run_id={self.run_id!r}, verdict={verdict!r}, rows={rows})"

    def __str__(self) -> str:
        """Return the counts of the run, the verdict, and the publication as text."""
        from backstream import workflow

        return workflow.publication_text(self.plan)


def plan(  # noqa: PLR0913 - each is an option
    definition: str | Path,
    since: RangeEnd,
    until: RangeEnd,
    *,
    mode: Mode | str | None = None,
    time_zone: str | None = None,
    reason: str = "",
    allow_unsealed: bool = False,
    gate_override: str = "",
    home: str | Path | None = None,
) -> Plan:
    """Create the plan of a run, and write it to the home folder. No table is created or changed.

    Args:
        definition: TOML file or name of a definition.
        since: first day of the range.
        until: day after the last day of the range.
        mode: `recompute` or `replay`; by default the mode of the definition.
        time_zone: time zone of both ends, e.g., `America/New_York`; the range covers all UTC days that overlap it.
        reason: reason for the run, stored in the report and the ledger.
        allow_unsealed: whether days that are not sealed yet may be published.
        gate_override: reason for a publication although the quality gate fails; empty: no publication.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when the definition, the range, or an option is wrong.
        PlanError: when the range cannot be planned, e.g., because a day is not sealed.
    """
    from backstream import workflow

    options = _Options(_mode(mode), reason, allow_unsealed, gate_override.strip())
    request = options.request(definition, (since, until), time_zone, home)
    require_range_of_days(request.interval)
    prepare_for_run(request, log.info)
    return workflow.plan_run(request)


def preview(
    definition: str | Path,
    since: RangeEnd,
    until: RangeEnd,
    *,
    keys: float | None = None,
    mode: Mode | str | None = None,
    time_zone: str | None = None,
    home: str | Path | None = None,
) -> Preview:
    """Return the rows that a run would change, the causes, and the cost of the run. Nothing is published.

    The rows of a sample of keys are computed exactly; the numbers for all keys are estimates. `print(result)`
    shows them.

    Args:
        definition: TOML file or name of a definition.
        since: first day of the range.
        until: day after the last day of the range.
        keys: share of the keys, e.g., 0.05; by default 0.01, or more if these are fewer than 50 keys.
        mode: `recompute` or `replay`; by default the mode of the definition.
        time_zone: time zone of both ends, e.g., `America/New_York`.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when the definition, the range, or an option is wrong.
        PlanError: when the range cannot be planned, or the records cannot be read without Spark.
    """
    from backstream.workflow.preview.preview import preview_run

    if keys is not None and not 0 < keys <= 1:
        msg = f"keys must be a share above 0 and up to 1, got {keys!r}"
        raise SpecError(msg)
    options = _Options(_mode(mode), "", is_unsealed_allowed=True, gate_override="")
    request = options.request(definition, (since, until), time_zone, home)
    require_range_of_days(request.interval)
    prepare_for_run(request, log.info)
    with spark_on_demand(request.definition) as start:
        return preview_run(request, start, keys)


def run(  # noqa: PLR0913 - each is an option
    definition: str | Path,
    since: RangeEnd,
    until: RangeEnd,
    *,
    mode: Mode | str | None = None,
    time_zone: str | None = None,
    reason: str = "",
    allow_unsealed: bool = False,
    gate_override: str = "",
    replan: bool = False,
    home: str | Path | None = None,
) -> RunResult:
    """Plan a range, replay it on the cores of this machine, audit it, publish it, and write its report.

    An interrupted run of the same range continues where it stopped, with its own plan. Spark starts in this
    process and stops at the end. A session that is already active is used with backstream's settings, and stays.

    Args:
        definition: TOML file or name of a definition.
        since: first day of the range.
        until: day after the last day of the range.
        mode: `recompute` or `replay`; by default the mode of the definition.
        time_zone: time zone of both ends, e.g., `America/New_York`; the range covers all UTC days that overlap it.
        reason: reason for the run, stored in the report and the ledger.
        allow_unsealed: whether days that are not sealed yet may be published.
        gate_override: reason for a publication although the quality gate fails; empty: no publication.
        replan: whether to create a new plan instead of resuming an interrupted run.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when the definition, the range, or an option is wrong.
        PlanError: when the range cannot be planned, or an interrupted run cannot continue.
        QualityError: when the quality gate fails; nothing is published.
        ConflictError: when another run published into the range since this one was planned.
    """
    options = _Options(_mode(mode), reason, allow_unsealed, gate_override.strip())
    request = options.request(definition, (since, until), time_zone, home)
    return _load_result(run_range(request, _Log(), is_replan=replan))


def execute(plan: Plan) -> RunResult:
    """Replay, audit, and publish an existing plan, and write its report. Finished chunks do not run again.

    Args:
        plan: result of `plan`.

    Raises:
        PlanError: when the definition or the input files changed since the run was planned.
        QualityError: when the quality gate fails; nothing is published.
        ConflictError: when another run published into the range since this one was planned.
    """
    from backstream import workflow

    workflow.require_resumable(plan, hint="create a new plan")
    execute_run(plan, SparkStart(Path(plan.definition_path)), _Log())
    return _load_result(plan)


def publish(run: str | Plan, *, home: str | Path | None = None) -> Publication:
    """Publish a run that has passed its audit, e.g., after an interruption. A repetition changes nothing.

    Args:
        run: run id or plan.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when there is no such run.
        QualityError: when the run was not audited, or the quality gate failed.
        ConflictError: when another run published into the range since this one was planned.
    """
    from backstream import workflow

    return workflow.publish_run(_load_plan(run, home))


def run_report(
    run: str | Path | Plan, form: ReportFormat | str = "html", *, home: str | Path | None = None
) -> str:
    """Return the report of a run as text. Nothing is written.

    Args:
        run: run id or plan; of a definition the newest run.
        form: `html`, `md` (Markdown), or `json`.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when there is no such run or format.
    """
    from backstream import workflow

    try:
        chosen = ReportFormat(form)
    except ValueError:
        msg = f"form must be {' or '.join(ReportFormat)}, got {form!r}"
        raise SpecError(msg) from None
    return workflow.report_text(_load_plan(run, home), chosen)


def diff(run: str | Path | Plan, *, limit: int = 10, home: str | Path | None = None) -> RunDifference:
    """Return the changes that a published run made, or that a run without publication would make.

    Args:
        run: run id or plan; of a definition the newest run.
        limit: number of largest changes per aggregate; `changes.largest(limit)` of the result has them as a table.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when the definition has no run.
        LedgerError: when there is no such run, or the rows that it replaced are no longer available.
    """
    from backstream.workflow.history import diff_run

    place = _home(home)
    if isinstance(run, Plan):
        return diff_run(place, run.run_id, limit)
    newest = _find_newest_plan(run, place)
    return diff_run(place, newest.run_id if newest else str(run), limit)


def roll_back(run_id: str, *, reason: str = "", home: str | Path | None = None) -> RollbackResult:
    """Undo a published run: its range holds again the rows from before the run. Later runs stay.

    Args:
        run_id: id of a published run.
        reason: reason for the rollback, stored in the ledger.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        LedgerError: when the run was never published, or the rows from before are no longer available.
        ConflictError: when a later run published into the range.
    """
    from backstream.workflow.history import rollback_run

    return rollback_run(_home(home), run_id, reason)


def hand_over(
    run: str | Plan, at: RangeEnd, folder: str | Path | None = None, *, home: str | Path | None = None
) -> Path:
    """Write the state of a run's recorded stream at an instant, so that a live job continues from there.

    Args:
        run: run id or plan of a replay.
        at: instant on the clock of arrival; records that arrived before it are in the bundle.
        folder: folder of the bundle; by default in the folder of the run.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Returns:
        The folder of the bundle.

    Raises:
        SpecError: when there is no such run, or its definition cannot be handed over.
        PlanError: when an input file was deleted or changed.
    """
    from backstream.workflow.handover import hand_over_run

    at_ms = instant_ms(_instant_text(at), "at")
    _, written = hand_over_run(_load_plan(run, home), at_ms, None if folder is None else Path(folder))
    return written


def read(
    dataset: str,
    since: RangeEnd | None = None,
    until: RangeEnd | None = None,
    *,
    as_of: str | None = None,
    home: str | Path | None = None,
) -> pa.Table:
    """Return the published rows of a dataset as a PyArrow table, sorted by all columns.

    Args:
        dataset: name of the dataset.
        since: start of the first windows; by default no limit.
        until: end of the range of window starts, excluded; by default no limit.
        as_of: run id or instant: return the rows as of this time; by default now.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        LedgerError: when there is no such dataset, or its rows at `as_of` are no longer available.
        SpecError: when the range or `as_of` is wrong.
    """
    from backstream.lake.reader import load_rows
    from backstream.workflow.history import load_dataset_rows

    start, end = (None if instant is None else _instant_text(instant) for instant in (since, until))
    interval = parse_open_range(start, end)
    if as_of is None:
        return load_rows(_home(home), dataset, interval)
    with load_dataset_rows(_home(home), dataset, interval, as_of) as rows:
        state = rows.state
    return load_rows(_home(home), dataset, interval, state.snapshot_id if state else None)


def explain(
    dataset: str, window: str, key: Mapping[str, object] | None = None, *, home: str | Path | None = None
) -> Explanation:
    """Return the explanation of a published row: its records, watermarks, fates, and firings.

    The reference engine recomputes the row from the input files; no Spark starts. `print` shows the explanation,
    and its `is_confirmed` is false if the row of the table is another one.

    Args:
        dataset: name of the dataset.
        window: start of the window, e.g., `2013-02-09T10:00Z`; `START/END` if several windows start then.
        key: values of the key columns.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when no window starts then, or the key does not fit.
        LedgerError: when no run has published the day of the window.
        PlanError: when the reference engine cannot compute the dataset, or an input file is not as planned.
    """
    from backstream.workflow.explain import explain_window

    return explain_window(_home(home), dataset, window, {name: str(value) for name, value in (key or {}).items()})


def verify(run: str | Path | Plan, sample: int = 200, *, seed: int = 0, home: str | Path | None = None) -> Receipt:
    """Recompute a random sample of the rows of a run from its input files, and return the receipt.

    Args:
        run: run id or plan; of a definition the newest run.
        sample: number of rows.
        seed: seed of the sample; the same seed draws the same rows.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when there is no such run.
        PlanError: when the reference engine cannot compute the dataset.
    """
    from backstream.workflow.verify import verify_run

    return verify_run(_load_plan(run, home), sample, seed)


class _Options(NamedTuple):
    """Options of a plan besides its definition and range."""

    mode: Mode | None
    reason: str
    is_unsealed_allowed: bool
    gate_override: str

    def request(
        self,
        definition: str | Path,
        ends: tuple[RangeEnd, RangeEnd],
        time_zone: str | None,
        home: str | Path | None,
    ) -> PlanRequest:
        """Return the request for a plan of a range with these options."""
        path, (since, until) = _find_definition(definition), ends
        requested = parse_range(_instant_text(since), _instant_text(until), time_zone)
        return PlanRequest(
            path,
            requested.interval,
            trigger=_TRIGGER,
            home=_home(home),
            local_days=requested.local_days,
            **self._asdict(),
        )


class _Log(RunObserver):
    """Receiver that logs the remarks of a run."""

    def note(self, line: str) -> None:
        """Log the remark."""
        log.info("%s", line)


def _load_result(plan: Plan) -> RunResult:
    folder = plan.folder
    return RunResult(plan, Audit.read(folder.audit_result), Publication.read(folder.publication), folder.report)


def _load_plan(run: str | Path | Plan, home: str | Path | None) -> Plan:
    from backstream.workflow.report import load_plan

    if isinstance(run, Plan):
        return run
    place = _home(home)
    return _find_newest_plan(run, place) or load_plan(place, str(run))


def _find_newest_plan(definition: str | Path, home: Home) -> Plan | None:
    """Return the newest plan of a definition, or None when there is no such definition."""
    from backstream.workflow.history import find_newest_run

    try:
        path = _find_definition(definition)
    except SpecError:
        return None
    return find_newest_run(home, load_definition(path).name)


def _instant_text(end: RangeEnd) -> str:
    return end if isinstance(end, str) else end.isoformat()


def _mode(mode: Mode | str | None) -> Mode | None:
    try:
        return None if mode is None else Mode(mode)
    except ValueError:
        msg = f"mode must be {' or '.join(Mode)}, got {mode!r}"
        raise SpecError(msg) from None


def _find_definition(definition: str | Path) -> Path:
    provide_settings()
    return find_definition(str(definition))


def _home(home: str | Path | None) -> Home:
    provide_settings()
    return Home.from_environment() if home is None else Home(Path(home).resolve())
