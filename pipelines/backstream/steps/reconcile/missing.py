"""Missing input: records that one side has read and the other has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from backstream.core.instants import instant_text
from backstream.core.windows import Sliding, Tumbling
from backstream.steps.reconcile.frames import END, START
from backstream.steps.reconcile.records import FILE, RECORDS, names
from backstream.steps.reconcile.rules import Case, Evidence, first_of, number, records, told
from backstream.steps.reconcile.surplus import Surpluses, copies_in_files

_BOUNDS = [START, END]
_LEAST_WINDOWS_OF_KEY = 2


def missing_input(case: Case) -> Evidence:
    """The windows where either side lacks records: whole windows, keys, files, partitions."""
    return first_of(
        _gaps(case),
        _absent_keys(case),
        _absent_files(case),
        _absent_partitions(case),
        _unread(case),
        _beyond(case),
    )


def _gaps(case: Case) -> Evidence:
    """Windows of which theirs has no row at all; windows that follow one another are one gap."""
    rows = case.rows[case.pairs.matters]
    is_there = rows.groupby(_BOUNDS)["is_theirs"].any().sort_index()
    gap = (is_there != is_there.shift()).cumsum()
    spans: dict[object, str] = {}
    for _, windows in is_there[~is_there].groupby(gap[~is_there]):
        first, last = windows.index[0][0], windows.index[-1][1]
        spans |= dict.fromkeys(windows.index, f"{instant_text(int(first))} to {instant_text(int(last))}")
    places = list(zip(case.rows[START], case.rows[END], strict=True))
    mask = np.array([place in spans for place in places], dtype=bool) & case.rows["is_ours"].to_numpy()
    return told(case, mask, lambda place: f"theirs has no window at all from {spans[places[place]]}")


def _absent_keys(case: Case) -> Evidence:
    keys = case.pairs.shape.places[:-2]
    if not keys:
        return first_of()
    by_key = case.rows.groupby(keys, dropna=False)
    is_absent = ~by_key["is_theirs"].transform("any").to_numpy()
    windows = by_key["is_ours"].transform("sum").to_numpy()

    def text(place: int) -> str:
        values = [case.rows[column].to_numpy()[place] for column in keys]
        said = ", ".join(f"{name}={value}" for name, value in zip(case.pairs.shape.keys, values, strict=True))
        return f"theirs has no row of {said}; ours has {windows[place]:,}"

    return told(case, is_absent & (windows >= _LEAST_WINDOWS_OF_KEY), text)


def _absent_files(case: Case) -> Evidence:
    """Files whose records theirs lacks in every window that they touch; a window may lack several."""
    counts, held = case.counts(), case.records.rows
    if counts is None or held.empty:
        return first_of()
    deficit, copies = np.maximum(counts[0] - counts[1], 0), np.maximum(copies_in_files(case), 0)
    known = {"place": np.arange(len(case.rows)), "deficit": deficit + copies}
    found = held.merge(case.rows[case.pairs.shape.places].assign(**known), on=case.pairs.shape.places)
    files = found[found[FILE].isin(_always(found, FILE, RECORDS))]
    totals = files.groupby("place")[RECORDS].sum().reindex(range(len(case.rows)), fill_value=0).to_numpy()
    of_row = files.groupby("place")[FILE].agg(set)

    def text(place: int) -> str:
        copied = f", {number(copies[place])} of all here are copies" if copies[place] else ""
        held = f"{names(of_row[place])} holds {number(totals[place])} here{copied}"
        return f"theirs lacks {records(deficit[place])}; {held}"

    return told(case, (deficit > 0) & (deficit <= totals) & (totals <= deficit + copies), text)


def _absent_partitions(case: Case) -> Evidence:
    """Source partitions whose records theirs lacks, over all keys of a window, wherever they delivered."""
    counts, metrics = case.counts(), case.ours.metrics
    if counts is None or metrics.empty or not isinstance(case.definition.window.spec(), Tumbling | Sliding):
        return first_of()
    deficit = case.rows[_BOUNDS].assign(deficit=counts[0] - counts[1])
    by_window = deficit.groupby(_BOUNDS)["deficit"].sum().reset_index()
    held = metrics[metrics["events"] > 0].merge(by_window, on=_BOUNDS)
    lacking = _always(held, "source_partition", "events")
    mine = held[held["source_partition"].isin(lacking)]
    totals = mine.groupby(_BOUNDS)["events"].sum().rename("lacking").reset_index()
    window = case.rows[_BOUNDS].merge(by_window, on=_BOUNDS, how="left").merge(totals, on=_BOUNDS, how="left")
    is_so = (window["lacking"] > 0) & (window["lacking"] == window["deficit"])
    mask = is_so.to_numpy() & (deficit["deficit"] > 0).to_numpy()
    said, gone = ", ".join(sorted(map(str, lacking))), window["lacking"].to_numpy(dtype=float)

    def text(place: int) -> str:
        return f"theirs lacks {records(gone[place])} of the window, all that partition {said} has here"

    return told(case, mask, text)


def _always(held: pd.DataFrame, unit: str, count: str) -> Sequence[str]:
    """The files, or partitions, of which theirs can lack all records wherever they have any."""
    is_possible = held[count] <= held["deficit"]
    found = is_possible.groupby(held[unit]).all()
    return list(found[found].index)


def _unread(case: Case) -> Evidence:
    """Records in files that came after the run, which theirs has and ours lacks."""
    surpluses, counts = Surpluses.of(case), case.counts()
    if surpluses is None or counts is None:
        return first_of()
    new, more = surpluses.unread.records, counts[1] - counts[0]

    def text(place: int) -> str:
        held = f"files that its run has not read hold {number(new[place])} here"
        return f"ours lacks {records(more[place])}; {held}; backstream stale names them"

    return told(case, surpluses.unread.fits, text)


def _beyond(case: Case) -> Evidence:
    """More records than there are: input of theirs that is no input of ours."""
    counts = case.counts()
    if counts is None:
        return first_of()
    theirs, held = counts[1], case.in_files()

    def text(place: int) -> str:
        return f"theirs counts {records(theirs[place])}, and the input files hold {number(held[place])}"

    return told(case, theirs > held, text)
