"""The steps of a run around its Spark job, shared by Airflow and the command line."""

from backstream.steps.audit import audit_run
from backstream.steps.outcome import publish_run, summary
from backstream.steps.planning import plan_run
from backstream.steps.reports import report_run, report_text
from backstream.steps.resume import interrupted

__all__ = ["audit_run", "interrupted", "plan_run", "publish_run", "report_run", "report_text", "summary"]
