"""The data intervals of a schedule, and which of them a run of a DAG is still at work on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from backstream.core.instants import moment
from backstream.core.intervals import Interval
from backstream.orchestration.ranges import ms_of

if TYPE_CHECKING:
    from airflow.timetables.interval import CronDataIntervalTimetable

UNFINISHED = ["queued", "running"]


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


def unfinished_ticks(ti: Any, dag_id: str, schedule: str, interval: Interval) -> list[Interval]:
    """Those data intervals for which a run of a DAG is queued or running.

    Args:
        ti: the task that asks, which alone may ask Airflow.
        dag_id: whose runs.
        schedule: of that DAG, a cron expression.
        interval: what the data intervals share an instant with.
    """
    return [
        tick
        for tick in ticks(schedule, interval)
        if ti.get_dr_count(dag_id=dag_id, logical_dates=[moment(tick.start_ms)], states=UNFINISHED)
    ]
