"""Plan, execute, publish, and roll back runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.api.arguments import RangeEnd, api_request, load_run_plan, mode_of, open_home
from backstream.errors import SpecError
from backstream.eventtime.intervals import require_range_of_days
from backstream.runs.choices import RunChoices, RunnerName
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Publication
from backstream.text import text_logger
from backstream.workflow.execution import (
    RunObserver,
    execute_run,
    prepare_for_run,
    run_range,
)
from backstream.workflow.runners import choose_runner, runner_on_demand, start_runner

if TYPE_CHECKING:
    from backstream.lake.publication.rollback import RollbackResult
    from backstream.workflow.preview.preview_result import Preview


log = text_logger("backstream.api")


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
        from backstream.workflow.publish import publication_text

        return publication_text(self.plan)


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
    from backstream.workflow.plan.planning import plan_run

    choices = RunChoices(
        mode=mode_of(mode),
        reason=reason,
        is_unsealed_allowed=allow_unsealed,
        gate_override=gate_override.strip(),
    )
    request = api_request(choices, definition, (since, until), time_zone, home)
    require_range_of_days(request.interval)
    prepare_for_run(request, log.info)
    return plan_run(request)


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
    choices = RunChoices(mode=mode_of(mode), is_unsealed_allowed=True)
    request = api_request(choices, definition, (since, until), time_zone, home)
    require_range_of_days(request.interval)
    prepare_for_run(request, log.info)
    with runner_on_demand(request.definition, choose_runner(request.definition)) as runner:
        return preview_run(request, runner.session, keys)


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
    runner: str | None = None,
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
        runner: `spark`, or `local` for processes of this machine without Java; None: that of the definition.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when the definition, the range, or an option is wrong.
        PlanError: when the range cannot be planned, or an interrupted run cannot continue.
        QualityError: when the quality gate fails; nothing is published.
        ConflictError: when another run published into the range since this one was planned.
    """
    choices = RunChoices(
        mode=mode_of(mode),
        reason=reason,
        is_unsealed_allowed=allow_unsealed,
        gate_override=gate_override.strip(),
    )
    request = api_request(choices, definition, (since, until), time_zone, home)
    return _load_result(run_range(request, _Log(), runner_name=_runner_name(runner), is_replan=replan))


def _runner_name(text: str | None) -> RunnerName | None:
    try:
        return None if text is None else RunnerName(text)
    except ValueError:
        msg = f"runner must be {' or '.join(map(repr, map(str, RunnerName)))}, got {text!r}"
        raise SpecError(msg) from None


def execute(plan: Plan) -> RunResult:
    """Replay, audit, and publish an existing plan, and write its report. Finished chunks do not run again.

    Args:
        plan: result of `plan`.

    Raises:
        PlanError: when the definition or the input files changed since the run was planned.
        QualityError: when the quality gate fails; nothing is published.
        ConflictError: when another run published into the range since this one was planned.
    """
    from backstream.workflow.resume import require_resumable

    require_resumable(plan, hint="create a new plan")
    definition = Path(plan.definition_path)
    execute_run(plan, start_runner(definition, choose_runner(definition)), _Log())
    return _load_result(plan)


def publish(run: str | Plan, *, home: str | Path | None = None) -> Publication:
    """Publish a run that has passed its audit, e.g., after an interruption. A repetition changes nothing.

    Args:
        run: run id or plan.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when there is no such run.
        StepError: when the run was not audited.
        QualityError: when the quality gate failed.
        ConflictError: when another run published into the range since this one was planned.
    """
    from backstream.workflow.publish import publish_run

    return publish_run(load_run_plan(run, home))


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

    return rollback_run(open_home(home), run_id, reason)


class _Log(RunObserver):
    """Receiver that logs the remarks of a run."""

    def note(self, line: str) -> None:
        """Log the remark."""
        log.info("%s", line)


def _load_result(plan: Plan) -> RunResult:
    folder = plan.folder
    return RunResult(plan, Audit.read(folder.audit_result), Publication.read(folder.publication), folder.report)
