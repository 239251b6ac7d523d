"""Derive the status of a run from its folder and its ledger row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backstream.eventtime.instants import SECOND_MS, instant_text
from backstream.runs.home import RunFolder
from backstream.runs.progress import Phase
from backstream.runs.results import ApprovalDecision, ApprovalRequest, Audit
from backstream.text import count_of


class RunStatus(StrEnum):
    """The status of a run, from its request to its publication.

    The ledger stores only statuses in which a run has ended or failed.

    A rollback is a run of its own: the run that it undoes remains published in the ledger.
    """

    REQUESTED = "requested"
    """The run was requested, and has no plan yet."""
    DRY_RUN = "dry_run"
    """The plan was made to show what a run would do; nothing follows."""
    PLANNED = "planned"
    """The plan exists, and the run has written no other file."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """The run has stopped: it was killed or canceled, or it lost its catalog. It can be resumed."""
    AUDITED = "audited"
    """The quality gate allows the publication, which has not happened yet."""
    AWAITING_APPROVAL = "awaiting_approval"
    """The approver has not answered the approval request yet."""
    PUBLISHED = "published"
    REFUSED = "refused"
    """The quality gate or an approver rejected the result, or another run published into the range first."""
    FAILED = "failed"
    """The run ended with an error; it can be resumed."""

    @property
    def is_active(self) -> bool:
        """Return whether a program is working on the run."""
        return self in (RunStatus.RUNNING, RunStatus.AUDITED)

    @property
    def is_dismissible(self) -> bool:
        """Return whether a person can dismiss the run: it has stopped without a publication."""
        return self in _STOPPED


_STOPPED = {RunStatus.REFUSED, RunStatus.FAILED, RunStatus.INTERRUPTED}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that decide the status of a run.

    `may_publish` is the result of the audit, None before it. `recorded` is the status in the newest ledger row.
    `has_continued`: the run has written files since it failed. `is_quiet`: it has written no file for a long time,
    or has no plan after a long time.
    `has_ended`: Airflow has ended its Dag run, so no program works on it.
    """

    is_planned: bool = True
    is_dry_run: bool = False
    is_begun: bool = False
    may_publish: bool | None = None
    is_approval_pending: bool = False
    is_published: bool = False
    recorded: RunStatus | None = None
    has_continued: bool = False
    is_quiet: bool = False
    has_ended: bool = False


def read_facts(folder: RunFolder) -> RunFacts:
    """Return the facts that the files of a run folder show; the ledger and file times are left out."""
    may_publish = Audit.read(folder.audit_result).may_publish if folder.audit_result.exists() else None
    return RunFacts(
        is_begun=any(folder.manifests.glob("*.json")),
        may_publish=may_publish,
        is_approval_pending=find_pending_request(folder) is not None,
        is_published=folder.publication.exists(),
    )


def find_pending_request(folder: RunFolder) -> ApprovalRequest | None:
    """Return the approval request without an answer; None if there is none.

    The approver of a rejected run can be asked again, so the answer to an earlier request does not count.
    """
    if (request := ApprovalRequest.find_readable(folder.approval_request)) is None:
        return None
    decision = ApprovalDecision.find(folder.approval)
    return None if decision and decision.asked_at_ms == request.asked_at_ms else request


def derive_status(facts: RunFacts) -> RunStatus:
    """Return the status of a run: from its outcome if it has one, else from its progress."""
    return _outcome(facts) or _progress(facts)


def _outcome(facts: RunFacts) -> RunStatus | None:
    """Return the status of a run that has ended; None if it has not, or was resumed after it failed.

    A rejected run whose approver was asked again has not ended.
    """
    if facts.is_published or facts.recorded is RunStatus.PUBLISHED:
        return RunStatus.PUBLISHED
    is_asked_again = facts.recorded is RunStatus.REFUSED and facts.is_approval_pending and facts.may_publish
    if facts.has_continued or is_asked_again:
        return None
    if facts.recorded:
        return facts.recorded
    return RunStatus.REFUSED if facts.may_publish is False else None


def _progress(facts: RunFacts) -> RunStatus:
    """Return the first status whose condition holds."""
    conditions = (
        (not facts.is_planned and (facts.has_ended or facts.is_quiet), RunStatus.FAILED),
        (not facts.is_planned, RunStatus.REQUESTED),
        (facts.is_dry_run, RunStatus.DRY_RUN),
        (facts.has_ended, RunStatus.INTERRUPTED),
        (facts.may_publish and facts.is_approval_pending, RunStatus.AWAITING_APPROVAL),
        (not facts.is_begun, RunStatus.PLANNED),
        (facts.is_quiet, RunStatus.INTERRUPTED),
        (facts.may_publish, RunStatus.AUDITED),
    )
    return next((status for holds, status in conditions if holds), RunStatus.RUNNING)


def describe_wait(request: ApprovalRequest) -> str:
    """Return since when and until when a run waits: `waits for approval since 2024-03-01 06:00, until .. UTC`."""
    since, until = (
        instant_text(value_ms // SECOND_MS * SECOND_MS).removesuffix("Z").replace("T", " ")
        for value_ms in (request.asked_at_ms, request.until_ms)
    )
    return f"waits for approval since {since}, until {until} UTC"


_AFTER_AUDIT = {Phase.AUDIT: "audit", Phase.APPROVE: "approval check"}
"""The words for phases of a run whose audit has a result; the next one is the publication."""


def describe_phase(status: RunStatus, chunks_done: int, chunks: int, phase: Phase | None = None) -> str:
    """Return what a planned run does now, such as `replay, 3 of 8 chunks`; empty for a run that has ended.

    Args:
        status: the status of the run.
        chunks_done: finished chunks.
        chunks: chunks of its plan.
        phase: the phase that has begun last; None before the first one.
    """
    if status is RunStatus.AUDITED:
        return _AFTER_AUDIT.get(phase, "publish") if phase else "publish"
    if status is RunStatus.PLANNED:
        return f"{count_of(chunks, 'chunk')} to replay"
    if status is not RunStatus.RUNNING:
        return ""
    if chunks and chunks_done == chunks:
        return "audit"
    words = "start Spark" if phase is Phase.START_SPARK else "replay"
    return f"{words}, {chunks_done:,} of {count_of(chunks, 'chunk')}"
