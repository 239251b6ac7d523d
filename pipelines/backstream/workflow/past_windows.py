"""Load the windows of past runs from the audit frames that these runs left; no published row is read."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow, list_runs
from backstream.quality.bands import READ_OF_WINDOWS, WEEK_MS, no_past, sum_by_window_start
from backstream.runs.manifest import home_of
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
    """
    wanted = Interval(plan.since_ms - max_weeks * WEEK_MS, plan.since_ms)
    rows = list_runs(home_of(plan), plan.dataset)
    undone = {run_id for row in rows if (run_id := undone_run_id(row.run_id))}
    frames = [
        _load_windows(plan, row, wanted)
        for row in rows
        if row.status is RunStatus.PUBLISHED
        and row.mode == plan.mode
        and row.run_id not in {plan.run_id, *undone}
        and row.since_ms < wanted.end_ms
        and wanted.start_ms < row.until_ms
    ]
    if not frames:
        return no_past()
    # The ledger lists the newest run first, and the newest publication of a window counts.
    return pd.concat(frames, ignore_index=True).drop_duplicates("window_start", ignore_index=True)


def _load_windows(plan: Plan, row: RunRow, wanted: Interval) -> pd.DataFrame:
    file = home_of(plan).run(plan.dataset, row.run_id).audit_frame
    if not file.is_file():
        return no_past()
    try:
        windows = _read_windows(file, wanted)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        log.warning("the bands leave out past run %s: cannot read %s: %s", row.run_id, file, reason)
        return no_past()
    return sum_by_window_start(windows)


def _read_windows(file: Path, wanted: Interval) -> pd.DataFrame:
    """Return the expected windows of an interval from an audit frame.

    Raises:
        ArrowException: when the file is damaged, or lacks a column.
    """
    start, end = utc_datetime(wanted.start_ms), utc_datetime(wanted.end_ms)
    filters = [("window_start", ">=", start), ("window_start", "<", end), ("is_expected", "=", True)]
    # Arrow leaves out a column that the file does not have; `select` raises an error that names it.
    windows = pq.read_table(file, columns=READ_OF_WINDOWS, filters=filters).select(READ_OF_WINDOWS)
    frame: pd.DataFrame = windows.to_pandas()
    return frame
