"""Store the results of a run: its audit, approval, publication, and verification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from backstream.runs.run_file import RunFile
from backstream.text import count_of

_ROLLBACK_PREFIX = "rollback-"
"""Prefix of the id of a rollback; the id of the undone run follows."""


class Severity(StrEnum):
    """The weight of a failed check."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class CheckOutcome(StrEnum):
    """The outcome of one check."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    INFO = "info"
    """The check failed but is only informative."""
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    """The check could not run, which never counts as a pass."""


class Verdict(StrEnum):
    """The decision of the quality gate."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"

    @property
    def may_publish(self) -> bool:
        """Return whether the result may be published."""
        return self in (Verdict.PASS, Verdict.WARN)


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation with its result.

    `observed` is a sentence or number for people. `failing` lists the first failing rows as
    `{"source_partition": .., "window_start": ISO text, "expected": .., "found": .., "command": ..}`. For a
    check of the whole run, these are the windows, days, chunks, records, or files that disagree.
    `unexpected_count` counts all failing rows among the `element_count` checked ones.
    """

    name: str
    expectation: str
    severity: Severity
    outcome: CheckOutcome
    observed: str = ""
    column: str | None = None
    limit: str = ""
    unexpected_count: int = 0
    element_count: int = 0
    failing: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Audit(RunFile):
    """All checks of a run, with their verdict and a summary of one sentence.

    `overridden` is the reason to publish a failed result; empty: it is not published. `results` is the hash of the
    staged results that were checked, and `expectations` that of the suite and the limits.
    """

    what = "verdict"

    run_id: str
    suite: str
    verdict: Verdict
    summary: str
    checks: tuple[Check, ...]
    overridden: str = ""
    results: str = ""
    expectations: str = ""

    @property
    def audit_id(self) -> str:
        """The hash of what an approver sees: an approval is for exactly one audit."""
        content = asdict(replace(self, expectations=""))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def may_publish(self) -> bool:
        """Return whether the verdict allows the publication, or a person has overridden a failure.

        A result that could not be checked is never published.
        """
        return self.verdict.may_publish or (self.verdict is Verdict.FAIL and bool(self.overridden))

    def with_check(self, check: Check) -> Audit:
        """Return the audit with one more check; if it is not met, the summary begins with it."""
        checks = (*self.checks, check)
        is_met = check.outcome in (CheckOutcome.PASS, CheckOutcome.INFO)
        failure = f'failed the check "{check.name}" ({check.observed})'
        summary = self.summary if is_met else f"{failure}; {self.summary}"
        return replace(self, checks=checks, verdict=worst_verdict(checks), summary=summary)


@dataclass(frozen=True, slots=True)
class LaterAudit(RunFile):
    """The newest judgement of a published run with expectations that changed after its audit.

    The run keeps its own audit. `expectations` is the hash of the suite and the limits, `at` a text in UTC.
    """

    what = "judgement"

    suite: str
    verdict: Verdict
    summary: str
    expectations: str
    at: str

    def __str__(self) -> str:
        """Return the sentence for logs, reports, and pages."""
        judged = f"judged again on {self.at}: {self.verdict}"
        return f"{judged}, with expectations that changed after the audit ({self.suite}): {self.summary}"


def worst_verdict(checks: Sequence[Check]) -> Verdict:
    """Return the most severe outcome: error, then fail, then warn. Without any check it is an error."""
    outcomes = {check.outcome for check in checks}
    if not checks or CheckOutcome.ERROR in outcomes:
        return Verdict.ERROR
    if CheckOutcome.FAIL in outcomes:
        return Verdict.FAIL
    return Verdict.WARN if CheckOutcome.WARN in outcomes else Verdict.PASS


@dataclass(frozen=True, slots=True)
class ApprovalRequest(RunFile):
    """A request to approve the publication of a run; times are in epoch milliseconds.

    `dag_id`, `dag_run_id`, and `task_id` are those of the task in Airflow that asks. `audit_id` is that of the
    audit that the approver sees. `text` is the request as Markdown. `unit_ms` is the distance of two windows.
    `verdict` and `finding` come from the audit. `against` describes the published state. `rows` counts rows by
    kind of change. `aggregates` are the changed aggregates with the rows that change most.
    """

    what = "approval request"

    dag_id: str
    dag_run_id: str
    task_id: str
    asked_at_ms: int
    until_ms: int
    text: str
    audit_id: str = ""
    unit_ms: int = 0
    verdict: str = ""
    finding: str = ""
    against: str = ""
    rows: Mapping[str, int] | None = None
    aggregates: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class ApprovalDecision(RunFile):
    """The decision, the approver (empty: no approver answered in time), and the time as ISO 8601 text.

    `asked_at_ms` is that of the request, in epoch milliseconds.
    """

    what = "decision"

    is_approved: bool
    by: str
    at: str
    asked_at_ms: int = 0

    def __str__(self) -> str:
        """Return a text such as `approved by ada` or `rejected, no approver answered in time`."""
        if not self.by:
            return "rejected, no approver answered in time"
        return f"{'approved' if self.is_approved else 'rejected'} by {self.by}"


@dataclass(frozen=True, slots=True)
class Publication(RunFile):
    """The publication of one run.

    `snapshots` maps the suffix of each table to its snapshot. `already` is true if an earlier attempt made the
    commit.
    """

    what = "publication"

    run_id: str
    dataset: str
    since_ms: int
    until_ms: int
    snapshots: Mapping[str, int]
    rows: int
    replaced_rows: int
    files: int
    published_at: str
    already: bool = False


@dataclass(frozen=True, slots=True)
class LaterFiles(RunFile):
    """The input files that came after the plan of a run and can hold events of its range, and their records."""

    what = "later files"

    files: int
    records: int

    def __str__(self) -> str:
        """Return the sentence for logs, reports, and pages."""
        counts = f"{count_of(self.files, 'file')}, {count_of(self.records, 'record')}"
        return f"files that came after the plan are not read: {counts}; replan to read them"


def rollback_id(run_id: str) -> str:
    """Return the id of the rollback of a run, under which it is published."""
    return f"{_ROLLBACK_PREFIX}{run_id}"


def undone_run_id(rollback: str) -> str | None:
    """Return the run that a rollback undid, from the id of the rollback; None for other ids."""
    return rollback.removeprefix(_ROLLBACK_PREFIX) if rollback.startswith(_ROLLBACK_PREFIX) else None


def list_undone(run_ids: Iterable[str]) -> set[str]:
    """Return the ids that a rollback among them undoes. A rollback that was undone itself undoes nothing."""
    undone: set[str] = set()
    # The rollback of a rollback has the longer id.
    for run_id in sorted(run_ids, key=len, reverse=True):
        if run_id not in undone and (target := undone_run_id(run_id)):
            undone.add(target)
    return undone


@dataclass(frozen=True, slots=True)
class Receipt(RunFile):
    """The result of a verification of published rows by the reference engine.

    `requested` is the size of the sample, `verified` the number of rows that were compared, of `rows` that the run
    published. `replaced` rows of the sample belong to other runs by now. `findings` are sentences, one for each
    disagreement. `hashes` are those of the inputs, the plan, the definition, the code, and the compared rows.
    """

    what = "receipt"

    run_id: str
    verified_at: str
    seed: int
    requested: int
    verified: int
    rows: int
    replaced: int
    findings: tuple[str, ...]
    hashes: Mapping[str, str]

    @property
    def is_confirmed(self) -> bool:
        """Return whether nothing disagrees."""
        return not self.findings

    @property
    def share(self) -> float:
        """The share of the run's rows that were verified."""
        return self.verified / self.rows if self.rows else 0.0
