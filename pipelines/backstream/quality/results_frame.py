"""The results frame: the rows a run would publish beside the events they were made of, per start of a window.

A window that holds events and has no row never fired: the watermark did not reach its end, +inf for the last ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from backstream.definition.model import Definition
from backstream.eventtime.windows import Session
from backstream.quality.expected_events import times_to_ms
from backstream.runs.plan import Mode, Plan
from backstream.runs.table_schemas import RECORD_COUNT, pane_count

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
"""One row per start of a window that has events or rows; of sessions per hour in which some start.

`events`: those that the published value counts. `rows`: to be published, one per key and window. `records`: those
that the rows say they are made of. `unmatched_records`: how many of the events are in no row, or (below 0) in too
many; of sessions 0, since an hour's sessions hold events of the next. `unmatched_panes`: the same for the first,
live and final panes of a replay, taken together.
`repeated_rows`: those of a key and window that has a row already. `cut_sessions`: sessions that begin where an
earlier one of their key has not ended. `is_fired`: whether there is a row, or no event to make one of.
"""

_WINDOW = ["window_start", "window_end"]
_SUMMED = ["rows", "records", "repeated_rows", "cut_sessions"]
_LARGEST = 2**62
"""Numbers of places stay below this, so that none leaves 64 bits."""
_COUNTED = {"first": ["on_time"], "live": ["on_time", "late"], "final": ["events"]}


def results_frame(
    plan: Plan,
    definition: Definition,
    windows: pd.DataFrame,
    chunks: Iterable[pa.Table],
    panes: Iterable[pa.Table] = (),
) -> pd.DataFrame:
    """What the chunks would publish, beside what their windows hold.

    Args:
        plan: says the mode.
        definition: gives the window and which value is published.
        windows: the audit frame.
        chunks: per chunk, in their order, the keys, `window_start`, `window_end` and `record_count` of its rows.
        panes: per chunk the window and the record counts of its panes; none in a recompute.

    Returns:
        `RESULT_COLUMNS`, in order of time, without nulls.
    """
    rows = _rows(definition, chunks, is_whole=_is_whole(plan, definition))
    frame = _events(plan, definition, windows).join(rows, how="outer").fillna(0).astype("int64")
    is_session = isinstance(definition.window.spec(), Session)
    frame["unmatched_records"] = 0 if is_session else frame["events"] - frame["records"]
    frame["unmatched_panes"] = 0
    if plan.mode is Mode.REPLAY and not is_session:
        frame = _with_unmatched_panes(frame, definition, windows, panes)
    # A session lies in the hour of its start, its events in those after it too.
    frame["is_fired"] = (frame["rows"] > 0) | (frame["events"] == 0) | is_session
    frame["window_start"] = pd.to_datetime(frame.index.to_series(), unit="ms", utc=True).dt.as_unit("ms")
    return frame.sort_index().reset_index(drop=True)[RESULT_COLUMNS]


def _with_unmatched_panes(
    frame: pd.DataFrame, definition: Definition, windows: pd.DataFrame, panes: Iterable[pa.Table]
) -> pd.DataFrame:
    """Compare each pane's records with the metrics, which count them in another way."""
    cells_ms = _cells_ms(times_to_ms(windows["window_start"]), definition).rename("cell_ms")
    wanted = pd.DataFrame({pane: windows[names].sum(axis=1) for pane, names in _COUNTED.items()})
    found = [_of_cells(chunk, definition, [pane_count(pane) for pane in _COUNTED]) for chunk in panes]
    held = pd.concat(found).groupby(level=0).sum() if found else pd.DataFrame(columns=list(wanted))
    held.columns = wanted.columns
    off = wanted.groupby(cells_ms).sum().sub(held, fill_value=0).abs().sum(axis=1)
    off = off[off > 0].rename("unmatched_panes").astype("int64")
    both = frame.drop(columns="unmatched_panes").join(off, how="outer").fillna(0)
    return pd.DataFrame(both.astype("int64"))


def _of_cells(chunk: pa.Table, definition: Definition, counts: Sequence[str]) -> pd.DataFrame:
    """Sums of some counts by `cell_ms`, of the rows whose windows the metrics know."""
    windows = chunk.group_by(_WINDOW).aggregate([(name, "sum") for name in counts])
    starts_ms, ends_ms = (_as_ms(windows[name]) for name in _WINDOW)
    rows = pd.DataFrame({name: windows[f"{name}_sum"].to_numpy() for name in counts})
    is_cell = ends_ms - starts_ms == definition.metric_windows.size_ms
    return pd.DataFrame(rows[is_cell].groupby(_cells_ms(starts_ms[is_cell], definition)).sum())


def _as_ms(instants: pa.ChunkedArray) -> Any:
    return instants.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()


def _is_whole(plan: Plan, definition: Definition) -> bool:
    """Whether sessions hold all events: a stream's own may rightly begin where a purged one had not ended."""
    return plan.mode is Mode.RECOMPUTE or definition.backfill.publish == "final"


def _events(plan: Plan, definition: Definition, windows: pd.DataFrame) -> pd.DataFrame:
    published = "final" if plan.mode is Mode.RECOMPUTE else definition.backfill.publish
    events = windows[_COUNTED[published]].sum(axis=1).rename("events")
    cells_ms = _cells_ms(times_to_ms(windows["window_start"]), definition).rename("cell_ms")
    return events[events > 0].groupby(cells_ms[events > 0]).sum().to_frame()


def _cells_ms(starts_ms: Any, definition: Definition) -> Any:
    return starts_ms - (starts_ms - definition.metric_windows.offset_ms) % definition.unit_ms


def _rows(definition: Definition, chunks: Iterable[pa.Table], *, is_whole: bool) -> pd.DataFrame:
    """Counts by `cell_ms`; one chunk is in memory, and of those before it what may reach into it."""
    keys = list(definition.source.key)
    is_session = isinstance(definition.window.spec(), Session)
    open_sessions, found = pd.DataFrame(), []
    for chunk in chunks:
        windows = _windows(chunk, keys)
        lengths_ms = windows["window_end"] - windows["window_start"]
        is_cell = is_session | (lengths_ms == definition.metric_windows.size_ms)
        windows[RECORD_COUNT] = windows[RECORD_COUNT].where(is_cell, 0)
        windows["cut_sessions"] = 0
        if is_session and is_whole:
            rows = _in_milliseconds(chunk, keys)
            windows["cut_sessions"] = _by_window(windows, rows, _cut(open_sessions, rows, keys))
            open_sessions = _last_of_each(pd.concat([open_sessions, rows]), keys)
        windows["cell_ms"] = _cells_ms(windows["window_start"], definition)
        found.append(windows.rename(columns={RECORD_COUNT: "records"}).groupby("cell_ms")[_SUMMED].sum())
    return _summed(found)


def _windows(chunk: pa.Table, keys: Sequence[str]) -> pd.DataFrame:
    """Per window of the rows how many `rows` it has, their records, and the `repeated_rows` among them."""
    counts = chunk.group_by(_WINDOW).aggregate([(RECORD_COUNT, "sum"), ([], "count_all")])
    named = counts.rename_columns({f"{RECORD_COUNT}_sum": RECORD_COUNT, "count_all": "rows"})
    windows = _in_milliseconds(named, ["rows"])
    windows["repeated_rows"] = 0
    numbers = _place_numbers(chunk, keys)
    ordered = np.sort(numbers)
    # To sort them is much faster than to look each up among those before it; that is done when some are the same.
    if (ordered[1:] == ordered[:-1]).any():
        is_repeated = pd.Series(numbers).duplicated()
        windows["repeated_rows"] = _by_window(windows, _in_milliseconds(chunk, []), is_repeated)
    return windows


def _by_window(windows: pd.DataFrame, rows: pd.DataFrame, is_so: Any) -> Any:
    """For how many rows of each window something is so; every window has a row."""
    found = rows[_WINDOW].assign(found=is_so).groupby(_WINDOW, as_index=False)["found"].sum()
    return windows[_WINDOW].merge(found, how="left", on=_WINDOW)["found"].to_numpy().astype("int64")


def _summed(found: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All chunks together. A cell that two of them publish is repeated: each window belongs to one chunk."""
    if not found:
        return pd.DataFrame(columns=_SUMMED, index=pd.Index([], name="cell_ms", dtype="int64"), dtype="int64")
    cells = pd.concat(found).reset_index()
    is_again = cells.duplicated("cell_ms")
    cells.loc[is_again, "repeated_rows"] = cells.loc[is_again, "rows"]
    return cells.groupby("cell_ms")[_SUMMED].sum()


def _in_milliseconds(chunk: pa.Table, keys: Sequence[str]) -> pd.DataFrame:
    """The window and the record count of each row, as numbers, beside some keys."""
    numbers = {name: _as_ms(chunk[name]) for name in _WINDOW} | {RECORD_COUNT: chunk[RECORD_COUNT].to_numpy()}
    return pd.DataFrame(numbers).join(chunk.select(keys).to_pandas()) if keys else pd.DataFrame(numbers)


def _place_numbers(chunk: pa.Table, keys: Sequence[str]) -> Any:
    """A number per row, the same for rows of the same keys and window; a null key is a key like any other.

    Keys never become Python objects: a day may have ten million rows.
    """
    numbers, count = np.zeros(chunk.num_rows, dtype=np.int64), 1
    for name in (*keys, *_WINDOW):
        encoded = chunk[name].combine_chunks().dictionary_encode(null_encoding="encode")
        if count * len(encoded.dictionary) > _LARGEST:
            numbers, distinct = pd.factorize(numbers)
            count = len(distinct)
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
        count *= len(encoded.dictionary)
    return numbers


def _cut(before: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str]) -> Any:
    """Whether a session begins no later than the latest end of those before it: Flink would have merged them."""
    both = pd.concat([before.assign(at=-1), rows.assign(at=range(len(rows)))])
    ordered = both.sort_values(_WINDOW, kind="stable")
    by = ordered.groupby(list(keys), dropna=False) if keys else ordered.groupby(lambda _: 0)
    # Two calls for all keys together: a function per key takes 0.1 ms for each of them.
    ends = by["window_end"].cummax().groupby(by.ngroup().to_numpy()).shift()
    is_cut = (ordered["window_start"] <= ends).astype("int64")
    return is_cut[ordered["at"] >= 0].to_numpy()[ordered.loc[ordered["at"] >= 0, "at"].argsort().to_numpy()]


def _last_of_each(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The session of each key that ends last: all that a later chunk can touch."""
    ordered = rows[[*keys, *_WINDOW]].sort_values("window_end", kind="stable")
    return ordered.drop_duplicates(list(keys), keep="last") if keys else ordered.tail(1)
