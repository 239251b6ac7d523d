"""Rules about input: duplicates in the live output, and input that one side lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from backstream.eventtime.instants import instant_text
from backstream.eventtime.windows import Sliding, Tumbling
from backstream.reconcile.frames import END, START
from backstream.reconcile.pairs import TOLERANCE, Mask
from backstream.reconcile.published_side import RUN
from backstream.reconcile.record_counts import FILE, RECORDS, join_file_names
from backstream.reconcile.rules import (
    Evidence,
    UnexplainedWindows,
    explained_by,
    first_evidence,
    plain_number_text,
    record_count_text,
)


@dataclass(frozen=True, slots=True)
class _ExtraRecords:
    """Number of possible extra records by window, and the windows where the live output has exactly these."""

    records: np.ndarray
    fits: Mask

    @property
    def share(self) -> float:
        """Share of the possible windows that match."""
        return float(self.fits.sum()) / max(1, int((self.records > 0).sum()))


@dataclass(frozen=True, slots=True)
class _ExtraRecordCounts:
    """Extra live records as duplicates or as records of unread files; the one with the larger share wins."""

    copies: _ExtraRecords
    unread: _ExtraRecords

    @classmethod
    def from_windows(cls, case: UnexplainedWindows) -> Self | None:
        """Return the extra records; None if no aggregate counts records."""
        counts = case.counts()
        if counts is None:
            return None
        more = counts[1] - counts[0]
        duplicates = _count_copies(case)
        copies = _ExtraRecords(duplicates, (duplicates > 0) & (more == duplicates) & _may_have_copies(case))
        unread = case.in_files(is_read=False)
        # The number of duplicates in unread files is unknown.
        fits = (more > 0) & (more <= unread) if case.definition.source.deduplicate_on else more == unread
        return cls(copies, _ExtraRecords(unread, (unread > 0) & fits))

    def is_copies(self) -> Mask:
        """Return where the live output counts duplicates."""
        wins = self.copies.share >= self.unread.share
        return np.asarray(self.copies.fits & (wins | ~self.unread.fits))


def _count_copies(case: UnexplainedWindows) -> np.ndarray:
    """Return the number of duplicates of each window in the files that its run read."""
    ours = case.pairs.numbers("ours")
    if ours is None or not case.definition.source.deduplicate_on:
        return np.zeros(len(case.rows))
    final = case.pairs.numbers("final") if case.rows["has_panes"].any() else None
    unique = ours if final is None else np.where(case.rows["has_panes"], final, ours)
    return np.asarray(case.in_files(is_read=True) - unique)


def _may_have_copies(case: UnexplainedWindows) -> Mask:
    """Return where the run of a window found duplicates, or where this is unknown."""
    counts = {run_id: case.ours.duplicates(run_id) for run_id in case.rows[RUN].dropna().unique()}
    without = [run_id for run_id, count in counts.items() if count == 0]
    return np.asarray(~case.rows[RUN].isin(without).to_numpy())


_BOUNDS = [START, END]
_MIN_WINDOWS_OF_KEY = 2
_MIN_RECORDS = 5
_MIN_MULTIPLE = 2


def duplicate_rule(case: UnexplainedWindows) -> Evidence:
    """Return the windows where the live output has duplicates of rows, of records, or of all its input."""
    return first_evidence(_duplicate_rows(case), _duplicate_records(case), _multiples(case))


def _duplicate_rows(case: UnexplainedWindows) -> Evidence:
    copies = case.rows["copies"].to_numpy()
    is_repeated = (copies > 1) & case.pairs.all_equal()
    return explained_by(case, is_repeated, lambda number: f"the live system has this row {copies[number]} times")


def _duplicate_records(case: UnexplainedWindows) -> Evidence:
    """Return the windows where the extra live records are the duplicates in the files."""
    extra = _ExtraRecordCounts.from_windows(case)
    if extra is None:
        return first_evidence()
    duplicates, by = extra.copies.records, ", ".join(case.definition.source.deduplicate_on)

    def text(number: int) -> str:
        more = record_count_text(duplicates[number])
        return f"the live system counts {more} more, the number of duplicates by {by} in the input files"

    return explained_by(case, extra.is_copies(), text)


def _multiples(case: UnexplainedWindows) -> Evidence:
    """Return the windows where live values are a multiple in additive aggregates, and equal in all others."""
    pairs, rows = case.pairs, case.rows
    both = (rows["is_ours"] & rows["is_theirs"]).to_numpy()
    if not pairs.adding:
        return first_evidence()
    first = pairs.adding[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = np.round((rows[f"theirs__{first}"] / rows[f"ours__{first}"]).to_numpy(dtype=float))
    fits = both & (multiple >= _MIN_MULTIPLE) & np.isfinite(multiple)
    for name in pairs.shape.aggregates:
        fits &= _is_multiple(case, name, multiple) if name in pairs.adding else pairs.equal(name)
    strong = fits & (_record_counts(case) >= _MIN_RECORDS)
    whole = _whole_windows(case, fits, multiple)

    def text(number: int) -> str:
        times, names = plain_number_text(multiple[number]), ", ".join(pairs.adding)
        return f"{names}: the live value is {times} times the backstream value; all other values are equal"

    return explained_by(case, strong | whole, text)


def _is_multiple(case: UnexplainedWindows, name: str, multiple: np.ndarray) -> Mask:
    ours, theirs = (case.rows[f"{side}__{name}"].to_numpy(dtype=float) for side in ("ours", "theirs"))
    with np.errstate(invalid="ignore"):
        near = np.abs(theirs - multiple * ours) <= TOLERANCE * np.abs(theirs)
    return np.asarray(near | (np.isnan(ours) & np.isnan(theirs)))


def _record_counts(case: UnexplainedWindows) -> np.ndarray:
    """Return our record counts; without them 0, so that only whole windows are evidence."""
    counts = case.pairs.numbers("ours")
    return np.zeros(len(case.rows)) if counts is None else counts


def _whole_windows(case: UnexplainedWindows, fits: Mask, multiple: np.ndarray) -> Mask:
    """Return the windows in which all keys have the same multiple, and enough records together."""
    rows = case.rows[_BOUNDS].assign(fits=fits, multiple=np.where(fits, multiple, np.nan))
    by_window = rows.groupby(_BOUNDS)
    is_one = by_window["fits"].transform("all") & (by_window["multiple"].transform("nunique") == 1)
    return np.asarray(is_one.to_numpy() & (_window_totals(case) >= _MIN_RECORDS))


def _window_totals(case: UnexplainedWindows) -> np.ndarray:
    """Return the number of records in the window over all keys, from our counts or else from the metrics."""
    counts = case.pairs.numbers("ours")
    if counts is not None:
        return case.rows[_BOUNDS].assign(n=counts).groupby(_BOUNDS)["n"].transform("sum").to_numpy()
    events = case.ours.metrics.groupby(_BOUNDS)["events"].sum().rename("n").reset_index()
    totals: pd.Series = case.rows[_BOUNDS].merge(events, on=_BOUNDS, how="left")["n"].fillna(0)
    return totals.to_numpy()


def missing_input_rule(case: UnexplainedWindows) -> Evidence:
    """Return the windows where one side lacks input: whole windows, keys, files, or source partitions."""
    return first_evidence(
        _missing_windows(case),
        _missing_keys(case),
        _missing_files(case),
        _missing_partitions(case),
        _unread_files(case),
        _unknown_input(case),
    )


def _missing_windows(case: UnexplainedWindows) -> Evidence:
    """Return the windows without any live row; consecutive windows are one gap."""
    rows = case.rows[case.pairs.matters]
    has_rows = rows.groupby(_BOUNDS)["is_theirs"].any().sort_index()
    gap = (has_rows != has_rows.shift()).cumsum()
    spans: dict[object, str] = {}
    for _, windows in has_rows[~has_rows].groupby(gap[~has_rows]):
        first, last = windows.index[0][0], windows.index[-1][1]
        spans |= dict.fromkeys(windows.index, f"{instant_text(int(first))} to {instant_text(int(last))}")
    bounds = list(zip(case.rows[START], case.rows[END], strict=True))
    mask = np.array([window in spans for window in bounds], dtype=bool) & case.rows["is_ours"].to_numpy()
    return explained_by(case, mask, lambda number: f"the live system has no windows from {spans[bounds[number]]}")


def _missing_keys(case: UnexplainedWindows) -> Evidence:
    """Return the windows of keys without any live row."""
    keys = case.pairs.shape.places[:-2]
    if not keys:
        return first_evidence()
    by_key = case.rows.groupby(keys, dropna=False)
    is_missing = ~by_key["is_theirs"].transform("any").to_numpy()
    windows = by_key["is_ours"].transform("sum").to_numpy()

    def text(number: int) -> str:
        values = [case.rows[column].to_numpy()[number] for column in keys]
        key = ", ".join(f"{name}={value}" for name, value in zip(case.pairs.shape.keys, values, strict=True))
        return f"the live system has no row with {key}; backstream has {windows[number]:,}"

    return explained_by(case, is_missing & (windows >= _MIN_WINDOWS_OF_KEY), text)


def _missing_files(case: UnexplainedWindows) -> Evidence:
    """Return the windows that lack all records of files; the files are missing in all their windows."""
    counts, held = case.counts(), case.records.rows
    if counts is None or held.empty:
        return first_evidence()
    deficit, copies = np.maximum(counts[0] - counts[1], 0), np.maximum(_count_copies(case), 0)
    numbered = case.rows[case.pairs.shape.places].assign(
        number=np.arange(len(case.rows)), deficit=deficit + copies
    )
    joined = held.merge(numbered, on=case.pairs.shape.places)
    missing = joined[joined[FILE].isin(_always_missing(joined, FILE, RECORDS))]
    totals = missing.groupby("number")[RECORDS].sum().reindex(range(len(case.rows)), fill_value=0).to_numpy()
    files = missing.groupby("number")[FILE].agg(set)

    def text(number: int) -> str:
        duplicates = (
            f", with {plain_number_text(copies[number])} duplicates in all files" if copies[number] else ""
        )
        records = (
            f"{join_file_names(files[number])} has {plain_number_text(totals[number])} in this window{duplicates}"
        )
        return f"the live system lacks {record_count_text(deficit[number])}; {records}"

    return explained_by(case, (deficit > 0) & (deficit <= totals) & (totals <= deficit + copies), text)


def _missing_partitions(case: UnexplainedWindows) -> Evidence:
    """Return the windows that lack all records of source partitions, over all keys and in all windows."""
    counts, metrics = case.counts(), case.ours.metrics
    if counts is None or metrics.empty or not isinstance(case.definition.window.spec(), Tumbling | Sliding):
        return first_evidence()
    deficit = case.rows[_BOUNDS].assign(deficit=counts[0] - counts[1])
    by_window = deficit.groupby(_BOUNDS)["deficit"].sum().reset_index()
    held = metrics[metrics["events"] > 0].merge(by_window, on=_BOUNDS)
    missing = _always_missing(held, "source_partition", "events")
    of_missing = held[held["source_partition"].isin(missing)]
    totals = of_missing.groupby(_BOUNDS)["events"].sum().rename("lacking").reset_index()
    window = case.rows[_BOUNDS].merge(by_window, on=_BOUNDS, how="left").merge(totals, on=_BOUNDS, how="left")
    fits = (window["lacking"] > 0) & (window["lacking"] == window["deficit"])
    mask = fits.to_numpy() & (deficit["deficit"] > 0).to_numpy()
    names, records = ", ".join(sorted(map(str, missing))), window["lacking"].to_numpy(dtype=float)

    def text(number: int) -> str:
        count = record_count_text(records[number])
        return f"the live system lacks {count} of the window, all records of source partition {names}"

    return explained_by(case, mask, text)


def _always_missing(held: pd.DataFrame, unit: str, count: str) -> Sequence[str]:
    """Return the files or source partitions whose records can be missing in all windows where they have any."""
    is_possible = held[count] <= held["deficit"]
    is_always = is_possible.groupby(held[unit]).all()
    return list(is_always[is_always].index)


def _unread_files(case: UnexplainedWindows) -> Evidence:
    """Return the windows where the live output has records of files that arrived after our run."""
    extra, counts = _ExtraRecordCounts.from_windows(case), case.counts()
    if extra is None or counts is None:
        return first_evidence()
    unread, more = extra.unread.records, counts[1] - counts[0]

    def text(number: int) -> str:
        records = f"files that its run did not read have {plain_number_text(unread[number])} in this window"
        return f"backstream lacks {record_count_text(more[number])}; {records} (see backstream stale)"

    return explained_by(case, extra.unread.fits, text)


def _unknown_input(case: UnexplainedWindows) -> Evidence:
    """Return the windows where the live output has more records than all input files."""
    counts = case.counts()
    if counts is None:
        return first_evidence()
    theirs, held = counts[1], case.in_files()

    def text(number: int) -> str:
        count = record_count_text(theirs[number])
        return f"the live system counts {count}, the input files have {plain_number_text(held[number])}"

    return explained_by(case, theirs > held, text)
