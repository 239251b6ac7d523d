"""Describe what can happen to a run, from the table in the code."""

from __future__ import annotations

from backstream.runs.run_events import FOLLOWS, RunEvent
from backstream.runs.status import RunStatus
from docs.generator.docstrings import field_docstrings
from docs.generator.markdown import code, document, sentence, table

_INTRODUCTION = """\
A row is something that can happen to a run in Airflow, and what follows from it. The last column shows how the
[status](../operations.md#monitor-a-run) of the run changes. In all other cases the status stays. In particular, a
run that is published stays published."""


def page() -> str:
    """Return the page."""
    docstrings = field_docstrings(RunEvent)
    rows = ((event.value, sentence(docstrings[event.name]), _changes(event)) for event in RunEvent)
    return document("Events of a run", _INTRODUCTION, table(["what happens", "what follows", "status"], rows))


def _changes(event: RunEvent) -> str:
    """Return the changes of the status, in the order of the statuses."""
    following = FOLLOWS.get(event, {})
    return "; ".join(
        f"{code(status)} → {', '.join(code(each) for each in RunStatus if each in following[status])}"
        for status in RunStatus
        if status in following
    )
