"""Asking a person before a publication: when, with which facts, and what the answer leaves."""

from __future__ import annotations

from backstream.core.audit import Audit, Outcome, Verdict
from backstream.core.decision import Decision
from backstream.core.plan import Plan
from backstream.definition.load import parse
from backstream.lake.differences import ADDED
from backstream.lake.ledger import Status, record_run
from backstream.steps.history import Difference, difference
from backstream.steps.history_text import difference_text
from backstream.steps.outcome import outcome_row
from backstream.steps.reports import report_run
from backstream.steps.state import home_of, manifests_of

_CHECKS_SHOWN = 10


def question(plan: Plan) -> str | None:
    """What a person has to know to decide on a publication, as Markdown; None when nobody has to be asked.

    Raises:
        LedgerError: when the run was not audited.
    """
    when = parse(plan.definition, f"plan {plan.run_id}").approval.when
    audit = Audit.read(plan.folder.verdict)
    if when == "never" or (when == "warn" and audit.verdict is Verdict.PASS):
        return None
    found = difference(home_of(plan), plan.run_id, limit=0)
    if when == "restatement" and not _replaces(found):
        return None
    return "\n\n".join([_verdict(audit), f"```text\n{difference_text(found)}\n```", *_said(plan)])


def decided(plan: Plan, decision: Decision) -> None:
    """Keep a decision with its run; a rejected run ends with its report, and what it staged stays."""
    decision.write(plan.folder.decision)
    if decision.is_approved:
        return
    audit = Audit.read(plan.folder.verdict)
    record_run(home_of(plan), outcome_row(plan, Status.REFUSED, audit, manifests_of(plan)))
    report_run(plan)


def _replaces(found: Difference) -> bool:
    """Whether rows that are published now would be others, or gone."""
    return any(count for change, count in found.changes.windows.items() if change != ADDED)


def _verdict(audit: Audit) -> str:
    missed = [each for each in audit.checks if each.outcome not in (Outcome.PASS, Outcome.INFO)]
    lines = [f"**Verdict {audit.verdict}**: {audit.summary}"]
    lines += [f"- {each.outcome}: {each.name}: {each.observed}" for each in missed[:_CHECKS_SHOWN]]
    if audit.overridden and not audit.verdict.may_publish:
        lines.append(f"\nTo be published in spite of it: {audit.overridden}")
    return "\n".join(lines)


def _said(plan: Plan) -> list[str]:
    """The reason of whoever asked, and what is otherwise than defined."""
    said = [f"Reason: {plan.reason}"] if plan.reason else []
    if plan.overrides:
        taken = ", ".join(f"`{key} = {value}`" for key, value in sorted(plan.overrides.items()))
        said.append(f"For this run only: {taken}")
    return said
