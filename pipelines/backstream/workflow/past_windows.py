"""Load the windows of past runs from the audit frames that these runs left; no published row is read."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow, list_runs
from backstream.quality.bands import READ_OF_WINDOWS, WEEK_MS, no_past
from backstream.runs.plan import Plan
from backstream.runs.results import undone_run_id
from backstream.runs.status import RunStatus

log = logging.getLogger(__name__)


def load_past_windows(plan: Plan, max_weeks: int) -> pd.DataFrame:
    """Return the windows of the weeks before the range of a plan, each from the run that published it last.

    Runs in another mode, runs that were rolled back, and runs whose files were deleted do not count. A run whose
    file cannot be read does not count either, and a warning names the file.

    Args:
        plan: the plan of the run that is checked.
        max_weeks: weeks before its range.

    Returns:
        The columns `READ_OF_WINDOWS`, one row per source partition and window.
    """
    wanted = Interval(plan.since_ms - max_weeks * WEEK_MS, plan.since_ms)
    found: list[pa.Table] = []
    missing = [wanted]
    # The ledger lists the newest run first, and a run whose range newer runs have published has no current window.
    for row in _list_published_runs(plan, wanted):
        published = Interval(row.since_ms, row.until_ms)
        if not any(published.overlaps(part) for part in missing):
            continue
        windows = _load_windows(plan, row, wanted)
        if windows is not None:
            found.append(windows.append_column("age", pa.repeat(pa.scalar(len(found)), windows.num_rows)))
            missing = [rest for part in missing for rest in part.without([published])]
    if not found:
        return no_past()
    frame = pa.concat_tables(found).to_pandas()
    is_current = frame["age"] == frame.groupby("window_start")["age"].transform("min")
    current: pd.DataFrame = frame.loc[is_current, READ_OF_WINDOWS]
    return current


def _list_published_runs(plan: Plan, wanted: Interval) -> list[RunRow]:
    rows = list_runs(plan.home, plan.dataset)
    undone = {run_id for row in rows if (run_id := undone_run_id(row.run_id))}
    return [
        row
        for row in rows
        if row.status is RunStatus.PUBLISHED
        and row.mode == plan.mode
        and row.run_id not in {plan.run_id, *undone}
        and wanted.overlaps(Interval(row.since_ms, row.until_ms))
    ]


def _load_windows(plan: Plan, row: RunRow, wanted: Interval) -> pa.Table | None:
    """Return the windows of a run; None if its file was deleted or cannot be read."""
    file = plan.home.run(plan.dataset, row.run_id).audit_frame
    if not file.is_file():
        return None
    try:
        return _read_windows(file, wanted)
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = str(error).partition("\n")[0]
        log.warning("the bands leave out past run %s: cannot read %s: %s", row.run_id, file, reason)
        return None


def _read_windows(file: Path, wanted: Interval) -> pa.Table:
    """Return the expected windows of an interval from an audit frame.

    Raises:
        ArrowException, KeyError: when the file is damaged, or lacks a column.
    """
    # A reader of one small file needs no data set and no threads, which take longer than the file.
    with pq.ParquetFile(file) as opened:
        table = opened.read([*READ_OF_WINDOWS, "is_expected"], use_threads=False)
    starts = table["window_start"]
    start, end = (pa.scalar(utc_datetime(at_ms), starts.type) for at_ms in (wanted.start_ms, wanted.end_ms))
    is_wanted = pc.and_(pc.and_(pc.greater_equal(starts, start), pc.less(starts, end)), table["is_expected"])
    return table.filter(is_wanted).select(READ_OF_WINDOWS)
