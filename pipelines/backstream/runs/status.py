"""Derive the status of a run from its folder and its ledger row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backstream.runs.home import RunFolder
from backstream.runs.results import Audit


class RunStatus(StrEnum):
    """The status of a run; the ledger stores only statuses in which a run has ended or failed.

    A rollback is a run of its own: the run that it undoes remains published in the ledger.
    """

    PLANNED = "planned"
    """The plan exists, and the run has written no other file."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """The run has stopped writing files: it was killed or canceled, or it lost its catalog. It can be resumed."""
    AUDITED = "audited"
    """The quality gate allows the publication, which has not happened yet."""
    AWAITING_APPROVAL = "awaiting_approval"
    """The approver has not answered the approval request yet."""
    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already_published"
    """A second publication without changes; only older versions recorded it."""
    REFUSED = "refused"
    """The quality gate or an approver rejected the result, or another run published into the range first."""
    FAILED = "failed"
    """The run ended with an error; it can be resumed."""

    @property
    def is_active(self) -> bool:
        """Return whether a program is working on the run."""
        return self in (RunStatus.RUNNING, RunStatus.AUDITED)

    @property
    def is_published(self) -> bool:
        """Return whether the result of the run was published."""
        return self in (RunStatus.PUBLISHED, RunStatus.ALREADY_PUBLISHED)


_RESUMED = {RunStatus.RUNNING, RunStatus.AUDITED, RunStatus.AWAITING_APPROVAL, RunStatus.PUBLISHED}

TRANSITIONS: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.PLANNED: frozenset({RunStatus.RUNNING, RunStatus.FAILED}),
    RunStatus.RUNNING: frozenset({RunStatus.AUDITED, RunStatus.REFUSED, RunStatus.FAILED, RunStatus.INTERRUPTED}),
    RunStatus.INTERRUPTED: frozenset({*_RESUMED, RunStatus.REFUSED, RunStatus.FAILED}),
    RunStatus.AUDITED: frozenset(
        {
            RunStatus.AWAITING_APPROVAL,
            RunStatus.PUBLISHED,
            RunStatus.REFUSED,
            RunStatus.FAILED,
            RunStatus.INTERRUPTED,
        }
    ),
    RunStatus.AWAITING_APPROVAL: frozenset({RunStatus.AUDITED, RunStatus.REFUSED, RunStatus.FAILED}),
    RunStatus.FAILED: frozenset(_RESUMED),
    RunStatus.REFUSED: frozenset({RunStatus.PUBLISHED}),
    RunStatus.PUBLISHED: frozenset(),
    RunStatus.ALREADY_PUBLISHED: frozenset(),
}
"""The next statuses of each status.

A refused run can still be published: an approver may be asked again, and a conflict may be rolled back.
"""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that decide the status of a run.

    `may_publish` is the result of the audit, None before it. `recorded` is the status in the newest ledger row.
    `has_continued`: the run has written files since it failed. `is_quiet`: it has written no file for a long time.
    """

    is_begun: bool = False
    may_publish: bool | None = None
    is_approval_pending: bool = False
    is_published: bool = False
    recorded: RunStatus | None = None
    has_continued: bool = False
    is_quiet: bool = False


def read_facts(folder: RunFolder) -> RunFacts:
    """Return the facts that the files of a run folder show; the ledger and file times are left out."""
    may_publish = Audit.read(folder.audit_result).may_publish if folder.audit_result.exists() else None
    return RunFacts(
        is_begun=any(folder.manifests.glob("*.json")),
        may_publish=may_publish,
        is_approval_pending=folder.approval_request.exists() and not folder.approval.exists(),
        is_published=folder.publication.exists(),
    )


def derive_status(facts: RunFacts) -> RunStatus:
    """Return the status of a run: from its outcome if it has one, else from its progress."""
    return _outcome(facts) or _progress(facts)


def _outcome(facts: RunFacts) -> RunStatus | None:
    """Return the status of a run that has ended; None if it has not, or was resumed after it failed."""
    if facts.is_published or (facts.recorded and facts.recorded.is_published):
        return RunStatus.PUBLISHED
    if facts.has_continued:
        return None
    if facts.recorded:
        return facts.recorded
    return RunStatus.REFUSED if facts.may_publish is False else None


def _progress(facts: RunFacts) -> RunStatus:
    if facts.may_publish and facts.is_approval_pending:
        return RunStatus.AWAITING_APPROVAL
    if not facts.is_begun:
        return RunStatus.PLANNED
    if facts.is_quiet:
        return RunStatus.INTERRUPTED
    return RunStatus.AUDITED if facts.may_publish else RunStatus.RUNNING
