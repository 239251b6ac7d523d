"""The steps of a run around its Spark job, shared by Airflow and the command line."""

from backstream.steps.audit import audit_run
from backstream.steps.outcome import failing, publish_run, report_run, summary
from backstream.steps.planning import plan_run
from backstream.steps.resume import interrupted

__all__ = ["audit_run", "failing", "interrupted", "plan_run", "publish_run", "report_run", "summary"]
