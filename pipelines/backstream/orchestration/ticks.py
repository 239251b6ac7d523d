"""The data intervals of a schedule, and which of them are still being worked on by a run of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from backstream.core.instants import moment
from backstream.core.intervals import Interval
from backstream.orchestration.ranges import ms_of

if TYPE_CHECKING:
    from airflow.timetables.interval import CronDataIntervalTimetable

ENDED = ["success", "failed", "upstream_failed", "skipped", "removed"]


def timetable_of(schedule: str) -> CronDataIntervalTimetable:
    """Airflow's own timetable of a schedule, in UTC.

    Raises:
        Exception: of whatever kind Airflow chose, when it is no cron expression.
    """
    from airflow.timetables.interval import CronDataIntervalTimetable

    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    timetable.validate()
    return timetable


def ticks(schedule: str, interval: Interval) -> Iterator[Interval]:
    """The data intervals of a schedule that share an instant with an interval, in their order."""
    from airflow.timetables.base import TimeRestriction
    from pendulum import instance

    timetable, always = timetable_of(schedule), TimeRestriction(earliest=None, latest=None, catchup=True)
    tick = timetable.infer_manual_data_interval(run_after=instance(moment(interval.start_ms)))
    while ms_of(tick.end) < interval.end_ms:
        following = timetable.next_dagrun_info(last_automated_data_interval=tick, restriction=always)
        if following is None or following.data_interval is None:
            return
        tick = following.data_interval
        yield Interval(ms_of(tick.start), ms_of(tick.end))


def ticks_at_work(ti: Any, dag_id: str, schedule: str, interval: Interval) -> list[Interval]:
    """Those data intervals whose own run may still publish them: it is queued, at work, or waits for a person.

    Args:
        ti: the task that asks, since only a task may ask Airflow.
        dag_id: of the DAG on that schedule.
        schedule: a cron expression.
        interval: what the data intervals share an instant with.
    """
    return [tick for tick in ticks(schedule, interval) if _may_publish(ti, dag_id, moment(tick.start_ms))]


def _may_publish(ti: Any, dag_id: str, logical_date: datetime) -> bool:
    """Not, when only another task of the run goes on."""
    run = {"dag_id": dag_id, "logical_dates": [logical_date]}
    is_unfinished = ti.get_dr_count(**run, states=["queued", "running"])
    return bool(is_unfinished) and not ti.get_ti_count(**run, task_ids=["publish"], states=ENDED)
