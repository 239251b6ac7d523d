"""Build the results frame: the rows that a run would publish and their events, per window start.

If a window has events and no row, it never fired: the watermark did not reach its end, or +inf for the last
windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition
from backstream.eventtime.windows import Session
from backstream.quality.window_rows import times_to_ms
from backstream.runs.plan import Mode, Plan
from backstream.runs.table_schemas import RECORD_COUNT, pane_count_column
from backstream.structured_streaming.batch_table import load_batches

RESULT_COLUMNS = [
    "window_start",
    "events",
    "rows",
    "records",
    "unmatched_records",
    "unmatched_panes",
    "repeated_rows",
    "cut_sessions",
    "is_fired",
]
"""The columns of the frame with one row per window start that has events or rows; sessions are grouped by hour.

`events`: the events that the published value counts. `rows`: the rows to publish, one per key and window.
`records`: the records in these rows and in those that `having` withholds, by their counts.
`unmatched_records`: events that no row counts, or (negative) that rows count repeatedly; 0 for sessions, because
the sessions of an hour have events of the next one.
`unmatched_panes`: the same for the first, live, and final panes of a replay, added up.
`repeated_rows`: rows of a key and window that already has a row. `cut_sessions`: sessions that begin before the
end of an earlier session of the same key. `is_fired`: whether there is a row, or no event for a row.
"""

_WINDOW = ["window_start", "window_end"]
_SUM_COLUMNS = ["rows", "records", "repeated_rows", "cut_sessions"]
_MAX_CODE = 2**62
"""Codes of rows stay below this number, so that they fit into 64 bits."""
_COUNTS_BY_PANE = {"first": ["on_time"], "live": ["on_time", "late"], "final": ["events"]}


def results_frame(
    plan: Plan,
    definition: Definition,
    windows: pd.DataFrame,
    chunks: Iterable[pa.Table],
    panes: Iterable[pa.Table] = (),
    withheld: Iterable[pa.Table] = (),
) -> pd.DataFrame:
    """Return the rows that the chunks would publish, compared with the events of their windows.

    Args:
        plan: the plan with the mode.
        definition: the definition with the window and the published pane.
        windows: the audit frame.
        chunks: per chunk, in their order, the keys, `window_start`, `window_end`, and `record_count` of its rows.
        panes: per chunk the windows and the record counts of its panes; none in a recompute.
        withheld: per chunk the windows with rows that are not published, and the count of these rows and records.

    Returns:
        `RESULT_COLUMNS`, in the order of time, without nulls.
    """
    rows = _count_rows(definition, chunks, is_whole=_has_whole_sessions(plan, definition))
    frame = _count_events(plan, definition, windows).join(rows, how="outer")
    frame = frame.join(_count_withheld(definition, withheld), how="outer").fillna(0).astype("int64")
    frame["records"] += frame["withheld_records"]
    is_session = isinstance(definition.window.spec(), Session)
    frame["unmatched_records"] = 0 if is_session else frame["events"] - frame["records"]
    frame["unmatched_panes"] = 0
    if plan.mode is Mode.REPLAY and not is_session and not definition.process:
        frame = _add_unmatched_panes(frame, definition, windows, panes)
    # A session belongs to the hour of its start, but it may have events of later hours.
    is_fired = (frame["rows"] > 0) | (frame["withheld_rows"] > 0)
    frame["is_fired"] = is_fired | (frame["events"] == 0) | is_session
    frame["window_start"] = pd.to_datetime(frame.index.to_series(), unit="ms", utc=True).dt.as_unit("ms")
    return frame.sort_index().reset_index(drop=True)[RESULT_COLUMNS]


def _add_unmatched_panes(
    frame: pd.DataFrame, definition: Definition, windows: pd.DataFrame, panes: Iterable[pa.Table]
) -> pd.DataFrame:
    """Compare the records of each pane with the metrics, which count them independently."""
    cells_ms = _cell_starts_ms(times_to_ms(windows["window_start"]), definition).rename("cell_ms")
    expected = pd.DataFrame({pane: windows[names].sum(axis=1) for pane, names in _COUNTS_BY_PANE.items()})
    expected.loc[_are_open(windows, definition), "first"] = 0
    sums = [
        _sum_by_cell(chunk, definition, [pane_count_column(pane) for pane in _COUNTS_BY_PANE]) for chunk in panes
    ]
    actual = pd.concat(sums).groupby(level=0).sum() if sums else pd.DataFrame(columns=list(expected))
    actual.columns = expected.columns
    unmatched = expected.groupby(cells_ms).sum().sub(actual, fill_value=0).abs().sum(axis=1)
    unmatched = unmatched[unmatched > 0].rename("unmatched_panes").astype("int64")
    joined = frame.drop(columns="unmatched_panes").join(unmatched, how="outer").fillna(0)
    return pd.DataFrame(joined.astype("int64"))


def _count_withheld(definition: Definition, chunks: Iterable[pa.Table]) -> pd.DataFrame:
    """Return the counts of rows that are not published by `cell_ms`, and of their records."""
    names = {"rows": "withheld_rows", RECORD_COUNT: "withheld_records"}
    sums = [_sum_by_cell(chunk, definition, list(names)) for chunk in chunks]
    if not sums:
        return pd.DataFrame(
            columns=list(names.values()), index=pd.Index([], name="cell_ms", dtype="int64"), dtype="int64"
        )
    return pd.DataFrame(pd.concat(sums).groupby(level=0).sum().rename(columns=names).rename_axis("cell_ms"))


def _sum_by_cell(chunk: pa.Table, definition: Definition, counts: Sequence[str]) -> pd.DataFrame:
    """Return sums of some counts by `cell_ms`, of the windows that have the size of the metric windows."""
    windows = chunk.group_by(_WINDOW).aggregate([(name, "sum") for name in counts])
    starts_ms, ends_ms = (_to_ms(windows[name]) for name in _WINDOW)
    rows = pd.DataFrame({name: windows[f"{name}_sum"].to_numpy() for name in counts})
    is_cell = ends_ms - starts_ms == definition.metric_windows.size_ms
    return pd.DataFrame(rows[is_cell].groupby(_cell_starts_ms(starts_ms[is_cell], definition)).sum())


def _to_ms(instants: pa.ChunkedArray) -> Any:
    return instants.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // 1_000


def _has_whole_sessions(plan: Plan, definition: Definition) -> bool:
    """Return whether sessions contain all events; live ones may rightly start before the end of a purged one."""
    return plan.mode is Mode.RECOMPUTE or definition.backfill.publish == "final"


def _count_events(plan: Plan, definition: Definition, windows: pd.DataFrame) -> pd.DataFrame:
    published = "final" if plan.mode is Mode.RECOMPUTE else definition.backfill.publish
    events = windows[_COUNTS_BY_PANE[published]].sum(axis=1).rename("events")
    if published == "first":
        events = events.where(~_are_open(windows, definition), 0)
    cells_ms = _cell_starts_ms(times_to_ms(windows["window_start"]), definition).rename("cell_ms")
    return events[events > 0].groupby(cells_ms[events > 0]).sum().to_frame()


def _are_open(windows: pd.DataFrame, definition: Definition) -> Any:
    """Return for each window whether it was open at the end of the logs of a job, which had not emitted it yet."""
    starts_ms = times_to_ms(windows["window_start"])
    if not definition.watermark.batches:
        return np.zeros(len(starts_ms), dtype=bool)
    until_ms = load_batches(definition.watermark.batches).emitted_until_ms
    return (starts_ms + definition.metric_windows.size_ms > until_ms).to_numpy()


def _cell_starts_ms(starts_ms: Any, definition: Definition) -> Any:
    return starts_ms - (starts_ms - definition.metric_windows.offset_ms) % definition.unit_ms


def _count_rows(definition: Definition, chunks: Iterable[pa.Table], *, is_whole: bool) -> pd.DataFrame:
    """Return counts by `cell_ms`; in memory are one chunk and the sessions that may continue into it."""
    keys = list(definition.row_key)
    is_session = isinstance(definition.window.spec(), Session)
    open_sessions, sums = pd.DataFrame(), []
    for chunk in chunks:
        windows = _count_by_window(chunk, keys)
        lengths_ms = windows["window_end"] - windows["window_start"]
        is_cell = is_session | (lengths_ms == definition.metric_windows.size_ms)
        windows[RECORD_COUNT] = windows[RECORD_COUNT].where(is_cell, 0)
        windows["cut_sessions"] = 0
        if is_session and is_whole:
            rows = _in_milliseconds(chunk, keys)
            # Sessions of a job have microseconds, so that two may meet in a millisecond.
            sessions = rows.assign(window_end=rows["window_end"] - bool(definition.watermark.batches))
            windows["cut_sessions"] = _count_in_windows(
                windows, rows, _find_cut_sessions(open_sessions, sessions, keys)
            )
            open_sessions = _last_sessions(pd.concat([open_sessions, sessions]), keys)
        windows["cell_ms"] = _cell_starts_ms(windows["window_start"], definition)
        sums.append(windows.rename(columns={RECORD_COUNT: "records"}).groupby("cell_ms")[_SUM_COLUMNS].sum())
    return _sum_chunks(sums)


def _count_by_window(chunk: pa.Table, keys: Sequence[str]) -> pd.DataFrame:
    """Return, per window, the number of `rows`, of their records, and of `repeated_rows`."""
    counts = chunk.group_by(_WINDOW).aggregate([(RECORD_COUNT, "sum"), ([], "count_all")])
    renamed = counts.rename_columns({f"{RECORD_COUNT}_sum": RECORD_COUNT, "count_all": "rows"})
    windows = _in_milliseconds(renamed, ["rows"])
    windows["repeated_rows"] = 0
    codes = _row_codes(chunk, keys)
    sorted_codes = np.sort(codes)
    # Sorting is much faster than `duplicated`, which is needed only if two codes are equal.
    if (sorted_codes[1:] == sorted_codes[:-1]).any():
        is_repeated = pd.Series(codes).duplicated()
        windows["repeated_rows"] = _count_in_windows(windows, _in_milliseconds(chunk, []), is_repeated)
    return windows


def _count_in_windows(windows: pd.DataFrame, rows: pd.DataFrame, flags: Any) -> Any:
    """Return, per window, the number of rows whose flag is set; each row is in one of the windows."""
    counts = rows[_WINDOW].assign(count=flags).groupby(_WINDOW, as_index=False)["count"].sum()
    return windows[_WINDOW].merge(counts, how="left", on=_WINDOW)["count"].to_numpy().astype("int64")


def _sum_chunks(sums: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the sums of all chunks; a cell of two chunks has repeated rows, because a window has one chunk."""
    if not sums:
        return pd.DataFrame(columns=_SUM_COLUMNS, index=pd.Index([], name="cell_ms", dtype="int64"), dtype="int64")
    cells = pd.concat(sums).reset_index()
    is_repeated = cells.duplicated("cell_ms")
    cells.loc[is_repeated, "repeated_rows"] = cells.loc[is_repeated, "rows"]
    return cells.groupby("cell_ms")[_SUM_COLUMNS].sum()


def _in_milliseconds(chunk: pa.Table, keys: Sequence[str]) -> pd.DataFrame:
    """Return the window and the record count of each row as numbers, with some key columns."""
    numbers = {name: _to_ms(chunk[name]) for name in _WINDOW} | {RECORD_COUNT: chunk[RECORD_COUNT].to_numpy()}
    return pd.DataFrame(numbers).join(chunk.select(keys).to_pandas()) if keys else pd.DataFrame(numbers)


def _row_codes(chunk: pa.Table, keys: Sequence[str]) -> Any:
    """Return a number per row, equal for rows of the same keys and window; a null key is a key like any other.

    Keys never become Python objects, and columns are not copied, because a day may have ten million rows.
    """
    starts, ends = (chunk[name].cast(pa.int64()) for name in _WINDOW)
    codes, count = np.zeros(chunk.num_rows, dtype=np.int64), 1
    # Most windows have the same length, so that it adds nothing to the codes.
    for column in (*map(chunk.column, keys), starts, pc.subtract(ends, starts)):
        column_codes, least, column_count = _range_codes(column) or _dictionary_codes(column)
        if count * column_count > _MAX_CODE:
            codes, distinct = pd.factorize(codes)
            count = len(distinct)
        if count * column_count > _MAX_CODE:
            column_codes, least, column_count = _dictionary_codes(column)
        count *= column_count
        if column_count > 1:
            codes *= column_count
            _add_codes(codes, column_codes, least)
    return codes


def _add_codes(codes: Any, column_codes: pa.ChunkedArray, least: int) -> None:
    begin = 0
    for part in column_codes.chunks:
        codes[begin : begin + len(part)] += part.to_numpy() - least
        begin += len(part)


def _range_codes(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int, int] | None:
    """Return integers as their own codes, the least of them, and the number of integers up to the greatest.

    None for other columns, and for those with nulls. This takes a fraction of the time of a dictionary.
    """
    if column.null_count or not len(column) or not pa.types.is_signed_integer(column.type):
        return None
    ends = pc.min_max(column)
    least, count = ends["min"].as_py(), ends["max"].as_py() - ends["min"].as_py() + 1
    return (column.cast(pa.int64()), least, count) if count <= _MAX_CODE else None


def _dictionary_codes(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int, int]:
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return pa.chunked_array([encoded.indices.cast(pa.int64())]), 0, len(encoded.dictionary)


def _find_cut_sessions(earlier: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str]) -> Any:
    """Return, per session, whether it begins by the latest end of earlier ones: Flink would have merged them."""
    sessions = pd.concat([earlier.assign(position=-1), rows.assign(position=range(len(rows)))])
    ordered = sessions.sort_values(_WINDOW, kind="stable")
    by_key = ordered.groupby(list(keys), dropna=False) if keys else ordered.groupby(lambda _: 0)
    # Two calls handle all keys together, because a function per key takes 0.1 ms for each key.
    ends = by_key["window_end"].cummax().groupby(by_key.ngroup().to_numpy()).shift()
    is_cut = (ordered["window_start"] <= ends).astype("int64")
    is_row = ordered["position"] >= 0
    return is_cut[is_row].to_numpy()[ordered.loc[is_row, "position"].argsort().to_numpy()]


def _last_sessions(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the session of each key that ends last; a later chunk can touch no other session."""
    ordered = rows[[*keys, *_WINDOW]].sort_values("window_end", kind="stable")
    return ordered.drop_duplicates(list(keys), keep="last") if keys else ordered.tail(1)
