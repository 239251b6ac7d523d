"""Check the status of runs: the allowed transitions, and the derivation from run folders and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backstream.eventtime.instants import DAY_MS
from backstream.runs.home import RunFolder
from backstream.runs.progress import Phase
from backstream.runs.results import ApprovalDecision, ApprovalRequest, Audit, Verdict
from backstream.runs.run_events import FOLLOWS
from backstream.runs.status import RunFacts, RunStatus, derive_status, describe_phase, read_facts

PLANNED, RUNNING, INTERRUPTED = RunStatus.PLANNED, RunStatus.RUNNING, RunStatus.INTERRUPTED
AUDITED, AWAITING, PUBLISHED = RunStatus.AUDITED, RunStatus.AWAITING_APPROVAL, RunStatus.PUBLISHED
REFUSED, FAILED = RunStatus.REFUSED, RunStatus.FAILED
REQUESTED, DRY_RUN = RunStatus.REQUESTED, RunStatus.DRY_RUN


def next_facts(facts: RunFacts) -> Iterator[RunFacts]:
    """Yield the facts after each event that can happen to a run."""
    if facts.is_published or facts.is_dry_run:
        return
    if not facts.is_planned:
        yield from next_planning_facts(facts)
        return
    written = replace(facts, is_begun=True, is_quiet=False)
    is_failed = facts.recorded is FAILED and not facts.has_continued
    if is_failed:
        for continued in (facts, written):
            yield replace(continued, has_continued=True)
            yield replace(continued, has_continued=True, has_ended=True)  # killed, and Airflow has ended the run
        yield replace(facts, recorded=REFUSED)
    elif facts.recorded is None or facts.has_continued:
        yield from progress(facts, written)
    if facts.may_publish and not facts.is_approval_pending:
        yield replace(written, is_published=True)
    if facts.may_publish and facts.recorded is REFUSED:
        yield replace(facts, is_approval_pending=not facts.is_approval_pending)
        yield replace(facts, recorded=FAILED, has_continued=False)


def next_planning_facts(facts: RunFacts) -> Iterator[RunFacts]:
    """Yield the facts after each event that can happen to a run without a plan."""
    if facts.recorded is FAILED or facts.has_ended:
        yield replace(facts, recorded=None, has_ended=False)
        return
    yield replace(facts, is_planned=True)
    yield replace(facts, is_planned=True, is_dry_run=True)
    yield replace(facts, recorded=FAILED)
    yield replace(facts, has_ended=True)


def progress(facts: RunFacts, written: RunFacts) -> Iterator[RunFacts]:
    """Yield the facts after each event that can happen to a run without an outcome."""
    if facts.has_ended:
        yield replace(facts, has_ended=False)  # a user cleared the Dag run
        return
    if facts.may_publish is not False:
        yield replace(facts, has_ended=True)
    if facts.may_publish is not False:
        yield written
        yield replace(facts, recorded=FAILED, has_continued=False)
    if facts.is_begun:
        yield replace(facts, is_quiet=True)
    if facts.is_begun and facts.may_publish is None:
        yield replace(
            facts, is_begun=False, is_quiet=False
        )  # the same plan is made again before a chunk is finished
        yield replace(written, may_publish=True)
        yield replace(written, may_publish=False, has_continued=False)
    if facts.may_publish:
        yield replace(written, is_approval_pending=not facts.is_approval_pending)
        yield replace(written, recorded=REFUSED, has_continued=False, is_approval_pending=False)


def reachable_transitions() -> dict[RunStatus, set[RunStatus]]:
    """Return the next statuses of each status, by all sequences of events that begin with a request."""
    transitions: dict[RunStatus, set[RunStatus]] = {REQUESTED: set()}
    open_facts, known = [RunFacts(is_planned=False)], {RunFacts(is_planned=False)}
    while open_facts:
        facts = open_facts.pop()
        status = derive_status(facts)
        for changed in next_facts(facts):
            if derive_status(changed) is not status:
                transitions.setdefault(status, set()).add(derive_status(changed))
            if changed not in known:
                known.add(changed)
                open_facts.append(changed)
    return transitions


def test_events_lead_to_all_changes_of_the_table_and_to_no_other() -> None:
    allowed: dict[RunStatus, set[RunStatus]] = {}
    for changes in FOLLOWS.values():
        for status, following in changes.items():
            allowed[status] = allowed.get(status, set()) | following
    assert reachable_transitions() == allowed
    assert set(RunStatus) - set(allowed) == {PUBLISHED, DRY_RUN}


def test_the_ledger_keeps_its_words() -> None:
    assert [RunStatus(word) for word in ("published", "refused", "failed")] == [PUBLISHED, REFUSED, FAILED]


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (RunFacts(), PLANNED),
        (RunFacts(is_begun=True), RUNNING),
        (RunFacts(is_begun=True, is_quiet=True), INTERRUPTED),
        (RunFacts(is_begun=True, may_publish=True), AUDITED),
        (RunFacts(is_begun=True, may_publish=True, is_quiet=True), INTERRUPTED),
        (RunFacts(is_begun=True, may_publish=True, is_approval_pending=True), AWAITING),
        (RunFacts(is_begun=True, may_publish=True, is_approval_pending=True, is_quiet=True), AWAITING),
        (RunFacts(is_begun=True, may_publish=False), REFUSED),
        (RunFacts(is_begun=True, may_publish=True, recorded=REFUSED), REFUSED),
        (RunFacts(is_begun=True, may_publish=True, recorded=REFUSED, is_approval_pending=True), AWAITING),
        (RunFacts(is_begun=True, recorded=FAILED), FAILED),
        (RunFacts(is_begun=True, recorded=FAILED, has_continued=True), RUNNING),
        (RunFacts(is_begun=True, may_publish=True, recorded=REFUSED, is_published=True), PUBLISHED),
        (RunFacts(recorded=PUBLISHED), PUBLISHED),
        (RunFacts(is_planned=False), REQUESTED),
        (RunFacts(is_planned=False, has_ended=True), FAILED),
        (RunFacts(is_planned=False, recorded=FAILED), FAILED),
        (RunFacts(is_dry_run=True, has_ended=True), DRY_RUN),
        (RunFacts(has_ended=True), INTERRUPTED),
        (RunFacts(is_begun=True, has_ended=True), INTERRUPTED),
        (RunFacts(is_begun=True, may_publish=True, is_approval_pending=True, has_ended=True), INTERRUPTED),
        (RunFacts(is_begun=True, may_publish=True, is_published=True, has_ended=True), PUBLISHED),
    ],
)
def test_the_status_follows_from_the_facts(facts: RunFacts, status: RunStatus) -> None:
    assert derive_status(facts) is status


@pytest.mark.parametrize(
    ("status", "done", "phase", "words"),
    [
        (PLANNED, 0, None, "8 chunks to replay"),
        (RUNNING, 0, Phase.START_SPARK, "start Spark, 0 of 8 chunks"),
        (RUNNING, 0, Phase.REPLAY, "replay, 0 of 8 chunks"),
        (RUNNING, 3, Phase.START_SPARK, "start Spark, 3 of 8 chunks"),
        (RUNNING, 3, Phase.REPLAY, "replay, 3 of 8 chunks"),
        (RUNNING, 3, None, "replay, 3 of 8 chunks"),
        (RUNNING, 8, Phase.REPLAY, "audit"),
        (RUNNING, 8, Phase.AUDIT, "audit"),
        (AUDITED, 8, Phase.AUDIT, "audit"),
        (AUDITED, 8, Phase.APPROVE, "approval check"),
        (AUDITED, 8, Phase.PUBLISH, "publish"),
        (AUDITED, 8, None, "publish"),
        (PUBLISHED, 8, Phase.PUBLISH, ""),
        (FAILED, 3, Phase.REPLAY, ""),
    ],
)
def test_the_phase_names_what_works_now(status: RunStatus, done: int, phase: Phase | None, words: str) -> None:
    assert describe_phase(status, done, 8, phase) == words


def test_the_status_of_a_run_is_derived_from_files_in_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    statuses = [derive_status(read_facts(folder))]

    folder.manifests.mkdir()
    folder.manifest("0000").touch()
    statuses.append(derive_status(read_facts(folder)))
    Audit("run", "suite", Verdict.WARN, "", ()).write(folder.audit_result)
    statuses.append(derive_status(read_facts(folder)))
    ApprovalRequest("reprocess_clicks", "one", "approve", 0, DAY_MS, "").write(folder.approval_request)
    statuses.append(derive_status(read_facts(folder)))
    ApprovalDecision(is_approved=True, by="ada", at="2024-03-09").write(folder.approval)
    statuses.append(derive_status(read_facts(folder)))
    folder.publication.touch()
    statuses.append(derive_status(read_facts(folder)))

    assert statuses == [PLANNED, RUNNING, AUDITED, AWAITING, AUDITED, PUBLISHED]
