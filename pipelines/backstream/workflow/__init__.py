"""Run the steps around a Spark job, for Airflow and the command line.

A step is imported at its first use, because all steps import pandas, PyIceberg and Great Expectations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backstream.workflow.approval import record_approval, request_approval
    from backstream.workflow.audit import audit_run, judge_again
    from backstream.workflow.dataset_state import refresh_after_run
    from backstream.workflow.demands import describe_final, has_published_rows
    from backstream.workflow.inputs.prepare import prepare_source
    from backstream.workflow.late_data.restate import find_restatements
    from backstream.workflow.lineage import describe_lineage
    from backstream.workflow.plan.impact import estimate_impact
    from backstream.workflow.plan.planning import plan_run
    from backstream.workflow.preview.preview import preview_dry_run, preview_plan
    from backstream.workflow.publish import create_run_tables, publication_text, publish_run, record_failure
    from backstream.workflow.report import report_run, report_text
    from backstream.workflow.resume import (
        find_interrupted_run,
        find_plan_of,
        note_later_files,
        require_resumable,
    )

__all__ = [
    "audit_run",
    "create_run_tables",
    "describe_final",
    "describe_lineage",
    "estimate_impact",
    "find_interrupted_run",
    "find_plan_of",
    "find_restatements",
    "has_published_rows",
    "judge_again",
    "note_later_files",
    "plan_run",
    "prepare_source",
    "preview_dry_run",
    "preview_plan",
    "publication_text",
    "publish_run",
    "record_approval",
    "record_failure",
    "refresh_after_run",
    "report_run",
    "report_text",
    "request_approval",
    "require_resumable",
]

_MODULES = {
    "audit_run": "audit",
    "create_run_tables": "publish",
    "describe_final": "demands",
    "describe_lineage": "lineage",
    "estimate_impact": "plan.impact",
    "find_interrupted_run": "resume",
    "find_plan_of": "resume",
    "find_restatements": "late_data.restate",
    "has_published_rows": "demands",
    "judge_again": "audit",
    "note_later_files": "resume",
    "plan_run": "plan.planning",
    "prepare_source": "inputs.prepare",
    "preview_dry_run": "preview.preview",
    "preview_plan": "preview.preview",
    "publication_text": "publish",
    "publish_run": "publish",
    "record_approval": "approval",
    "record_failure": "publish",
    "refresh_after_run": "dataset_state",
    "report_run": "report",
    "report_text": "report",
    "request_approval": "approval",
    "require_resumable": "resume",
}


def __getattr__(name: str) -> Any:
    """Import the step with this name."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
