"""What a scheduled run does beside its own interval: has redone what is stale or missing before it."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowSkipException

from backstream.orchestration.ranges import data_interval_of, resolve_range, with_seconds
from backstream.orchestration.tasks import failing_for_good

SCHEDULED = "scheduled"
"""The type of a run that the schedule has started, in Airflow's words."""

WAITING: dict[str, Any] = {
    "logical_date": None,
    "wait_for_completion": True,
    "poke_interval": 5,
    # Who clears the task wants the other run again; an attempt of its own accord would do it after each failure.
    "reset_dag_run": True,
    "retries": 0,
}
"""How a task starts a run of another DAG, and ends as that run ends."""


class RestateOperator(TriggerDagRunOperator):
    """Starts a run of `restate_<name>` for the time before the data interval of a scheduled run.

    A run by hand, or of a Backfill, is skipped: it was asked for its own range only. So is a scheduled one while
    the other DAG is paused.
    """

    def execute(self, context: Any) -> None:
        """Start it, unless the run is no scheduled one.

        Raises:
            AirflowSkipException: when nothing is to be started.
        """
        run_id, run_type = context["run_id"], context["dag_run"].run_type
        if run_type != SCHEDULED:
            msg = f"only a scheduled run looks beyond its own range, and this one is of type {run_type.value}"
            raise AirflowSkipException(msg)
        if context["ti"].get_dag(self.trigger_dag_id).is_paused:
            msg = f"{self.trigger_dag_id} is paused: what is stale or missing stays as it is"
            raise AirflowSkipException(msg)
        with failing_for_good():
            own = resolve_range({}, data_interval_of(context))
        self.trigger_run_id = f"before__{run_id}"
        self.conf = {"until": with_seconds(own.start_ms), "reason": f"found by {run_id}"}
        super().execute(context)
