"""The steps of a run around its Spark job, shared by Airflow and the command line.

A step is imported when somebody first takes it: all of them bring pandas, PyIceberg and Great Expectations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backstream.workflow.audit import audit_run, decided, question
    from backstream.workflow.dataset_state import refresh
    from backstream.workflow.planning import plan_run
    from backstream.workflow.publish import failing, make_tables, publish_run, summary
    from backstream.workflow.report import report_run, report_text
    from backstream.workflow.restate import restatements
    from backstream.workflow.resume import begun_by, interrupted, require_resumable

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
    "decided": "audit",
    "failing": "publish",
    "interrupted": "resume",
    "make_tables": "publish",
    "plan_run": "planning",
    "publish_run": "publish",
    "question": "audit",
    "refresh": "dataset_state",
    "report_run": "report",
    "report_text": "report",
    "require_resumable": "resume",
    "restatements": "restate",
    "summary": "publish",
}


def __getattr__(name: str) -> Any:
    """The step of a name."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
