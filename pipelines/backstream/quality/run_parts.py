"""Describe the failing rows of a check, and find the parts of a run behind a failed check of a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.instants import DAY_MS, epoch_ms, instant_ms, instant_text
from backstream.eventtime.records import UNDECIDED, Fate
from backstream.quality.audit_frame import FATES_OF_TABLE
from backstream.quality.evidence import RunEvidence
from backstream.quality.gx_adapter import ExpectationResult
from backstream.quality.row_texts import expected_and_found
from backstream.quality.suites import SuiteEntry
from backstream.quality.window_rows import count_windows, cut_by_day, first_windows, list_windows
from backstream.runs.input_files import EQUAL_TO
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import WINDOWS
from backstream.text import count_of, share_text

Row = dict[str, Any]
"""The names of a failing row, and its texts `expected` and `found`."""

_MAX_FAILING_ROWS = 20
"""The maximum number of failing rows that a check keeps; reports join adjacent windows and show ten."""
_NAME_COLUMNS = {
    "windows": ["source_partition", "window_start"],
    "partitions": ["source_partition"],
    "results": ["window_start"],
    "bands": ["window_start"],
    "run": [],
}


@dataclass(frozen=True, slots=True)
class RunParts:
    """The frames, plan, manifests, and evidence in which the causes of a failed check of a run are searched."""

    plan: Plan
    frames: Mapping[str, pd.DataFrame]
    manifests: Sequence[Manifest]
    evidence: RunEvidence

    def rows(self, column: str, kwargs: Mapping[str, Any]) -> Iterator[Row]:
        """Yield the parts that disagree with a check on a column of the run, the largest deviation first."""
        search = _SEARCHES.get(column)
        if search:
            yield from search(self, kwargs)

    def chunks(self) -> Iterator[tuple[Chunk, Manifest]]:
        """Yield the finished chunks with their manifests."""
        by_id = {manifest.chunk_id: manifest for manifest in self.manifests}
        for chunk in self.plan.chunks:
            if chunk.chunk_id in by_id:
                yield chunk, by_id[chunk.chunk_id]

    def rows_by_day(self, frame: str, column: str) -> Mapping[int, int]:
        """Return the sums of a column by UTC day (in ms)."""
        rows = self.frames[frame]
        rows = cut_by_day(rows) if frame == "windows" else rows
        day_ms = rows["window_start"].dt.as_unit("ms").astype("int64") // DAY_MS * DAY_MS
        return {int(day): int(total) for day, total in rows[column].groupby(day_ms).sum().items()}  # type: ignore[call-overload]


def _windows_over(
    *fates: str, is_without_band: bool = False
) -> Callable[[RunParts, Mapping[str, Any]], Iterator[Row]]:
    """Return a search for the windows that have the most events beyond a share."""

    def search(parts: RunParts, kwargs: Mapping[str, Any]) -> Iterator[Row]:
        windows, limit = parts.frames["windows"], kwargs.get("max_value", 0.0)
        if is_without_band:
            windows = windows[~windows["has_band"]]
        excess = windows[list(fates)].sum(axis=1) - limit * windows["events"]
        column = "late_ratio" if "late" in fates else "dropped_ratio"
        for at in excess[excess > 0].sort_values(ascending=False, kind="stable").index:
            row = windows.loc[at]
            expected, found = expected_and_found(row, column, kwargs, "windows")
            yield _window(row) | {"expected": expected, "found": found}

    return search


def _missing_windows(parts: RunParts, kwargs: Mapping[str, Any]) -> Iterator[Row]:
    windows = parts.frames["windows"]
    missing = windows[windows["is_expected"] & ~windows["is_present"]]
    for row in list_windows(missing, _MAX_FAILING_ROWS).to_dict("records"):
        expected, found = expected_and_found(row, "is_present", kwargs, "windows")  # type: ignore[arg-type]
        yield _window(row) | {"expected": expected, "found": found}


def _unfinished_chunks(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    finished = {manifest.chunk_id for manifest in parts.manifests}
    for chunk in parts.plan.chunks:
        if chunk.chunk_id not in finished:
            expected = count_of(chunk.expected_events, "event")
            yield _chunk(chunk) | {"expected": f"a manifest with {expected}", "found": "no manifest"}


def _records_without_fate(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for chunk, manifest in parts.chunks():
        counted = sum(sum(fates.values()) for fates in manifest.fates.values())
        if counted != manifest.events_read:
            read = f"one fate for each of {count_of(manifest.events_read, 'record')}"
            yield _chunk(chunk) | {"expected": read, "found": count_of(counted, "fate")}


def _unreadable_records(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    examples = parts.evidence.unreadable.examples
    for example in examples:
        names = {"file": example.file, "record": example.value}
        yield names | {"expected": "a readable record", "found": example.reason}
    if not examples:
        yield from _chunks_by_fate(parts, Fate.QUARANTINED, "quarantined")


def _inexact_numbers(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for numbers in parts.plan.inexact:
        yield {
            "file": numbers.path,
            "expected": f"{numbers.text} in column {numbers.column!r}",
            "found": str(numbers),
        }


def _duplicates(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    yield from _chunks_by_fate(parts, Fate.DUPLICATE, "duplicate")


def _undecided_records(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for fate in UNDECIDED:
        yield from _chunks_by_fate(parts, fate, fate.replace("_", " and "))


def _chunks_by_fate(parts: RunParts, fate: Fate, word: str) -> Iterator[Row]:
    """Yield source partitions of chunks with records of a fate, those with most records first."""
    counts = [
        (fates.get(fate, 0), sum(fates.values()) - fates.get(Fate.HALO, 0), chunk, partition)
        for chunk, manifest in parts.chunks()
        for partition, fates in manifest.fates.items()
        if fates.get(fate)
    ]
    for count, records, chunk, partition in sorted(counts, key=lambda entry: -entry[0]):
        found = f"{count:,} of {count_of(records, 'record')} {word} ({share_text(count, records)})"
        yield {"source_partition": partition} | _chunk(chunk) | {"expected": f"no {word} record", "found": found}


def _chunks_by_gap(gap: RecordGap) -> Callable[[RunParts, Mapping[str, Any]], Iterator[Row]]:
    """Yield the chunks with records that have a gap, those with most of them first."""
    expected, word = _GAPS[gap]

    def search(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
        counts = [(manifest.gaps.get(gap, 0), chunk, manifest) for chunk, manifest in parts.chunks()]
        for count, chunk, manifest in sorted(counts, key=lambda entry: -entry[0]):
            if count:
                records = sum(sum(fates.values()) - fates.get(Fate.HALO, 0) for fates in manifest.fates.values())
                found = f"{count:,} of {count_of(records, 'record')} {word} ({share_text(count, records)})"
                yield _chunk(chunk) | {"expected": expected, "found": found}

    return search


_GAPS = {
    RecordGap.NO_ID: ("an id in each record", "without an id"),
    RecordGap.EMPTY_ID: ("no empty id", "with an empty id"),
    RecordGap.NO_KEY: ("a key in each record", "without a key"),
}
"""The expected and the found records by gap."""


def _repeated_positions(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for position in parts.evidence.repeated.examples:
        names = {"source_partition": position.source_partition, "sequence": position.sequence}
        yield names | {"expected": "1 record", "found": count_of(position.records, "record")}


def _unmatched_rows(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the tables of chunks that lack records, then the windows whose rows lack records."""
    for chunk, manifest in parts.chunks():
        for suffix, own in FATES_OF_TABLE.items():
            staged = sum(file.rows for file in manifest.files.get(suffix, ()))
            records = sum(fates.get(fate, 0) for fates in manifest.fates.values() for fate in own)
            if suffix in parts.plan.tables and staged != records:
                expected = f"{count_of(records, 'row')} in table {suffix}"
                yield _chunk(chunk) | {"expected": expected, "found": f"{staged:,}"}
    results = parts.frames["results"]
    for row in results[results["unmatched_records"] != 0].to_dict("records"):
        expected, found = expected_and_found(row, "unmatched_records", {}, "results")  # type: ignore[arg-type]
        yield _window(row) | {"expected": expected, "found": found}
    counted = sum(file.records for manifest in parts.manifests for file in manifest.files.get(WINDOWS, ()))
    in_rows = int(results["records"].sum())
    if counted != in_rows:
        yield {"expected": f"{count_of(counted, 'record')} in all rows", "found": f"{in_rows:,}"}


def _days_with_few_rows(parts: RunParts, kwargs: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the days with fewer rows than a share of the rows that they replace, those that lack most first."""
    limit, rows = kwargs.get("min_value") or 0.0, parts.rows_by_day("results", "rows")
    lacking = {
        day_ms: limit * replaced - rows.get(day_ms, 0)
        for day_ms, replaced in parts.evidence.replaced_by_day.items()
        if rows.get(day_ms, 0) < limit * replaced
    }
    for day_ms in sorted(lacking, key=lambda day_ms: -lacking[day_ms]):
        replaced = count_of(parts.evidence.replaced_by_day[day_ms], "row")
        expected = f"at least {share_text(limit)} of {replaced}"
        yield _day(day_ms) | {"expected": expected, "found": count_of(rows.get(day_ms, 0), "row")}


def _unusual_days(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the days by the distance of their events from the records per day of past runs."""
    usual, events = median(parts.evidence.past), parts.rows_by_day("windows", "events")
    for day_ms in sorted(events, key=lambda day_ms: -abs(events[day_ms] - usual)):
        expected = f"about {count_of(round(usual), 'record')}"
        yield _day(day_ms) | {"expected": expected, "found": count_of(events[day_ms], "event")}


def _skipped_files(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for file in parts.plan.skipped:
        yield {"file": file.path, "expected": "a file without damage", "found": file.reason}


def _removed_files(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for path in parts.plan.removed.first:
        yield {"file": path, "expected": "a file that earlier runs read", "found": "no file"}


def _equal_files(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for pair in parts.plan.equal_files.first:
        path, _separator, first = pair.partition(EQUAL_TO)
        yield {"file": path, "expected": "content of its own", "found": f"the content of {first}"}


def _misplaced_records(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for records in parts.plan.misplaced:
        yield {"file": records.path, "expected": "event times of its folder", "found": str(records)}


def _implausible_times(parts: RunParts, _: Mapping[str, Any]) -> Iterator[Row]:
    for times in parts.plan.implausible:
        yield {"file": times.file, "record": times.example, "expected": "a plausible time", "found": str(times)}


def _window(row: Any) -> Row:
    names = [name for name in ("source_partition",) if name in row]
    start_ms = int(row["window_start"].timestamp() * 1_000)
    return {name: row[name] for name in names} | {"window_start": instant_text(start_ms)}


def _chunk(chunk: Chunk) -> Row:
    return {"chunk": chunk.chunk_id, "since": instant_text(chunk.start_ms), "until": instant_text(chunk.end_ms)}


def _day(day_ms: int) -> Row:
    return {"since": instant_text(day_ms), "until": instant_text(day_ms + DAY_MS)}


_SEARCHES: Mapping[str, Callable[[RunParts, Mapping[str, Any]], Iterator[Row]]] = {
    "late_ratio": _windows_over("late", "dropped"),
    "unbanded_late_ratio": _windows_over("late", "dropped", is_without_band=True),
    "dropped_ratio": _windows_over("dropped"),
    "missing_ratio": _missing_windows,
    "windows_missing": _missing_windows,
    "chunks_missing": _unfinished_chunks,
    "unaccounted": _records_without_fate,
    "is_any_readable": _unreadable_records,
    "quarantined_ratio": _unreadable_records,
    "inexact_ratio": _inexact_numbers,
    "duplicate_ratio": _duplicates,
    "undecided_ratio": _undecided_records,
    "without_id_ratio": _chunks_by_gap(RecordGap.NO_ID),
    "records_with_empty_id": _chunks_by_gap(RecordGap.EMPTY_ID),
    "records_without_key": _chunks_by_gap(RecordGap.NO_KEY),
    "repeated_positions": _repeated_positions,
    "unmatched_rows": _unmatched_rows,
    "rows_ratio": _days_with_few_rows,
    "volume_score": _unusual_days,
    "files_skipped": _skipped_files,
    "files_removed": _removed_files,
    "files_equal": _equal_files,
    "records_misplaced": _misplaced_records,
    "implausible_ratio": _implausible_times,
}


def name_failing_rows(
    result: ExpectationResult, entry: SuiteEntry, kwargs: Mapping[str, Any], parts: RunParts
) -> tuple[Mapping[str, Any], ...]:
    """Return the first failing rows of a check, sorted by deviation or else by time.

    A row has names (such as `source_partition`, `window_start`, `file`), and texts `expected`, `found`, and
    `command`. A row of a frame also has the value of the column. The rows of a check of a whole run are the parts
    that disagree, because the run is one row.
    """
    column = kwargs.get("column")
    if result.is_met or result.error or column is None:
        return ()
    rows = parts.rows(column, kwargs) if entry.frame == "run" else _rows(result, entry, kwargs, column)
    return tuple(row | {"command": _command_for(row, parts.plan)} for row in islice(rows, _MAX_FAILING_ROWS))


def _rows(result: ExpectationResult, entry: SuiteEntry, kwargs: Mapping[str, Any], column: str) -> Iterator[Row]:
    names = [*_NAME_COLUMNS[entry.frame], column]
    for row in sort_by_deviation(result, kwargs).head(_MAX_FAILING_ROWS).to_dict("records"):
        values: Mapping[str, Any] = {str(name): value for name, value in row.items()}
        expected, found = expected_and_found(values, column, kwargs, entry.frame)
        named = {name: to_json(values[name]) for name in names if name in values}
        yield named | {"expected": expected, "found": found}


def _command_for(row: Mapping[str, Any], plan: Plan) -> str:
    """Return the command that shows the published rows of a failing row's days; empty for a file or a record."""
    if "window_start" in row:
        since_ms = instant_ms(row["window_start"], "window_start") // DAY_MS * DAY_MS
        until_ms = since_ms + DAY_MS
    elif "since" in row:
        since_ms, until_ms = (instant_ms(row[name], name) for name in ("since", "until"))
    elif "source_partition" in row:
        since_ms, until_ms = plan.since_ms, plan.until_ms
    else:
        return ""
    since, until = (instant_text(at_ms).removesuffix("T00:00Z") for at_ms in (since_ms, until_ms))
    return f"backstream show {plan.dataset} --since {since} --until {until}"


def sort_by_deviation(result: ExpectationResult, kwargs: Mapping[str, Any]) -> pd.DataFrame:
    """Return the failing rows, with the largest deviation first if the column is a number.

    Only the first windows are returned if a row stands for several windows. The deviation is the distance to the
    nearest limit (`min_value` or `max_value`), or without limits the absolute value.
    """
    rows = _sort_rows(result.failing, kwargs)
    if "last_start" not in rows.columns or count_windows(rows) == len(rows):
        return rows
    first = first_windows(rows.head(_MAX_FAILING_ROWS), _MAX_FAILING_ROWS)
    return _sort_rows(list_windows(first), kwargs)


def _sort_rows(rows: pd.DataFrame, kwargs: Mapping[str, Any]) -> pd.DataFrame:
    column = kwargs.get("column")
    if not column or not is_measured(rows, column):
        return rows
    low, high = (kwargs.get(key) for key in ("min_value", "max_value"))
    if low is None and high is None:
        return rows.sort_values(column, key=abs, ascending=False, kind="stable")
    values = rows[column].to_numpy()
    beyond = [*([values - high] if high is not None else []), *([low - values] if low is not None else [])]
    return rows.iloc[np.argsort(-np.max(beyond, axis=0), kind="stable")]


def is_measured(rows: pd.DataFrame, column: str) -> bool:
    """Return whether the values of failing rows are numbers and not booleans."""
    return (
        not rows.empty
        and column in rows.columns
        and is_numeric_dtype(rows[column])
        and not is_bool_dtype(rows[column])
    )


def to_json(value: Any) -> Any:
    """Return a cell as a JSON value, with instants as text."""
    if isinstance(value, pd.Timestamp):
        return instant_text(epoch_ms(value.to_pydatetime()))
    return value.item() if hasattr(value, "item") else value
