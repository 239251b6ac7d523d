"""The audit frames: what was expected beside what was produced, per window, per source partition, per run.

A check is a question to one of these small tables, so no check has to read the events again. No cell is
null: row-wise expectations skip nulls, and a check that skips a row has not been made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from backstream.definition.model import Definition
from backstream.errors import ContractError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.records import Fate, count_without_fate
from backstream.eventtime.windows import Tumbling
from backstream.quality.evidence import RunEvidence
from backstream.quality.expected_events import CELL, CELL_TYPES, expected_cells, times_to_ms
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import DROPPED, QUARANTINE, WINDOWS

COUNTS = ["events", "on_time", "late", "dropped", "expired"]
WINDOW_COLUMNS = [
    "source_partition",
    "window_start",
    "window_end",
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
]
"""Columns of the audit frame. Instants are UTC timestamps; ratios lie in 0 to 1, completeness also above.

`is_placed`: in the range and on the grid. `is_counted_on`: expected, and has events.
`late_ratio`: share of events late or dropped; `dropped_ratio`: of those dropped.
`is_count_known`: whether `expected_events` is a count from a timetable; without one it is 0.
`unaccounted`: events that are neither on time, late, dropped nor expired.
`surplus`: events beyond the expected ones. `copies`: rows of the metrics for this one cell.
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
"""`records`: with a fate in a window, by the manifests. `unmatched`: how many of them no window holds with this
fate, or a window holds beyond them."""
RUN_COLUMNS = [
    "windows",
    "windows_expected",
    "windows_missing",
    "missing_ratio",
    "events",
    "late_ratio",
    "dropped_ratio",
    "records_read",
    "unaccounted",
    "is_any_readable",
    "quarantined_ratio",
    "duplicate_ratio",
    "repeated_positions",
    "unmatched_rows",
    "rows",
    "replaced_rows",
    "rows_ratio",
    "chunks_missing",
    "records_per_day",
    "volume_score",
    "files_skipped",
    "files_gone",
]
"""One row. `unaccounted`: records read that have no fate, or more than one.

`is_any_readable`: whether one of the records read could be normalised, if there was any. `repeated_positions`: of
how many source partitions and sequences more than one record came, where the definition looks for no duplicates.
`unmatched_rows`: how many quarantined or dropped records are not in their table, and how many records the job
counted behind its result rows that are not behind them now. `rows`: to be published. `replaced_rows`: of the
published table, which they replace; `rows_ratio`: how many new rows there are for each of them, 1 where there are
none.

`volume_score`: how far `records_per_day` lies from those of past runs, by `quality.volume`.
`files_skipped`: damaged input files that were left out. `files_gone`: those that published runs of the range read
and that the source has no more.
"""

NOTHING = RunEvidence()
_IN_A_WINDOW = (Fate.ON_TIME, Fate.LATE, Fate.DROPPED)


def audit_frame(plan: Plan, definition: Definition, metrics: pd.DataFrame) -> pd.DataFrame:
    """The expected grid beside the produced windows: one row per cell of either, in order of time.

    Args:
        plan: gives the range.
        definition: gives the window, and what is expected.
        metrics: the run's rows of the metrics table; several rows of one cell are summed and counted.

    Returns:
        `WINDOW_COLUMNS`, without nulls.

    Raises:
        SpecError, ContractError: when what is expected cannot be read, or the metrics lack a column.
    """
    produced = _produced(metrics)
    expected = expected_cells(plan, definition, sorted(produced["source_partition"].unique()))
    cells = expected.merge(produced, how="outer", on=CELL, indicator="origin")
    cells = cells.sort_values(CELL[::-1], ignore_index=True)
    cells["is_expected"] = cells["origin"] != "right_only"
    return _judged(_filled(cells, definition), plan, definition)[WINDOW_COLUMNS]


def _produced(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per cell that the metrics know."""
    needed = ["source_partition", "window_start", "window_end", *COUNTS]
    absent = [f"\n  {name}: got no such column" for name in needed if name not in metrics.columns]
    if absent:
        msg = f"window metrics break their contract:{''.join(absent)}"
        raise ContractError(msg)
    rows = metrics[["source_partition", *COUNTS]].astype(dict.fromkeys(COUNTS, "int64"))
    rows["window_start_ms"] = times_to_ms(metrics["window_start"])
    rows["window_end_ms"] = times_to_ms(metrics["window_end"])
    rows["copies"] = 1
    rows = rows.astype(CELL_TYPES)
    how = dict.fromkeys(COUNTS, "sum") | {"copies": "sum", "window_end_ms": "max"}
    return rows.groupby(CELL, as_index=False).agg(how)


def _filled(cells: pd.DataFrame, definition: Definition) -> pd.DataFrame:
    """Zeros where one side knows nothing."""
    whole = ["expected_events", *COUNTS, "copies"]
    cells[whole] = cells[whole].fillna(0).astype("int64")
    end_ms = cells["window_end_ms"].fillna(cells["window_start_ms"] + definition.metric_windows.size_ms)
    cells["window_end_ms"] = end_ms.astype("int64")
    return cells


def _judged(cells: pd.DataFrame, plan: Plan, definition: Definition) -> pd.DataFrame:
    """Add what checks ask for."""
    start_ms, end_ms = cells["window_start_ms"], cells["window_end_ms"]
    off_grid = (start_ms - definition.metric_windows.offset_ms) % definition.unit_ms
    cells["window_start"], cells["window_end"] = _instants(start_ms), _instants(end_ms)
    cells["is_present"] = cells["events"] > 0
    cells["in_range"] = start_ms.between(plan.since_ms, plan.until_ms, inclusive="left")
    cells["is_aligned"] = (off_grid == 0) & (end_ms - start_ms == definition.metric_windows.size_ms)
    cells["is_placed"] = cells["in_range"] & cells["is_aligned"]
    cells["is_counted_on"] = cells["is_expected"] & cells["is_present"]
    cells["is_count_known"] = definition.quality.expected is not None
    cells["unaccounted"] = cells["events"] - cells[COUNTS[1:]].sum(axis=1)
    cells["late_ratio"] = _ratio(cells["late"] + cells["dropped"], cells["events"])
    cells["dropped_ratio"] = _ratio(cells["dropped"], cells["events"])
    is_counted = cells["is_count_known"] & cells["is_expected"]
    cells["surplus"] = (cells["events"] - cells["expected_events"]).clip(lower=0).where(is_counted, 0)
    is_whole = (cells["is_present"] | ~cells["is_expected"]).astype("float64")
    cells["completeness"] = _ratio(cells["events"], cells["expected_events"]).where(is_counted, is_whole)
    return cells


def partitions_frame(windows: pd.DataFrame, manifests: Sequence[Manifest], definition: Definition) -> pd.DataFrame:
    """One row per source partition that was expected, produced a window, or is named by a manifest.

    Returns:
        `PARTITION_COLUMNS`. `unmatched` is 0 for sliding windows, where one record counts several times.
    """
    fates = sum_fates(list(manifests))
    of_fate = {
        fate: {name: counts.get(fate, 0) for name, counts in fates.items()} for fate in map(str, _IN_A_WINDOW)
    }
    records = {name: sum(of_fate[fate][name] for fate in of_fate) for name in fates}
    names = sorted({*windows["source_partition"], *records})
    rows = _summed(windows, windows["source_partition"]).reindex(names, fill_value=0)
    rows["is_delivered"] = (rows["windows_expected"] == 0) | (rows["events"] > 0)
    rows["records"] = [records.get(name, 0) for name in names]
    rows["unmatched"] = 0
    if isinstance(definition.metric_windows, Tumbling):
        for fate, counts in of_fate.items():
            counted = pd.Series(counts, dtype="int64").reindex(names, fill_value=0)
            rows["unmatched"] += (counted - rows[fate]).abs()
    return _with_ratios(rows).rename_axis("source_partition").reset_index()[PARTITION_COLUMNS]


def run_frame(
    plan: Plan,
    windows: pd.DataFrame,
    manifests: Sequence[Manifest],
    evidence: RunEvidence = NOTHING,
    records: int | None = None,
) -> pd.DataFrame:
    """The run as one row of `RUN_COLUMNS`.

    Args:
        plan: what was to be done.
        windows: the audit frame.
        manifests: what the finished chunks left.
        evidence: what else is known of the run.
        records: how many are behind the rows to be published, as these say; None: nobody has looked.
    """
    row = _with_ratios(_summed(windows, pd.Series("run", index=windows.index)).reindex(["run"], fill_value=0))
    row["windows"] = len(windows)
    row["records_read"] = sum(each.events_read for each in manifests)
    row["unaccounted"] = sum(abs(_without_fate(each)) for each in manifests)
    finished = {each.chunk_id for each in manifests}
    row["chunks_missing"] = sum(chunk.chunk_id not in finished for chunk in plan.chunks)
    row["records_per_day"] = row["records_read"] * DAY_MS / (plan.until_ms - plan.since_ms)
    row["volume_score"] = volume_score(float(row["records_per_day"].iloc[0]), evidence.past)
    fates = _by_fate(manifests)
    of_run = row["records_read"] - fates[Fate.HALO]
    row["is_any_readable"] = (of_run == 0) | (of_run > fates[Fate.QUARANTINED])
    row["quarantined_ratio"] = _ratio(pd.Series([fates[Fate.QUARANTINED]], row.index), of_run)
    row["duplicate_ratio"] = _ratio(pd.Series([fates[Fate.DUPLICATE]], row.index), of_run)
    row["repeated_positions"] = evidence.repeated.positions
    row["unmatched_rows"] = _unmatched_rows(plan, manifests, fates, records)
    row["rows"] = _staged_rows(manifests, WINDOWS)
    row["replaced_rows"] = evidence.replaced_rows
    is_replacing = row["replaced_rows"] > 0
    row["rows_ratio"] = _ratio(row["rows"], row["replaced_rows"]).where(is_replacing, 1.0)
    row["files_skipped"] = len(plan.skipped)
    row["files_gone"] = plan.gone.count
    return row.reset_index(drop=True)[RUN_COLUMNS]


def _by_fate(manifests: Sequence[Manifest]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for manifest in manifests:
        for fates in manifest.fates.values():
            counts.update(fates)
    return counts


def _unmatched_rows(
    plan: Plan, manifests: Sequence[Manifest], fates: Mapping[str, int], records: int | None
) -> int:
    """Rows that lack, or are too many, in the tables with a row per record; and records behind the results."""
    kept = {QUARANTINE: Fate.QUARANTINED, DROPPED: Fate.DROPPED}
    off = sum(
        abs(_staged_rows(manifests, suffix) - fates.get(fate, 0))
        for suffix, fate in kept.items()
        if suffix in plan.tables
    )
    counted = sum(file.records for each in manifests for file in each.files.get(WINDOWS, ()))
    return off if records is None else off + abs(counted - records)


def _staged_rows(manifests: Sequence[Manifest], suffix: str) -> int:
    return sum(file.rows for each in manifests for file in each.files.get(suffix, ()))


def _without_fate(manifest: Manifest) -> int:
    totals = {partition: sum(fates.values()) for partition, fates in manifest.fates.items()}
    return count_without_fate(manifest.events_read, totals)


def _summed(windows: pd.DataFrame, by: Any) -> pd.DataFrame:
    """Counts of the windows, per group."""
    counted = windows[["expected_events", *COUNTS]].assign(
        windows_expected=windows["is_expected"].astype("int64"),
        windows_missing=(windows["is_expected"] & ~windows["is_present"]).astype("int64"),
    )
    return counted.groupby(by).sum()


def _with_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(
        missing_ratio=_ratio(rows["windows_missing"], rows["windows_expected"]),
        late_ratio=_ratio(rows["late"] + rows["dropped"], rows["events"]),
        dropped_ratio=_ratio(rows["dropped"], rows["events"]),
    )


def _ratio(part: Any, whole: Any) -> Any:
    """Share, 0 of nothing."""
    return (part / whole.where(whole > 0, 1)).where(whole > 0, 0.0).astype("float64")


def _instants(values_ms: Any) -> Any:
    return pd.to_datetime(values_ms, unit="ms", utc=True).dt.as_unit("ms")


LEAST_RUNS = 5
"""Fewer past runs are no history: nothing is far from them."""

_NORMAL = 0.6745  # the MAD of a normal distribution is so many standard deviations
_LEAST_MAD = 0.01  # of the median: runs of one size, to the event, would make any other infinitely far


def volume_score(value: float, past: Sequence[float]) -> float:
    """The modified z-score `0.6745 (x - median) / MAD`, without its sign; 0 with fewer than `LEAST_RUNS` runs.

    Boris Iglewicz and David Hoaglin (1993), How to Detect and Handle Outliers, who call 3.5 and more an outlier.
    MAD is the median of the distances from the median, here at least one percent of it.
    """
    if len(past) < LEAST_RUNS:
        return 0.0
    middle = median(past)
    spread = max(median(abs(each - middle) for each in past), _LEAST_MAD * abs(middle))
    return _NORMAL * abs(value - middle) / spread if spread else float(value != middle) * 100
