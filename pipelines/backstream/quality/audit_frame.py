"""Build the audit frames, which compare expected with produced events per window, source partition, and run.

A check reads one of these small frames, so that no check reads the events again. No cell is null, because row-wise
expectations skip nulls, and a check must not skip rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from backstream.definition.model import Definition
from backstream.errors import ContractError
from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.records import SIDE_OUTPUT, TIMING_BY_FATE, UNDECIDED, Fate, count_without_fate
from backstream.quality.evidence import RunEvidence
from backstream.quality.expected_events import CELL, CELL_TYPES, expected_cells
from backstream.quality.window_rows import count_windows, times_to_ms, to_instants
from backstream.runs.manifest import Manifest, sum_fates, sum_gaps
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import DROPPED, QUARANTINE, WINDOWS

COUNTS = ["events", "on_time", "late", "dropped", "expired"]
WINDOW_COLUMNS = [
    "source_partition",
    "window_start",
    "window_end",
    "windows",
    "last_start",
    "is_expected",
    "is_present",
    "in_range",
    "is_aligned",
    "is_placed",
    "is_counted_on",
    "is_count_known",
    "expected_events",
    *COUNTS,
    "unaccounted",
    "surplus",
    "late_ratio",
    "dropped_ratio",
    "completeness",
    "copies",
    "has_band",
    "is_limited",
    "band_low",
    "band_high",
]
"""The columns of the audit frame.

Instants are UTC timestamps. Ratios are from 0 to 1; completeness may be greater.

`windows`: the number of windows of the row. It is 1 for a window with events or with a count of expected events.
Consecutive windows of a source partition without both are one row: `window_start` and `window_end` are those of
the first window, `last_start` is the start of the last one.

`is_placed`: in the range and on the grid. `is_counted_on`: expected, and has events.
`late_ratio`: share of late or dropped events; `dropped_ratio`: share of dropped events.
`is_count_known`: whether `expected_events` is a count from a timetable; without a timetable it is 0.
`unaccounted`: events that are neither on time, late, dropped, nor expired.
`surplus`: events beyond the expected ones. `copies`: rows of the metrics for this cell.
`has_band`: whether past weeks give the window a band; `band_low` and `band_high` are its limits for the events of
all source partitions, 0 without one. `is_limited`: expected, and without a band or never empty in past weeks; the
soft limit of missing windows applies to these.
"""
PARTITION_COLUMNS = [
    "source_partition",
    "is_delivered",
    "windows_expected",
    "windows_missing",
    "missing_ratio",
    "expected_events",
    *COUNTS,
    "late_ratio",
    "dropped_ratio",
    "records",
    "unmatched",
]
"""The columns of the frame with one row per source partition.

`records`: the records with a fate in a window, by the manifests. `unmatched`: the difference between their number
and the number in the windows, by fate.
"""
RUN_COLUMNS = [
    "windows",
    "windows_expected",
    "windows_missing",
    "missing_ratio",
    "events",
    "late_ratio",
    "unbanded_late_ratio",
    "dropped_ratio",
    "records_read",
    "unaccounted",
    "is_any_readable",
    "quarantined_ratio",
    "inexact_ratio",
    "duplicate_ratio",
    "undecided_ratio",
    "without_id_ratio",
    "records_with_empty_id",
    "records_without_key",
    "repeated_positions",
    "unmatched_rows",
    "rows",
    "replaced_rows",
    "rows_ratio",
    "chunks_missing",
    "records_per_day",
    "volume_score",
    "files_skipped",
    "files_removed",
    "files_equal",
    "records_misplaced",
    "implausible_ratio",
]
"""The columns of the frame with one row. `unaccounted`: records read that have no fate, or several.

`is_any_readable`: whether a record could be read in the files of the run, or there was none. `quarantined_ratio`:
unreadable records as a share of all records in these files. `inexact_ratio`: the numbers of a column that its
declared type cannot hold, as a share of the records of the source, for the column with most of them.
`undecided_ratio`: share of the records read of which lost logs of a job would show whether they were late.
`without_id_ratio`: share of the records read whose columns of `source.deduplicate_on` are all null.
`records_with_empty_id`: records whose id consists of empty texts. `records_without_key`: records with a null or an
empty text in a column of `source.key`. `repeated_positions`: source partitions and sequences with several records,
if the definition does not remove duplicates. `unmatched_rows`: quarantined or dropped records that their table
lacks, and records that the job counted in its result rows but the rows lack.
`rows`: rows to publish. `replaced_rows`: published rows that they replace; `rows_ratio`: new rows per replaced
row, 1 if none is replaced.

`unbanded_late_ratio`: share of late or dropped events in windows without a band. `volume_score`: the deviation of
`records_per_day` from past runs, by `volume_score`; 0 if each window has a band.
`files_skipped`: damaged input files that were skipped. `files_removed`: input files of published runs of the range
that the source no longer has. `files_equal`: input files with the content of another one.
`records_misplaced`: records that are not in the folder of their event time (`source.partition_filter`).
`implausible_ratio`: records of all input files, also outside the range, whose times are far from all others, as a
share of all records in these files.
"""

NOTHING = RunEvidence()
FATES_OF_TABLE = {QUARANTINE: (Fate.QUARANTINED,), DROPPED: SIDE_OUTPUT}
"""The fates of the records of a table that has a row per record."""
_MIN_RUNS = 5
"""The minimum number of past runs for a volume score; with fewer, the score is 0."""

_MAD_OF_NORMAL = 0.6745  # the MAD of a normal distribution in standard deviations
# If all past runs have the same size, their MAD is 0, and any other size would be infinitely far from them.
_MIN_RELATIVE_MAD = 0.01


def audit_frame(plan: Plan, definition: Definition, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the expected grid joined with the produced windows, in the order of time.

    Each cell of either is in one row.

    Args:
        plan: the plan with the range.
        definition: the definition with the window and the expectations.
        metrics: the run's rows of the metrics table; rows of the same cell are added up and counted.

    Returns:
        `WINDOW_COLUMNS`, without nulls.

    Raises:
        SpecError, ContractError: if the expected events cannot be read, or the metrics lack a column.
    """
    produced = _sum_metrics(metrics)
    expected = expected_cells(plan, definition, produced)
    cells = expected.merge(produced, how="outer", on=CELL, indicator="origin")
    cells = cells.sort_values(CELL[::-1], ignore_index=True)
    cells["is_expected"] = cells["origin"] != "right_only"
    facts = _add_facts(_fill_gaps(cells, definition), plan, definition)
    return facts.assign(has_band=False, is_limited=facts["is_expected"], band_low=0.0, band_high=0.0)[
        WINDOW_COLUMNS
    ]


def _sum_metrics(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell of the metrics."""
    needed = ["source_partition", "window_start", "window_end", *COUNTS]
    missing = [f"\n  {name}: got no such column" for name in needed if name not in metrics.columns]
    if missing:
        msg = f"window metrics break their contract:{''.join(missing)}"
        raise ContractError(msg)
    rows = metrics[["source_partition", *COUNTS]].astype(dict.fromkeys(COUNTS, "int64"))
    rows["window_start_ms"] = times_to_ms(metrics["window_start"])
    rows["window_end_ms"] = times_to_ms(metrics["window_end"])
    rows["copies"] = 1
    rows = rows.astype(CELL_TYPES)
    aggregations = dict.fromkeys(COUNTS, "sum") | {"copies": "sum", "window_end_ms": "max"}
    return rows.groupby(CELL, as_index=False).agg(aggregations)


def _fill_gaps(cells: pd.DataFrame, definition: Definition) -> pd.DataFrame:
    """Replace missing counts with zeros, and missing window ends with computed ones."""
    counts = ["expected_events", *COUNTS, "copies"]
    cells[counts] = cells[counts].fillna(0).astype("int64")
    cells["windows"] = cells["windows"].fillna(1).astype("int64")
    end_ms = cells["window_end_ms"].fillna(cells["window_start_ms"] + definition.metric_windows.size_ms)
    cells["window_end_ms"] = end_ms.astype("int64")
    return cells


def _add_facts(cells: pd.DataFrame, plan: Plan, definition: Definition) -> pd.DataFrame:
    """Add the columns that checks read."""
    start_ms, end_ms = cells["window_start_ms"], cells["window_end_ms"]
    grid_offset_ms = (start_ms - definition.metric_windows.offset_ms) % definition.unit_ms
    cells["window_start"], cells["window_end"] = to_instants(start_ms), to_instants(end_ms)
    cells["last_start"] = to_instants(start_ms + (cells["windows"] - 1) * definition.unit_ms)
    cells["is_present"] = cells["events"] > 0
    cells["in_range"] = start_ms.between(plan.since_ms, plan.until_ms, inclusive="left")
    cells["is_aligned"] = (grid_offset_ms == 0) & (end_ms - start_ms == definition.metric_windows.size_ms)
    cells["is_placed"] = cells["in_range"] & cells["is_aligned"]
    cells["is_counted_on"] = cells["is_expected"] & cells["is_present"]
    cells["is_count_known"] = definition.quality.expected is not None
    cells["unaccounted"] = cells["events"] - cells[COUNTS[1:]].sum(axis=1)
    cells["late_ratio"] = _ratio(cells["late"] + cells["dropped"], cells["events"])
    cells["dropped_ratio"] = _ratio(cells["dropped"], cells["events"])
    is_counted = cells["is_count_known"] & cells["is_expected"]
    cells["surplus"] = (cells["events"] - cells["expected_events"]).clip(lower=0).where(is_counted, 0)
    default_completeness = (cells["is_present"] | ~cells["is_expected"]).astype("float64")
    cells["completeness"] = _ratio(cells["events"], cells["expected_events"]).where(
        is_counted, default_completeness
    )
    return cells


def partitions_frame(windows: pd.DataFrame, manifests: Sequence[Manifest], definition: Definition) -> pd.DataFrame:
    """Return one row per source partition that is expected, or that has a window or a manifest.

    Returns:
        `PARTITION_COLUMNS`. `unmatched` is 0 for sliding windows, because one record counts several times.
    """
    fates = sum_fates(list(manifests))
    by_timing = {str(timing): dict.fromkeys(fates, 0) for timing in TIMING_BY_FATE.values()}
    for fate, timing in TIMING_BY_FATE.items():
        for name, counts in fates.items():
            by_timing[timing][name] += counts.get(fate, 0)
    records = {name: sum(counts[name] for counts in by_timing.values()) for name in fates}
    names = sorted({*windows["source_partition"], *records})
    rows = _sum_windows(windows, windows["source_partition"]).reindex(names, fill_value=0)
    rows["is_delivered"] = (rows["windows_expected"] == 0) | (rows["events"] > 0)
    rows["records"] = [records.get(name, 0) for name in names]
    rows["unmatched"] = 0
    if not definition.metric_windows.has_overlaps:
        for name_of_timing, by_name in by_timing.items():
            counted = pd.Series(by_name, dtype="int64").reindex(names, fill_value=0)
            rows["unmatched"] += (counted - rows[name_of_timing]).abs()
    return _add_ratios(rows).rename_axis("source_partition").reset_index()[PARTITION_COLUMNS]


def run_frame(
    plan: Plan,
    windows: pd.DataFrame,
    manifests: Sequence[Manifest],
    evidence: RunEvidence = NOTHING,
    records: int | None = None,
) -> pd.DataFrame:
    """Return the run as one row of `RUN_COLUMNS`.

    Args:
        plan: the plan of the run.
        windows: the audit frame.
        manifests: the manifests of the finished chunks.
        evidence: further facts about the run.
        records: the number of records in the rows to publish, by their counts; None: not counted.
    """
    row = _add_ratios(_sum_windows(windows, pd.Series("run", index=windows.index)).reindex(["run"], fill_value=0))
    row["windows"] = count_windows(windows)
    row["records_read"] = sum(manifest.events_read for manifest in manifests)
    row["unaccounted"] = sum(abs(_count_unaccounted(manifest)) for manifest in manifests)
    finished = {manifest.chunk_id for manifest in manifests}
    row["chunks_missing"] = sum(chunk.chunk_id not in finished for chunk in plan.chunks)
    row["records_per_day"] = row["records_read"] * DAY_MS / (plan.until_ms - plan.since_ms)
    is_banded = len(windows) > 0 and bool(windows["has_band"].all())
    past = () if is_banded else evidence.past
    row["volume_score"] = volume_score(float(row["records_per_day"].iloc[0]), past)
    unbanded = windows[~windows["has_band"]]
    late, events = int(unbanded[["late", "dropped"]].to_numpy().sum()), int(unbanded["events"].sum())
    row["unbanded_late_ratio"] = late / events if events else 0.0
    fates = _count_by_fate(manifests)
    records_in_range = row["records_read"] - fates[Fate.HALO]
    records_in_files = _count_records_in_files(plan)
    row["is_any_readable"] = records_in_files == 0 or records_in_files > fates[Fate.QUARANTINED]
    row["quarantined_ratio"] = fates[Fate.QUARANTINED] / records_in_files if records_in_files else 0.0
    row["inexact_ratio"] = _inexact_ratio(plan)
    row["duplicate_ratio"] = _ratio(pd.Series([fates[Fate.DUPLICATE]], row.index), records_in_range)
    undecided = sum(fates[fate] for fate in UNDECIDED)
    row["undecided_ratio"] = _ratio(pd.Series([undecided], row.index), records_in_range)
    gaps = sum_gaps(manifests)
    row["without_id_ratio"] = _ratio(pd.Series([gaps[RecordGap.NO_ID]], row.index), records_in_range)
    row["records_with_empty_id"] = gaps[RecordGap.EMPTY_ID]
    row["records_without_key"] = gaps[RecordGap.NO_KEY]
    row["repeated_positions"] = evidence.repeated.positions
    row["unmatched_rows"] = _count_unmatched_rows(plan, manifests, fates, records)
    row["rows"] = _count_staged_rows(manifests, WINDOWS)
    row["replaced_rows"] = evidence.replaced_rows
    is_replacing = row["replaced_rows"] > 0
    row["rows_ratio"] = _ratio(row["rows"], row["replaced_rows"]).where(is_replacing, 1.0)
    row["files_skipped"] = len(plan.skipped)
    row["files_removed"] = plan.removed.count
    row["files_equal"] = plan.equal_files.count
    row["records_misplaced"] = sum(records.records for records in plan.misplaced)
    row["implausible_ratio"] = _implausible_ratio(plan)
    return row.reset_index(drop=True)[RUN_COLUMNS]


def _inexact_ratio(plan: Plan) -> float:
    """Return the largest share of a column; a record can have several numbers in it."""
    most = max((numbers.count for numbers in plan.inexact), default=0)
    return min(1.0, most / plan.prepared["read"]) if most else 0.0


def _count_records_in_files(plan: Plan) -> int:
    """Return the number of records in the files of the run, of all days.

    An unreadable record has no day, so a run quarantines those of whole files.
    """
    return sum(plan.inputs[number].rows for number in {number for chunk in plan.chunks for number in chunk.files})


def _implausible_ratio(plan: Plan) -> float:
    """Return the largest share of one time: a record may have two implausible times."""
    counts, records = Counter[str](), sum(file.rows for file in plan.inputs)
    for times in plan.implausible:
        counts[times.time] += times.records
    return max(counts.values(), default=0) / records if records else 0.0


def _count_by_fate(manifests: Sequence[Manifest]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for manifest in manifests:
        for fates in manifest.fates.values():
            counts.update(fates)
    return counts


def _count_unmatched_rows(
    plan: Plan, manifests: Sequence[Manifest], fates: Mapping[str, int], records: int | None
) -> int:
    """Return the missing or extra rows of tables with a row per record, plus those records of result rows."""
    unmatched = sum(
        abs(_count_staged_rows(manifests, suffix) - sum(fates.get(fate, 0) for fate in own))
        for suffix, own in FATES_OF_TABLE.items()
        if suffix in plan.tables
    )
    record_count = sum(file.records for manifest in manifests for file in manifest.files.get(WINDOWS, ()))
    return unmatched if records is None else unmatched + abs(record_count - records)


def _count_staged_rows(manifests: Sequence[Manifest], suffix: str) -> int:
    return sum(file.rows for manifest in manifests for file in manifest.files.get(suffix, ()))


def _count_unaccounted(manifest: Manifest) -> int:
    totals = {partition: sum(fates.values()) for partition, fates in manifest.fates.items()}
    return count_without_fate(manifest.events_read, totals)


def _sum_windows(windows: pd.DataFrame, by: Any) -> pd.DataFrame:
    """Add up the counts of windows per group."""
    counts = windows[["expected_events", *COUNTS]].assign(
        windows_expected=windows["windows"].where(windows["is_expected"], 0),
        windows_missing=windows["windows"].where(windows["is_expected"] & ~windows["is_present"], 0),
    )
    return counts.groupby(by).sum()


def _add_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(
        missing_ratio=_ratio(rows["windows_missing"], rows["windows_expected"]),
        late_ratio=_ratio(rows["late"] + rows["dropped"], rows["events"]),
        dropped_ratio=_ratio(rows["dropped"], rows["events"]),
    )


def _ratio(part: Any, whole: Any) -> Any:
    """Return the share; 0 if the whole is 0."""
    return (part / whole.where(whole > 0, 1)).where(whole > 0, 0.0).astype("float64")


def volume_score(value: float, past: Sequence[float]) -> float:
    """Return the absolute modified z-score `0.6745 (x - median) / MAD`; 0 with fewer than `_MIN_RUNS` runs.

    Source: Boris Iglewicz and David Hoaglin (1993), How to Detect and Handle Outliers; 3.5 or more is an outlier.
    MAD is the median of the distances from the median, here at least one percent of the median.
    """
    if len(past) < _MIN_RUNS:
        return 0.0
    center = median(past)
    mad = max(median(abs(count - center) for count in past), _MIN_RELATIVE_MAD * abs(center))
    return _MAD_OF_NORMAL * abs(value - center) / mad if mad else float(value != center) * 100
