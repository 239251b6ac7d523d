"""The steps of a run around its Spark job, shared by Airflow and the command line."""

from backstream.steps.approval import decided, question
from backstream.steps.audit import audit_run
from backstream.steps.observe import refresh
from backstream.steps.outcome import failing, publish_run, summary
from backstream.steps.planning import plan_run
from backstream.steps.reports import report_run, report_text
from backstream.steps.restate import restatements
from backstream.steps.resume import begun_by, interrupted, require_resumable

__all__ = [
    "audit_run",
    "begun_by",
    "decided",
    "failing",
    "interrupted",
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
