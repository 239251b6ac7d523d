"""The steps of a run around its Spark job, shared by Airflow and the command line.

A step is imported when somebody first takes it: all of them bring pandas, PyIceberg and Great Expectations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backstream.steps.approval import decided, question
    from backstream.steps.audit import audit_run
    from backstream.steps.observe import refresh
    from backstream.steps.outcome import failing, publish_run, summary
    from backstream.steps.planning import plan_run
    from backstream.steps.reports import report_run, report_text
    from backstream.steps.restate import restatements
    from backstream.steps.resume import begun_by, interrupted, require_resumable
    from backstream.steps.tables import make_tables

__all__ = [
    "audit_run",
    "begun_by",
    "decided",
    "failing",
    "interrupted",
    "make_tables",
    "plan_run",
    "publish_run",
    "question",
    "refresh",
    "report_run",
    "report_text",
    "require_resumable",
    "restatements",
    "summary",
]

_MODULES = {
    "audit_run": "audit",
    "begun_by": "resume",
    "decided": "approval",
    "failing": "outcome",
    "interrupted": "resume",
    "make_tables": "tables",
    "plan_run": "planning",
    "publish_run": "outcome",
    "question": "approval",
    "refresh": "observe",
    "report_run": "reports",
    "report_text": "reports",
    "require_resumable": "resume",
    "restatements": "restate",
    "summary": "outcome",
}


def __getattr__(name: str) -> Any:
    """The step of a name."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
