"""Order the tasks that wait for a slot, so that a Backfill delays no scheduled run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy, validate_and_load_priority_weight_strategy
from airflow.utils.types import DagRunType

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance


class ScheduledFirst(PriorityWeightStrategy):
    """Priority weights by the type of the run: of a Backfill, manual, and all others.

    Among tasks of the same weight, the scheduler of Airflow starts that of the earliest logical date. So with
    equal weights, each task of a Backfill would start before those of today's scheduled run.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        """Return the weight of a task: in a scheduled run, the sum with all downstream tasks, as by default."""
        kind = _run_type(ti)
        if kind in (DagRunType.BACKFILL_JOB, DagRunType.MANUAL):
            weight = validate_and_load_priority_weight_strategy("absolute").get_weight(ti)
            return weight - 1 if kind == DagRunType.BACKFILL_JOB else weight
        return validate_and_load_priority_weight_strategy("downstream").get_weight(ti) + 1


def _run_type(ti: TaskInstance) -> DagRunType:
    """Return the type of the run; a task that Airflow is about to create has only the id of its run."""
    return DagRunType(ti.dag_run.run_type) if ti.dag_run else _type_from_id(ti.run_id)


def _type_from_id(run_id: str | None) -> DagRunType:
    """Return the type of a run by its id; an id that a task or a person chose is not that of a Backfill."""
    prefix = (run_id or "").partition("__")[0]
    return DagRunType(prefix) if prefix in set(DagRunType) else DagRunType.OPERATOR_TRIGGERED


WEIGHT_RULE = f"{ScheduledFirst.__module__}.{ScheduledFirst.__qualname__}"
"""Name by which Airflow finds the strategy in the plugin."""
