"""The steps of a run around its Spark job, shared by Airflow and the command line."""

from backstream.steps.approval import decided, question
from backstream.steps.audit import audit_run
from backstream.steps.outcome import publish_run, summary
from backstream.steps.planning import plan_run
from backstream.steps.reports import report_run, report_text
from backstream.steps.restate import restatements
from backstream.steps.resume import begun_by, interrupted, require_resumable

__all__ = [
    "audit_run",
    "begun_by",
    "decided",
    "interrupted",
    "plan_run",
    "publish_run",
    "question",
    "report_run",
    "report_text",
    "require_resumable",
    "restatements",
    "summary",
]
