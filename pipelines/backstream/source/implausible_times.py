"""Find the records of a source whose times are implausible, and the unit that would fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from backstream.definition.model import Definition, TimeKind
from backstream.definition.prepared import list_single_sources
from backstream.definition.source_section import Source
from backstream.errors import PlanError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.suspect_times import (
    AFTER_CALENDAR,
    BEFORE_CALENDAR,
    FACTORS,
    UNITS_US,
    SuspectTimes,
    TimeCounts,
    year_of,
)
from backstream.runs.input_files import ImplausibleTimes
from backstream.runs.plan import InputFile
from backstream.source.files import FileTimes
from backstream.source.time_columns import TimeColumn
from backstream.source.user_files import describe_input_file

_UNIT_OF_FACTOR = {1: "ms", 1_000: "s"}
"""The unit of a column that `TimeColumn` reads with this factor."""
_REMEDY = "correct them in [source.derive], or leave them out by source.where"


def find_implausible_times(
    raw: Definition, paths: Sequence[str], inputs: Sequence[InputFile], times: Mapping[str, FileTimes]
) -> tuple[ImplausibleTimes, ...]:
    """Return the implausible times of each source of a definition, over all its files.

    Args:
        raw: the definition with the raw files as its source, whose units it has.
        paths: the paths of the files that are read; for a union, one folder per source.
        inputs: the files, as their footers describe them.
        times: the counts of the files whose footers are not enough, by path.
    """
    singles = list_single_sources(raw)
    if len(singles) == 1:
        return tuple(_find_in_source(singles[0], inputs, times))
    return tuple(
        found
        for single, folder in zip(singles, paths, strict=True)
        for found in _find_in_source(
            single, [file for file in inputs if file.path.startswith(f"{folder}/")], times
        )
    )


def _find_in_source(
    definition: Definition, inputs: Sequence[InputFile], times: Mapping[str, FileTimes]
) -> Iterator[ImplausibleTimes]:
    source, total = definition.source, sum(file.rows for file in inputs)
    for name in ["event_time"] if definition.time is TimeKind.EVENT else []:
        yield from _find_in_column(source, name, inputs, times, total)
    if source.arrival_time:
        yield from _find_in_column(source, "arrival_time", inputs, times, total)
    yield from _find_outside(definition, inputs, times, total)


def _find_in_column(
    source: Source, name: str, inputs: Sequence[InputFile], times: Mapping[str, FileTimes], total: int
) -> Iterator[ImplausibleTimes]:
    counted = {file.path: times[file.path][name] for file in inputs if name in times.get(file.path, {})}
    if not any(counts.suspects for counts in counted.values()):
        return
    counts = TimeCounts.sum(counted.get(file.path) or _by_footer(file, name) for file in inputs)
    unit = _find_unit(source, name)
    key = f"source.{name}" if source.name is None else f"{name} of source {source.name!r}"
    for reason, found in counts.find_implausible().items():
        fitting, text = _explain(reason, found, unit, name, is_most=2 * found.records > total)
        is_time = reason not in UNITS_US
        yield ImplausibleTimes(
            key,
            found.records,
            total,
            found.first_us // 1_000 if is_time else None,
            found.last_us // 1_000 if is_time else None,
            _example(found, unit),
            describe_input_file(found.file),
            fitting,
            text,
        )


def _by_footer(file: InputFile, name: str) -> TimeCounts:
    """Return the counts of a file whose footer is enough; the bounds of a row group are in true years."""
    at_ms = file.min_event_ms if name == "event_time" else file.min_arrival_ms
    return TimeCounts({year_of(at_ms * 1_000): file.rows} if at_ms is not None else {})


def _find_unit(source: Source, name: str) -> str | None:
    """Return the unit of a time that is a number in the files."""
    if unit := getattr(source, f"{name}_unit"):
        return str(unit)
    try:
        return _UNIT_OF_FACTOR.get(TimeColumn.from_expression(getattr(source, name), name).factor)
    except PlanError:
        return None


def _example(found: SuspectTimes, unit: str | None) -> str:
    """Return the first time as it is written: its text, its number, or the instant."""
    if found.text:
        return found.text
    if unit is None:
        return instant_text(found.first_us // 1_000)
    if unit == "ns":
        return str(found.first_us * 1_000)
    whole, rest = divmod(found.first_us, int(UNITS_US[unit]))
    return str(whole) if not rest else str(found.first_us / UNITS_US[unit])


def _explain(reason: str, found: SuspectTimes, unit: str | None, name: str, *, is_most: bool) -> tuple[str, str]:
    """Return the unit that fits, empty without one, and the reason with a remedy as text."""
    if reason[0].isdigit() and reason not in FACTORS:
        placeholder = "0 / -1" if reason == "1970-01-01" else reason
        return "", f"{placeholder} is a placeholder for no time; {_REMEDY}"
    if reason in (BEFORE_CALENDAR, AFTER_CALENDAR):
        return "", f"this is {reason}; {_REMEDY}"
    factor = FACTORS.get(reason, 1)
    fitting, wrong = (reason, unit) if reason in UNITS_US else _find_pair(factor, unit)
    meaning = instant_text(int(found.first_us * factor) // 1_000)
    instead = f" instead of {wrong}" if wrong else ""
    remedy = f'set source.{name}_unit = "{fitting}"' if is_most and unit else _REMEDY
    return fitting, f"with the unit {fitting}{instead} it would be {meaning}; {remedy}"


def _find_pair(factor: float, unit: str | None) -> tuple[str, str]:
    """Return the unit that fits numbers that are too small by a factor, and the unit in which they were read.

    If that unit is not known, or none is larger by this factor, the result is the most usual pair.
    """
    pairs = [
        (fitting, wrong)
        for wrong in ("ms", "us", "s", "ns")
        for fitting in UNITS_US
        if round(UNITS_US[fitting] / UNITS_US[wrong] / factor, 3) == 1
    ]
    return next((pair for pair in pairs if pair[1] == unit), pairs[0])


def _find_outside(
    definition: Definition, inputs: Iterable[InputFile], times: Mapping[str, FileTimes], total: int
) -> Iterator[ImplausibleTimes]:
    """Yield the files all of whose records are outside of the valid event times: no run reads and counts them."""
    valid = definition.valid_times
    outside = [
        file
        for file in inputs
        if file.min_event_ms is not None
        and file.max_event_ms is not None
        and (file.max_event_ms < valid.start_ms or file.min_event_ms >= valid.end_ms)
        and not times.get(file.path, {}).get("event_time", TimeCounts()).suspects
    ]
    if outside:
        first = min(outside, key=lambda file: file.min_event_ms or 0)
        bounds_ms = first.min_event_ms or 0, max(file.max_event_ms or 0 for file in outside)
        yield ImplausibleTimes(
            "source.event_time",
            sum(file.rows for file in outside),
            total,
            *bounds_ms,
            instant_text(bounds_ms[0]),
            first.path,
            "",
            "source.event_time_range does not contain these times",
        )
