"""Resolve the range of a run from its parameters or its data interval."""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, SECOND_MS, instant_ms, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range

if TYPE_CHECKING:
    from airflow.timetables.interval import CronDataIntervalTimetable


DataInterval = tuple[datetime | None, datetime | None]
"""Start and end of the data interval of a run; both None if the run has no data interval."""


def resolve_range(params: Mapping[str, Any], data_interval: DataInterval) -> Interval:
    """Return the range in the parameters, or else the data interval of the run.

    Airflow checks a form before it starts a run. Only this function checks runs that started in other ways.

    Args:
        params: parameters of the run; `since`, `until` (ISO 8601 text), and `time_zone` can be absent or None.
        data_interval: data interval of the run.

    Raises:
        SpecError: when only one end is given, an end is not an instant with an offset, the range is empty or
            reversed, or there is neither a range nor a data interval; see `resolve_local_days`.
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
    return _require_data_interval(data_interval)


def resolve_local_days(params: Mapping[str, Any]) -> LocalDays | None:
    """Return the days of the requested time zone; None if there is no time zone.

    Raises:
        SpecError: when the zone does not exist, an end is missing or is not a date, or the range is empty.
    """
    zone, ends = params.get("time_zone") or None, [params.get(name) or None for name in ("since", "until")]
    if zone is None:
        return None
    if None in ends:
        msg = f"time_zone {zone} needs both since and until"
        raise SpecError(msg)
    since, until = map(str, ends)
    return LocalDays.from_dates(since, until, str(zone))


def data_interval(context: Mapping[str, Any]) -> DataInterval:
    """Return the data interval in the context of a task; a run without one has no such keys."""
    return context.get("data_interval_start"), context.get("data_interval_end")


def resolve_limits(params: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the limits of the search for stale and missing days, in epoch milliseconds; None for no limit.

    Args:
        params: parameters of the run; `since` and `until` (ISO 8601 text) can be absent, empty, or None.

    Raises:
        SpecError: when a limit is not an instant with an offset, or the limits are in the wrong order.
    """
    since, until = params.get("since") or None, params.get("until") or None
    since_ms = instant_ms(str(since), "since") if since else None
    until_ms = instant_ms(str(until), "until") if until else None
    if since_ms is not None and until_ms is not None:
        backfill_range(since_ms, until_ms)
    return since_ms, until_ms


def partition_keys(interval: Interval) -> list[str]:
    """Return the partition key of each day of a range, in the format of Airflow's own keys."""
    first_ms = interval.start_ms // DAY_MS * DAY_MS
    days = range(first_ms, interval.end_ms, DAY_MS)
    return [f"{utc_datetime(start_ms):%Y-%m-%dT%H:%M:%S}" for start_ms in days]


def with_seconds(value_ms: int) -> str:
    """Return an instant in the format of RFC 3339, which the Airflow server requires in a form."""
    text = instant_text(value_ms)
    return text if text.count(":") > 1 else text.replace("Z", ":00Z")


def _require_data_interval(data_interval: DataInterval) -> Interval:
    start, end = data_interval
    if start is None or end is None:
        msg = (
            "no range: the run has no data interval, and since and until are not given\n\n"
            "hint: give both, such as since=2013-02-01T00:00:00Z until=2013-03-01T00:00:00Z"
        )
        raise SpecError(msg)
    start_ms, end_ms = _to_ms(start), _to_ms(end)
    if start_ms == end_ms:
        msg = (
            f"no range: the run's data interval is empty, it starts and ends at {instant_text(start_ms)}"
            "\n\nhint: give since and until, or a timetable with data intervals (CronDataIntervalTimetable)"
        )
        raise SpecError(msg)
    return backfill_range(start_ms, end_ms)


def _to_ms(moment: datetime) -> int:
    """Return epoch milliseconds, without a difference of datetimes: those of pendulum don't round down."""
    return calendar.timegm(moment.utctimetuple()) * SECOND_MS + moment.microsecond // 1_000


_FINAL_STATES = ["success", "failed", "upstream_failed", "skipped", "removed"]


def load_timetable(schedule: str) -> CronDataIntervalTimetable:
    """Return Airflow's timetable of a schedule, in UTC.

    Raises:
        Exception: of a class that depends on the error, when the schedule is not a cron expression.
    """
    from airflow.timetables.interval import CronDataIntervalTimetable

    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    timetable.validate()
    return timetable


def data_intervals(schedule: str, interval: Interval) -> Iterator[Interval]:
    """Return the data intervals of a schedule that overlap an interval, in order."""
    from airflow.timetables.base import TimeRestriction
    from pendulum import instance

    timetable, always = load_timetable(schedule), TimeRestriction(earliest=None, latest=None, catchup=True)
    tick = timetable.infer_manual_data_interval(run_after=instance(utc_datetime(interval.start_ms)))
    while _to_ms(tick.end) < interval.end_ms:
        following = timetable.next_dagrun_info(last_automated_data_interval=tick, restriction=always)
        if following is None or following.data_interval is None:
            return
        tick = following.data_interval
        yield Interval(_to_ms(tick.start), _to_ms(tick.end))


def running_data_intervals(ti: Any, dag_id: str, schedule: str, interval: Interval) -> list[Interval]:
    """Return the data intervals that an unfinished run can still publish.

    Args:
        ti: running task instance; only a task can query the states of runs.
        dag_id: id of the DAG with the schedule.
        schedule: cron expression.
        interval: interval that the data intervals must overlap.
    """
    return [
        tick
        for tick in data_intervals(schedule, interval)
        if _may_publish(ti, dag_id, utc_datetime(tick.start_ms))
    ]


def _may_publish(ti: Any, dag_id: str, logical_date: datetime) -> bool:
    """Return whether the run is unfinished, and its task `publish` too."""
    run = {"dag_id": dag_id, "logical_dates": [logical_date]}
    unfinished_runs = ti.get_dr_count(**run, states=["queued", "running"])
    return bool(unfinished_runs) and not ti.get_ti_count(**run, task_ids=["publish"], states=_FINAL_STATES)
