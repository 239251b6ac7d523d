"""Compute the event times that a folder promises to hold, and find the records that break the promise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.definition.prepared_columns import EVENT_TIME, FILE
from backstream.definition.source_section import PartitionFilter, Source
from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.intervals import ALL_TIMES, Interval
from backstream.runs.input_files import MisplacedRecords
from backstream.source.raw_files import path_of_uri

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_FIRST_VALUE = re.compile(r"\d{4}([-_./ T:]?\d{2}){0,4}")
_NEXT_VALUE = re.compile(r"\d{1,2}")
_LENGTHS = (*map(timedelta, (366, 31, 1)), timedelta(hours=1), timedelta(minutes=1))
"""Greatest length of a period by the number of its parts after the year."""
_MONTHS = 2


@dataclass(frozen=True, slots=True)
class FolderPeriods:
    """The promise of the folders of a source; `where` is the file of the definition, for messages."""

    source: Source
    where: str

    def promise(self, path: str) -> Interval:
        """Return the event times that a file may hold by the names of its folders, with the slack.

        Raises:
            PlanError: when a folder lacks a column, or its value is no period.
        """
        given, zone = self.source.partition_filter, self.source.time_zone or "UTC"
        return _promise(path.rpartition("/")[0], given, zone, self.where) if given else ALL_TIMES

    def may_hold(self, path: str, intervals: Iterable[Interval]) -> bool:
        """Return whether a file may hold an event of one of the intervals."""
        promise = self.promise(path)
        return any(promise.overlaps(interval) for interval in intervals)

    def find_misplaced(self, folder: Path) -> list[MisplacedRecords]:
        """Return the records of prepared files that are outside of what the folder of their raw file promises.

        Raises:
            SpecError: when the prepared files lack the paths of the raw files.
        """
        found: dict[str, list[pa.Table]] = {}
        for file in sorted(folder.glob("*.parquet")):
            if FILE not in pq.read_schema(file).names:
                msg = (
                    f"source.partition_filter needs the column {FILE} of the records, which source.transform"
                    f" removes ({self.where})"
                )
                raise SpecError(msg)
            rows = pq.read_table(file, columns=[FILE, EVENT_TIME], read_dictionary=[FILE], partitioning=None)
            times_us = rows[EVENT_TIME].cast(pa.timestamp("us", "UTC")).cast(pa.int64())  # Python ends in 9999
            rows = pa.table({FILE: rows[FILE], EVENT_TIME: times_us}).unify_dictionaries()
            bounds = rows.group_by(FILE).aggregate([(EVENT_TIME, "min"), (EVENT_TIME, "max")])
            for uri, first, last in zip(*(column.to_pylist() for column in bounds.columns), strict=True):
                path, times = path_of_uri(uri), [at_us // 1_000 for at_us in (first, last) if at_us is not None]
                promise = self.promise(path)
                if times and not promise.start_ms <= times[0] <= times[-1] < promise.end_ms:
                    found.setdefault(path, []).append(rows.filter(pc.equal(rows[FILE].cast(pa.string()), uri)))
        return [_count_outside(path, pa.concat_tables(parts), self.promise(path)) for path, parts in found.items()]


def _count_outside(path: str, rows: pa.Table, promise: Interval) -> MisplacedRecords:
    times = rows[EVENT_TIME]
    is_outside = pc.or_(pc.less(times, promise.start_ms * 1_000), pc.greater_equal(times, promise.end_ms * 1_000))
    outside = times.filter(is_outside)
    bounds: Mapping[str, int] = pc.min_max(outside).as_py()
    return MisplacedRecords(path, len(outside), bounds["min"] // 1_000, bounds["max"] // 1_000)


@lru_cache(maxsize=100_000)
def _promise(folder: str, given: PartitionFilter, zone: str, where: str) -> Interval:
    parts = (part.partition("=") for part in folder.split("/"))
    values = {name: unquote(value) for name, separator, value in parts if separator}
    digits = ""
    for name in given.columns:
        value = values.get(name)
        if value == _NO_VALUE:
            return ALL_TIMES
        pattern = _NEXT_VALUE if digits else _FIRST_VALUE
        if value is None or not pattern.fullmatch(value):
            problem = "is not in the folder" if value is None else f"must be a period such as {_example(digits)}"
            got = "" if value is None else f", got {value!r} in the folder"
            msg = f"partition column {name!r} {problem}{got} {folder} ({where}, source.partition_filter.columns)"
            raise PlanError(msg)
        digits += re.sub(r"\D", "", value).rjust(2, "0")
    try:
        return _period(digits, given.slack, ZoneInfo(zone))
    except (ValueError, OverflowError):
        msg = f"the folder is no period: {folder} ({where}, source.partition_filter.columns)"
        raise PlanError(msg) from None


def _example(digits: str) -> str:
    return "03" if digits else "2024-03-01 or 2024-03-01-03"


def _period(digits: str, slack_ms: int, zone: ZoneInfo) -> Interval:
    """Return the period of the digits of a year, month, day, hour, and minute, with the slack on both sides."""
    numbers = [int(digits[:4]), *(int(digits[at : at + 2]) for at in range(4, len(digits), 2))]
    year, month, day, hour, minute = (*numbers, *(1, 1, 1, 0, 0)[len(numbers) :])
    first = datetime(year, month, day, hour, minute)  # noqa: DTZ001 - the zone comes below
    end = first + _LENGTHS[len(numbers) - 1]
    if len(numbers) <= _MONTHS:  # the longest month or year ends within the next one
        end = end.replace(day=1) if len(numbers) == _MONTHS else end.replace(month=1, day=1)
    # If a clock is set back, it shows an hour twice; the period of that hour contains both.
    start_ms, end_ms = (epoch_ms(at.replace(tzinfo=zone)) for at in (first, end))
    return Interval(start_ms - slack_ms, end_ms + slack_ms)
