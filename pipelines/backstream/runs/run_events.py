"""The table of what can happen to a run, and what follows in each status. The documentation shows it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from backstream.runs.status import RunStatus

_S = RunStatus
_FAIL = frozenset({_S.FAILED})
_REFUSE_OR_FAIL = frozenset({_S.REFUSED, _S.FAILED})
_GO_ON = frozenset({_S.PLANNED, _S.RUNNING, _S.AUDITED, _S.AWAITING_APPROVAL})
_STOP = frozenset({_S.INTERRUPTED})


class RunEvent(StrEnum):
    """Something that can happen to a run; the docstring of each is what follows from it."""

    PREPARE = "`prepare` runs or is cleared"
    """New input files become readable for the plans that follow. A plan keeps the files that it has."""
    PLAN = "`plan` runs or is cleared"
    """The run keeps its plan, unless it can only be refused or a new one would lead to other rows."""
    REPLAY = "`replay` runs or is cleared"
    """Finished chunks stay. The task fails if the definition, the code, or an input file has changed."""
    AUDIT = "`audit` runs or is cleared"
    """The suite judges the staged results again. Only a change of the verdict or of a check needs a new answer.

    A published run keeps its audit. Another suite leads to a second judgement beside it."""
    ASK = "`approve` asks"
    """Without an audit of the staged results, the task fails. Each question needs its own answer."""
    APPROVE = "an approver approves"
    """The answer is for the last question and its audit only. A refused run stays so until it publishes."""
    REJECT = "an approver rejects"
    """Nothing is published. The approver can be asked again."""
    PUBLISH = "`publish` runs or is cleared"
    """The task demands the audit of the staged results, and the approval if the plan requires one."""
    REPORT = "`report` runs or is cleared"
    """The report is written again."""
    KILL = "a task is killed"
    """The run has the status that its files show, and is published from its commit on.

    The next attempt does only what is missing."""
    MARK = "a task is marked as success"
    """It has left nothing, so `publish` fails if it demands the result of this task."""
    END = "Airflow ends or deletes the Dag run"
    """The plan and the staged files are kept. A Dag run that is created again is another run."""
    CONTINUE = "a person clears the Dag run"
    """The run has the status that its files show."""
    WAIT = "nothing happens for a long time"
    """A run without new files was interrupted, and a request without a plan has failed."""
    OVERRIDE = "the form has `gate_override`"
    """A failed verdict does not refuse the run. Ledger and report have the reason. A person must still approve."""
    EDIT = "definition, suite, or input files change"
    """A plan with unfinished chunks can't continue. A run that is published keeps its verdict."""
    OTHER = "another run publishes into the range"
    """`publish` refuses the run, or it was published already and sends no event any more."""
    ROLL_BACK = "a person rolls the run back"
    """The run remains published in the ledger, and the rows before it are back. `publish` refuses it."""


FOLLOWS: Mapping[RunEvent, Mapping[RunStatus, frozenset[RunStatus]]] = {
    RunEvent.PREPARE: {
        _S.REQUESTED: _FAIL,
        _S.FAILED: frozenset({_S.REQUESTED}),
        _S.INTERRUPTED: _GO_ON,
    },
    RunEvent.PLAN: {
        _S.REQUESTED: frozenset({_S.PLANNED, _S.DRY_RUN, _S.FAILED}),
        _S.RUNNING: frozenset({_S.PLANNED}),
        _S.FAILED: frozenset({_S.REQUESTED, *_GO_ON}),
        _S.INTERRUPTED: _GO_ON,
    },
    RunEvent.REPLAY: {
        _S.PLANNED: frozenset({_S.RUNNING, _S.FAILED}),
        _S.RUNNING: _FAIL,
        _S.INTERRUPTED: frozenset({_S.RUNNING, _S.FAILED}),
        _S.FAILED: _GO_ON,
    },
    RunEvent.AUDIT: {
        _S.PLANNED: _FAIL,
        _S.RUNNING: frozenset({_S.AUDITED, *_REFUSE_OR_FAIL}),
        _S.AUDITED: _REFUSE_OR_FAIL,
        _S.AWAITING_APPROVAL: _REFUSE_OR_FAIL,
        _S.INTERRUPTED: frozenset({_S.AUDITED, *_REFUSE_OR_FAIL}),
        _S.FAILED: frozenset({_S.AUDITED, _S.AWAITING_APPROVAL, _S.REFUSED}),
    },
    RunEvent.ASK: {
        _S.PLANNED: _FAIL,
        _S.RUNNING: _FAIL,
        _S.AUDITED: frozenset({_S.AWAITING_APPROVAL, _S.FAILED}),
        _S.INTERRUPTED: frozenset({_S.AWAITING_APPROVAL, _S.FAILED}),
        _S.FAILED: frozenset({_S.AWAITING_APPROVAL}),
        _S.REFUSED: frozenset({_S.AWAITING_APPROVAL}),
    },
    RunEvent.APPROVE: {
        _S.AWAITING_APPROVAL: frozenset({_S.AUDITED, _S.REFUSED}),
        _S.FAILED: frozenset({_S.AUDITED}),
    },
    RunEvent.REJECT: {
        status: frozenset({_S.REFUSED}) for status in (_S.AWAITING_APPROVAL, _S.FAILED, _S.INTERRUPTED)
    },
    RunEvent.PUBLISH: {
        _S.PLANNED: _FAIL,
        _S.RUNNING: _FAIL,
        _S.AUDITED: frozenset({_S.PUBLISHED, *_REFUSE_OR_FAIL}),
        _S.AWAITING_APPROVAL: _FAIL,
        _S.INTERRUPTED: frozenset({_S.PUBLISHED, *_REFUSE_OR_FAIL}),
        _S.FAILED: frozenset({_S.PUBLISHED, _S.REFUSED}),
        _S.REFUSED: frozenset({_S.PUBLISHED, _S.FAILED}),
    },
    RunEvent.KILL: {
        _S.PLANNED: frozenset({_S.RUNNING}),
        _S.AUDITED: frozenset({_S.PUBLISHED}),
        _S.FAILED: _GO_ON | _STOP,
        _S.INTERRUPTED: frozenset({_S.PUBLISHED, *_GO_ON}),
        _S.REFUSED: frozenset({_S.PUBLISHED}),
    },
    RunEvent.END: {_S.REQUESTED: _FAIL} | dict.fromkeys(sorted(_GO_ON), _STOP),
    RunEvent.CONTINUE: {_S.INTERRUPTED: _GO_ON, _S.FAILED: frozenset({_S.REQUESTED})},
    RunEvent.WAIT: {_S.REQUESTED: _FAIL} | dict.fromkeys(sorted(_GO_ON - {_S.PLANNED}), _STOP),
}
"""The next statuses of each status after an event; in all other cases the status stays.

A refused run can still be published: an approver may be asked again, and a conflict may be rolled back.
"""
