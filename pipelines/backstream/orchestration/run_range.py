"""Which range a run works on, whatever started it: a schedule, Airflow's native Backfill or a person's form."""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from backstream.errors import SpecError
from backstream.eventtime.instants import SECOND_MS, instant_ms, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range

if TYPE_CHECKING:
    from airflow.timetables.interval import CronDataIntervalTimetable


DataInterval = tuple[datetime | None, datetime | None]
"""Start and end of a run's data interval; both None when Airflow gave it none."""


def resolve_range(params: Mapping[str, Any], data_interval: DataInterval) -> Interval:
    """The range asked for by name, else the run's data interval.

    Airflow checks the form before it starts a run; runs started in other ways are checked only here.

    Args:
        params: the run's parameters; `since`, `until` (ISO 8601 text), `time_zone`, or absent, empty or None.
        data_interval: what the run's timetable says it covers.

    Raises:
        SpecError: when only one end is named, an end is no instant or names no zone, the range is empty or
            reversed, or neither the parameters nor the data interval name one; see `resolve_local_days`.
    """
    if local_days := resolve_local_days(params):
        return local_days.utc_days
    since, until = params.get("since") or None, params.get("until") or None
    if since and until:
        return backfill_range(instant_ms(str(since), "since"), instant_ms(str(until), "until"))
    if since or until:
        given, missing = ("since", "until") if since else ("until", "since")
        msg = f"a range needs both ends: {given} is {since or until}, {missing} is not given"
        raise SpecError(msg)
    return _interval_of_the_run(data_interval)


def resolve_local_days(params: Mapping[str, Any]) -> LocalDays | None:
    """The days of a time zone that were asked for; None: no zone was named, and the range is one of instants.

    Raises:
        SpecError: when the zone does not exist, an end is missing or no midnight there, or the range is empty.
    """
    zone, ends = params.get("time_zone") or None, [params.get(name) or None for name in ("since", "until")]
    if zone is None:
        return None
    if None in ends:
        msg = f"time_zone {zone} says whose days since and until are, and they are not both given"
        raise SpecError(msg)
    since, until = map(str, ends)
    return LocalDays.from_dates(since, until, str(zone))


def data_interval(context: Mapping[str, Any]) -> DataInterval:
    """The data interval in a task's context; a run without one has no such keys."""
    return context.get("data_interval_start"), context.get("data_interval_end")


def resolve_limits(params: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Where stale and missing days are looked for, in epoch milliseconds; None: no limit at that end.

    Args:
        params: the run's parameters; `since` and `until` are ISO 8601 text, or absent, empty or None.

    Raises:
        SpecError: when an end is no instant, names no zone, or the two are in the wrong order.
    """
    since, until = params.get("since") or None, params.get("until") or None
    since_ms = instant_ms(str(since), "since") if since else None
    until_ms = instant_ms(str(until), "until") if until else None
    if since_ms is not None and until_ms is not None:
        backfill_range(since_ms, until_ms)
    return since_ms, until_ms


def with_seconds(value_ms: int) -> str:
    """An instant as RFC 3339 wants it, by which the server checks a form."""
    text = instant_text(value_ms)
    return text if text.count(":") > 1 else text.replace("Z", ":00Z")


def _interval_of_the_run(data_interval: DataInterval) -> Interval:
    start, end = data_interval
    if start is None or end is None:
        msg = (
            "no range: the run has no data interval, and since and until are not given\n\n"
            "hint: give both, such as since=2013-02-01T00:00:00Z until=2013-03-01T00:00:00Z"
        )
        raise SpecError(msg)
    start_ms, end_ms = to_ms(start), to_ms(end)
    if start_ms == end_ms:
        msg = (
            f"no range: the run's data interval is empty, it starts and ends at {instant_text(start_ms)}"
            "\n\nhint: give since and until, or a timetable with data intervals (CronDataIntervalTimetable)"
        )
        raise SpecError(msg)
    return backfill_range(start_ms, end_ms)


def to_ms(moment: datetime) -> int:
    """Epoch milliseconds by the calendar: Airflow's datetimes are pendulum's, whose differences do not floor."""
    return calendar.timegm(moment.utctimetuple()) * SECOND_MS + moment.microsecond // 1_000


ENDED = ["success", "failed", "upstream_failed", "skipped", "removed"]


def load_timetable(schedule: str) -> CronDataIntervalTimetable:
    """Airflow's own timetable of a schedule, in UTC.

    Raises:
        Exception: of whatever kind Airflow chose, when it is no cron expression.
    """
    from airflow.timetables.interval import CronDataIntervalTimetable

    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    timetable.validate()
    return timetable


def data_intervals(schedule: str, interval: Interval) -> Iterator[Interval]:
    """The data intervals of a schedule that share an instant with an interval, in their order."""
    from airflow.timetables.base import TimeRestriction
    from pendulum import instance

    timetable, always = load_timetable(schedule), TimeRestriction(earliest=None, latest=None, catchup=True)
    tick = timetable.infer_manual_data_interval(run_after=instance(utc_datetime(interval.start_ms)))
    while to_ms(tick.end) < interval.end_ms:
        following = timetable.next_dagrun_info(last_automated_data_interval=tick, restriction=always)
        if following is None or following.data_interval is None:
            return
        tick = following.data_interval
        yield Interval(to_ms(tick.start), to_ms(tick.end))


def running_data_intervals(ti: Any, dag_id: str, schedule: str, interval: Interval) -> list[Interval]:
    """Those data intervals whose own run may still publish them: it is queued, at work, or waits for a person.

    Args:
        ti: the task that asks, since only a task may ask Airflow.
        dag_id: of the DAG on that schedule.
        schedule: a cron expression.
        interval: what the data intervals share an instant with.
    """
    return [
        tick
        for tick in data_intervals(schedule, interval)
        if _may_publish(ti, dag_id, utc_datetime(tick.start_ms))
    ]


def _may_publish(ti: Any, dag_id: str, logical_date: datetime) -> bool:
    """Not, when only another task of the run goes on."""
    run = {"dag_id": dag_id, "logical_dates": [logical_date]}
    is_unfinished = ti.get_dr_count(**run, states=["queued", "running"])
    return bool(is_unfinished) and not ti.get_ti_count(**run, task_ids=["publish"], states=ENDED)
