"""The steps of a run around its Spark job, shared by Airflow and the command line.

A step is imported when somebody first takes it: all of them bring pandas, PyIceberg and Great Expectations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backstream.workflow.audit import approval_text, audit_run, record_approval
    from backstream.workflow.dataset_state import refresh_after_run
    from backstream.workflow.planning import plan_run
    from backstream.workflow.publish import create_run_tables, publication_text, publish_run, record_failure
    from backstream.workflow.report import report_run, report_text
    from backstream.workflow.restate import find_restatements
    from backstream.workflow.resume import find_interrupted_run, find_unfinished_plan, require_resumable

__all__ = [
    "approval_text",
    "audit_run",
    "create_run_tables",
    "find_interrupted_run",
    "find_restatements",
    "find_unfinished_plan",
    "plan_run",
    "publication_text",
    "publish_run",
    "record_approval",
    "record_failure",
    "refresh_after_run",
    "report_run",
    "report_text",
    "require_resumable",
]

_MODULES = {
    "audit_run": "audit",
    "find_unfinished_plan": "resume",
    "record_approval": "audit",
    "record_failure": "publish",
    "find_interrupted_run": "resume",
    "create_run_tables": "publish",
    "plan_run": "planning",
    "publish_run": "publish",
    "approval_text": "audit",
    "refresh_after_run": "dataset_state",
    "report_run": "report",
    "report_text": "report",
    "require_resumable": "resume",
    "find_restatements": "restate",
    "publication_text": "publish",
}


def __getattr__(name: str) -> Any:
    """The step of a name."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
