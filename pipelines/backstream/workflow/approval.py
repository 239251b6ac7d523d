"""Request the approval of a publication, and record the decision."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import SECOND_MS, epoch_ms
from backstream.formatting import change_text, count_of, minute_text, value_text
from backstream.lake.diff import AggregateChange
from backstream.lake.ledger import record_run
from backstream.lake.run_rows import ledger_row
from backstream.report.failing_rows import FailingRow, list_failing_rows
from backstream.report.run_context import largest_changes
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase, begin_phase, keep_phase
from backstream.runs.results import ApprovalDecision, ApprovalRequest, Audit, CheckOutcome
from backstream.runs.status import RunStatus
from backstream.text import visible_line
from backstream.workflow.demands import is_committed, may_need_person, needs_person, require_audit
from backstream.workflow.history import RunDifference, diff_run
from backstream.workflow.preview.causes import find_run_changes
from backstream.workflow.publish import record_failure
from backstream.workflow.report import report_run, state_text

_MAX_CHECKS = 10
"""The number of failed checks that an approval request lists."""
_MAX_ROWS = 8
"""The number of changed rows of each aggregate that an approval request lists."""
_MAX_CAUSES = 3
"""The number of changed files, keys, or functions that an approval request lists for each cause."""
_MAX_RUNS = 3
"""The number of replaced runs that an approval request lists."""


def request_approval(plan: Plan, dag_id: str, dag_run_id: str, task_id: str) -> ApprovalRequest | None:
    """Write the approval request and the report, and return the request; None if no approval is needed.

    A published run needs none any more.

    Args:
        plan: the plan of the run.
        dag_id: DAG of the task that asks.
        dag_run_id: its Dag run.
        task_id: the task, with its groups.

    Raises:
        StepError: when the run was not audited.
    """
    with record_failure(plan), keep_phase(plan.folder, Phase.APPROVE):
        request = None if is_committed(plan) else _make_request(plan, dag_id, dag_run_id, task_id)
        if request:
            request.write(plan.folder.approval_request)
            report_run(plan)
        else:
            begin_phase(plan.folder, Phase.PUBLISH)
    return request


def _make_request(plan: Plan, dag_id: str, dag_run_id: str, task_id: str) -> ApprovalRequest | None:
    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    audit = require_audit(plan)
    if not may_need_person(plan, audit):
        return None
    difference = diff_run(plan.home, plan.run_id, _MAX_ROWS)
    if not needs_person(plan, difference):
        return None
    asked_at_ms = int(time.time() * SECOND_MS)
    aggregates = [_aggregate_json(name, change) for name, change in difference.changes.aggregates.items()]
    return ApprovalRequest(
        dag_id=dag_id,
        dag_run_id=dag_run_id,
        task_id=task_id,
        asked_at_ms=asked_at_ms,
        until_ms=asked_at_ms + definition.approval.timeout,
        audit_id=audit.audit_id,
        text="\n\n".join(_request_parts(plan, audit, difference, definition.unit_ms)),
        unit_ms=definition.unit_ms,
        verdict=audit.verdict.value,
        finding=audit.summary,
        against=state_text(difference.against) if difference.against else "",
        rows=dict(difference.changes.windows),
        aggregates=aggregates,
    )


def record_approval(plan: Plan, decision: ApprovalDecision) -> None:
    """Write the decision to the run folder; a rejected run ends with its report and keeps its staged files.

    A published run is final, so an answer after it changes nothing.
    """
    if is_committed(plan):
        return
    request = ApprovalRequest.find_readable(plan.folder.approval_request)
    answer = replace(decision, asked_at_ms=request.asked_at_ms) if request else decision
    answer.write(plan.folder.approval)
    if decision.is_approved:
        begin_phase(plan.folder, Phase.PUBLISH)
        return
    audit = Audit.read(plan.folder.audit_result)
    record_run(plan.home, ledger_row(plan, RunStatus.REFUSED, audit))
    report_run(plan)


def _aggregate_json(name: str, change: AggregateChange) -> dict[str, Any]:
    """Return the rows with the largest changes of an aggregate as text."""
    rows = [
        {
            "window_start": minute_text(epoch_ms(row["window_start"])),
            "keys": {key: str(value) for key, value in row["keys"].items()},
            "published": _value_text(row["old_value"]),
            "new": _value_text(row["new_value"]),
            "difference": "" if row["difference"] is None else change_text(row["difference"]),
        }
        for row in largest_changes(change)
    ]
    return {"name": name, "count": change.rows, "difference": change_text(change.difference), "rows": rows}


def _value_text(value: Any) -> str:
    return "no row" if value is None else value_text(value)


def _request_parts(plan: Plan, audit: Audit, difference: RunDifference, unit_ms: int) -> Iterator[str]:
    """Yield the paragraphs of the request as Markdown, in lists: Airflow's form cuts off wide tables and code."""
    yield _verdict_text(audit, unit_ms)
    yield "\n".join([*_change_lines(difference), *_cause_lines(plan, difference)])
    if plan.reason:
        yield f"Reason: {visible_line(plan.reason)}"
    if plan.overrides:
        overrides = ", ".join(
            f"`{key} = {visible_line(str(value))}`" for key, value in sorted(plan.overrides.items())
        )
        yield f"For this run only: {overrides}"


def _verdict_text(audit: Audit, unit_ms: int) -> str:
    """Return the verdict, and the failed checks with their failing rows, as Markdown."""
    failed = [check for check in audit.checks if check.outcome not in (CheckOutcome.PASS, CheckOutcome.INFO)]
    lines = [f"**Verdict {audit.verdict}**: {visible_line(audit.summary)}"]
    for check in failed[:_MAX_CHECKS]:
        lines.append(visible_line(f"- {check.outcome}: {check.name}: {check.observed}"))
        lines += [f"    - {_row_text(row)}" for row in list_failing_rows(check, unit_ms)]
    if audit.overridden and not audit.verdict.may_publish:
        lines.append(f"\nPublished despite this verdict, reason: {visible_line(audit.overridden)}")
    return "\n".join(lines)


def _row_text(row: FailingRow) -> str:
    """Return a failing row as Markdown; as code, because its names come from data."""
    parts = [str(row), *([row.command] if row.command else [])]
    return ", ".join(f"`{part.replace('`', chr(39))}`" for part in parts)


def _change_lines(difference: RunDifference) -> Iterator[str]:
    """Yield the changes of the published table as a list in Markdown."""
    changes = difference.changes
    counts = ", ".join(f"{count:,} {kind}" for kind, count in changes.windows.items())
    against = state_text(difference.against) if difference.against else "the empty table"
    yield f"**Published rows would change**: {counts}, compared with {against}"
    for name, change in changes.aggregates.items():
        yield f"- {name}: {count_of(change.rows, 'row')}, total difference {change_text(change.difference)}"
    for run_id, count in list(changes.old_runs.items())[:_MAX_RUNS]:
        yield f"- run {run_id} had published different values in {count_of(count, 'row')}"
    if len(changes.old_runs) > _MAX_RUNS:
        yield f"- and {len(changes.old_runs) - _MAX_RUNS} more runs"


def _cause_lines(plan: Plan, difference: RunDifference) -> Iterator[str]:
    """Yield what has changed since the replaced runs: files, keys of the definition, and code."""
    replaced = list(difference.changes.old_runs)[:_MAX_RUNS]
    since = find_run_changes(plan.home, plan) if replaced else {}
    for run_id in replaced:
        for cause, details in since[run_id].details.items() if run_id in since else ():
            listed = ", ".join(f"`{visible_line(each).replace('`', chr(39))}`" for each in details[:_MAX_CAUSES])
            more = f", and {len(details) - _MAX_CAUSES} more" if len(details) > _MAX_CAUSES else ""
            yield f"- {cause} since run {run_id}: {listed}{more}"
