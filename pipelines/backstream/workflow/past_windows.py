"""Load the windows of past runs from the audit frames that these runs left; no published row is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.lake.run_rows import list_runs
from backstream.quality.bands import READ_OF_WINDOWS, WEEK_MS, no_past
from backstream.quality.window_rows import clip_rows, starts_ms, steps_ms
from backstream.runs.plan import Plan
from backstream.runs.results import list_undone
from backstream.runs.status import RunStatus
from backstream.text import text_logger

log = text_logger(__name__)


def load_past_windows(plan: Plan, definition: Definition) -> pd.DataFrame:
    """Return the windows of the weeks before the range of a plan, each from the run that published it last.

    Runs in another mode, runs that were rolled back, and runs whose files were deleted do not count, and windows
    of another size or grid do not either. A run whose file cannot be read does not count, and a warning names the
    file.

    Args:
        plan: the plan of the run that is checked.
        definition: its definition, with the windows and the number of weeks.

    Returns:
        The columns `READ_OF_WINDOWS`; each window of a source partition is in one row.
    """
    weeks_ms = definition.quality.bands.max_weeks * WEEK_MS
    wanted = Interval(plan.since_ms - weeks_ms, plan.since_ms)
    found, missing = [no_past()], [wanted]
    # The ledger lists the newest run first, and a run whose range newer runs have published has no current window.
    for row in _list_published_runs(plan, wanted):
        published = Interval(row.since_ms, row.until_ms)
        if not any(published.overlaps(part) for part in missing):
            continue
        windows = _load_windows(plan, row, definition)
        if windows is not None:
            found += [
                clip_rows(windows, part.start_ms, part.end_ms) for part in missing if part.overlaps(published)
            ]
            missing = [rest for part in missing for rest in part.without([published])]
    return pd.concat(found, ignore_index=True) if len(found) > 1 else no_past()


def _list_published_runs(plan: Plan, wanted: Interval) -> list[RunRow]:
    rows = list_runs(plan.home, plan.dataset)
    undone = list_undone(row.run_id for row in rows)
    return [
        row
        for row in rows
        if row.status is RunStatus.PUBLISHED
        and row.mode == plan.mode
        and row.run_id not in {plan.run_id, *undone}
        and wanted.overlaps(Interval(row.since_ms, row.until_ms))
    ]


def _load_windows(plan: Plan, row: RunRow, definition: Definition) -> pd.DataFrame | None:
    """Return the windows of a run; None if its file was deleted or cannot be read."""
    file = plan.home.run(plan.dataset, row.run_id).audit_frame
    if not file.is_file():
        return None
    try:
        return _read_windows(file, definition)
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = str(error).partition("\n")[0]
        log.warning("the bands leave out past run %s: cannot read %s: %s", row.run_id, file, reason)
        return None


def _read_windows(file: Path, definition: Definition) -> pd.DataFrame:
    """Return the expected windows of an audit frame that are of the grid of a definition.

    Raises:
        ArrowException, KeyError: when the file is damaged, or lacks a column.
    """
    # A reader of one small file needs no data set and no threads, which take longer than the file.
    with pq.ParquetFile(file) as opened:
        frame = opened.read([*READ_OF_WINDOWS, "window_end", "is_expected"], use_threads=False).to_pandas()
    window, unit_ms = definition.metric_windows, definition.unit_ms
    first_ms, size_ms = starts_ms(frame), starts_ms(frame, "window_end") - starts_ms(frame)
    is_on_grid = (size_ms == window.size_ms) & ((first_ms - window.offset_ms) % unit_ms == 0)
    is_on_grid &= np.isin(steps_ms(frame), [1, unit_ms])
    expected: pd.DataFrame = frame[is_on_grid & frame["is_expected"]]
    return expected[READ_OF_WINDOWS]
