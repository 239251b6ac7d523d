"""Count the records of a Parquet file by the year of their times, and find those with suspect times.

The bounds in the footer are enough for most row groups. A time column is read only from row groups whose bounds
may hold suspect times, once for each file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.definition import prepared_columns
from backstream.errors import PlanError
from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.suspect_times import (
    BOUNDS_US,
    REASONS,
    UNITS_US,
    YEAR_US,
    SuspectTimes,
    TimeCounts,
    fits_unit,
    may_be_suspect,
    year_of,
)
from backstream.source.raw_files import path_of_uri
from backstream.source.time_columns import Longs, TimeColumn
from backstream.text import visible_line

_TEXTS = {
    prepared_columns.EVENT_TIME: prepared_columns.EVENT_TEXT,
    prepared_columns.ARRIVAL_TIME: prepared_columns.ARRIVAL_TEXT,
}
"""The column with the text of unreadable times, by the column of times."""
_UNPARSABLE = {
    prepared_columns.EVENT_TEXT: "unparsable_event_time",
    prepared_columns.ARRIVAL_TEXT: "unparsable_arrival_time",
}
"""The reason of records whose text is no time, by its column."""
_UNKNOWN_US = np.iinfo(np.int64).min
"""In place of the day of a text without one."""
_WHOLE_NUMBER = r"^\s*[0-9]{9,22}(?:\.0*)?\s*$"
_DATE_LENGTH = 10
_MAX_LENGTH = 60
"""The maximum number of characters of a text in a message."""


def count_times(path: str, footer: Any, expression: str, open_file: Callable[[], Any]) -> TimeCounts | None:
    """Return the records of a Parquet file by the year of a time, with those whose time is suspect.

    Args:
        path: the path or the address of the file.
        footer: its footer.
        expression: the time.
        open_file: returns the argument of PyArrow's functions for the file; called if the footer is not enough.

    Returns:
        None if the bounds in the footer show that no time is suspect, or only Spark can evaluate the expression.

    Raises:
        ArrowException, OSError: when the file cannot be read.
    """
    column = _StoredTime.find(footer, expression)
    if column is None:
        return None
    years, suspect_groups, unreadable_groups = Counter[int](), list[int](), list[int]()
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(column.position)
        nulls = chunk.statistics.null_count or 0 if chunk.statistics else 0
        bounds_us = column.bounds_us(chunk.statistics)
        if nulls and column.text_name:
            unreadable_groups.append(number)
        if nulls == chunk.num_values:
            continue
        if bounds_us is None or may_be_suspect(*bounds_us):
            suspect_groups.append(number)
        else:
            years[year_of(bounds_us[0])] += chunk.num_values - nulls
    if not suspect_groups and not unreadable_groups:
        return None
    dictionaries = [prepared_columns.FILE] if prepared_columns.FILE in footer.schema.names else None
    with pq.ParquetFile(open_file(), read_dictionary=dictionaries) as file:
        timed = _read_groups(file, suspect_groups, [column.name, prepared_columns.FILE])
        texts = _read_groups(
            file, unreadable_groups, [column.text_name, prepared_columns.REASON, prepared_columns.FILE]
        )
        parts = [
            *(part for rows in timed for part in _count_rows(path, rows, column)),
            *(part for rows in texts for part in _count_numbers(path, rows, column)),
        ]
    counts = TimeCounts.sum([TimeCounts(years), *parts])
    return counts if suspect_groups or counts.suspects else None


def _read_groups(file: pq.ParquetFile, numbers: Sequence[int], names: Sequence[str]) -> Iterator[pa.Table]:
    present = [name for name in names if name in file.schema_arrow.names]
    return (file.read_row_group(number, columns=present) for number in numbers)


@dataclass(frozen=True, slots=True)
class _StoredTime:
    """A time column of a file: numbers of some microseconds, or text (`us_per_number` is None).

    `text_name` is the column of a prepared file with the text of unreadable times, empty in other files.
    """

    name: str
    position: int
    us_per_number: float | None
    text_name: str

    @classmethod
    def find(cls, footer: Any, expression: str) -> _StoredTime | None:
        """Return the column of an expression; None if the file has none, or only Spark can evaluate it."""
        try:
            column = TimeColumn.from_expression(expression, "")
        except PlanError:
            return None
        positions = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
        if column.name not in positions:
            return None
        if footer.schema.column(positions[column.name]).physical_type == "INT96":  # only prepared files are read
            return None
        kind = footer.schema.to_arrow_schema().field(column.name).type
        us_per_number = column.us_per_number(kind)
        is_text = not column.factor and (pa.types.is_string(kind) or pa.types.is_large_string(kind))
        if us_per_number is None and not is_text:
            return None
        text_name = _TEXTS.get(column.name, "")
        return cls(column.name, positions[column.name], us_per_number, text_name if text_name in positions else "")

    def bounds_us(self, statistics: Any) -> tuple[float, float] | None:
        """Return the bounds of the times in microseconds since 1970; None if the footer lacks them."""
        if statistics is None or not statistics.has_min_max:
            return None
        raw = statistics.min_raw, statistics.max_raw
        if self.us_per_number is not None:
            return raw[0] * self.us_per_number, raw[1] * self.us_per_number
        first_us, last_us = (_day_us(text.decode(errors="replace")) for text in raw)
        return None if first_us is None or last_us is None else (first_us, last_us)

    def values(self, times: pa.ChunkedArray) -> tuple[Longs, float]:
        """Return times without nulls as numbers, and their microseconds; text is read to the day."""
        if self.us_per_number is not None:
            return np.asarray(times.cast(pa.int64()).to_numpy(), np.int64), self.us_per_number
        days = pc.utf8_slice_codeunits(times, 0, _DATE_LENGTH).combine_chunks().dictionary_encode()
        days_us = [_day_us(text) for text in days.dictionary.to_pylist()]
        known = np.array([_UNKNOWN_US if at_us is None else at_us for at_us in days_us], np.int64)
        return known[days.indices.to_numpy()], 1


def _day_us(text: str) -> int | None:
    """Return the start of the day with which a text begins, in microseconds since 1970; None if it has none."""
    try:
        day = date.fromisoformat(text[:_DATE_LENGTH])
    except ValueError:
        return None
    return epoch_ms(datetime.combine(day, datetime.min.time(), UTC)) * 1_000


def _exact_us(text: str, day_us: int) -> int:
    """Return the instant of a text that begins with a day, as far as Python can read it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return day_us
    return epoch_ms(at if at.tzinfo else at.replace(tzinfo=UTC)) * 1_000


def _count_rows(path: str, rows: pa.Table, column: _StoredTime) -> Iterator[TimeCounts]:
    """Yield the counts of rows by reason, and those without one by year."""
    rows = rows.filter(pc.is_valid(rows[column.name]))
    values, us_per_number = column.values(rows[column.name])
    is_known = values != _UNKNOWN_US
    segments = np.searchsorted(BOUNDS_US, values * us_per_number, side="right")
    for segment in np.unique(segments[is_known]).tolist():
        positions = np.flatnonzero(is_known & (segments == segment))
        own = values[positions]
        if reason := REASONS[segment]:
            first = positions[own.argmin()]
            first_us, last_us = (_to_us(int(each), us_per_number) for each in (own.min(), own.max()))
            text = ""
            if column.us_per_number is None:
                text = visible_line(str(rows[column.name][first])[:_MAX_LENGTH])
                first_us = _exact_us(text, first_us)
            times = SuspectTimes(len(own), first_us, max(first_us, last_us), _file_of(path, rows, first), text)
            yield TimeCounts({}, {reason: times})
        else:
            years, counts = np.unique(own * us_per_number // YEAR_US, return_counts=True)
            yield TimeCounts(dict(zip(years.astype(int).tolist(), counts.tolist(), strict=True)))


def _count_numbers(path: str, rows: pa.Table, column: _StoredTime) -> Iterator[TimeCounts]:
    """Yield the counts of unreadable times that are numbers too large for their unit, by the unit that fits."""
    is_number = pc.match_substring_regex(rows[column.text_name], _WHOLE_NUMBER)
    is_unparsable = pc.equal(rows[prepared_columns.REASON], _UNPARSABLE[column.text_name])
    rows = rows.filter(pc.and_(is_number, is_unparsable))
    texts = pc.utf8_trim_whitespace(rows[column.text_name])
    numbers = np.asarray(texts.cast(pa.float64()).to_numpy())
    for unit, unit_us in UNITS_US.items():
        positions = np.flatnonzero(fits_unit(numbers, unit))
        if len(positions):
            own = numbers[positions]
            first = positions[own.argmin()]
            first_us, last_us = (int(each * unit_us) for each in (own.min(), own.max()))
            times = SuspectTimes(len(own), first_us, last_us, _file_of(path, rows, first), str(texts[first]))
            yield TimeCounts({}, {unit: times})


def _to_us(number: int, us_per_number: float) -> int:
    return number * int(us_per_number) if us_per_number >= 1 else number // round(1 / us_per_number)


def _file_of(path: str, rows: pa.Table, position: int) -> str:
    """Return the raw file of a prepared record, or else the file itself."""
    uri = rows[prepared_columns.FILE][position].as_py() if prepared_columns.FILE in rows.column_names else None
    return path_of_uri(uri) if uri else path
