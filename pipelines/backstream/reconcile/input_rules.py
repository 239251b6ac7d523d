"""Records that theirs has more: copies in files that the run has read, or records of files that it has not."""

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
    first_position,
    plain_number_text,
    record_count_text,
)


@dataclass(frozen=True, slots=True)
class ExtraRecords:
    """How many records of a kind each window could have more, and where theirs has just these."""

    records: np.ndarray
    fits: Mask

    @property
    def share(self) -> float:
        """In how much of the windows that it could be about it fits."""
        return float(self.fits.sum()) / max(1, int((self.records > 0).sum()))


@dataclass(frozen=True, slots=True)
class ExtraRecordCounts:
    """What theirs has more; where copies and unread files fit, the kind that fits more of its windows wins."""

    copies: ExtraRecords
    unread: ExtraRecords

    @classmethod
    def from_windows(cls, case: UnexplainedWindows) -> Self | None:
        """None where nothing counts records."""
        counts = case.counts()
        if counts is None:
            return None
        more = counts[1] - counts[0]
        removed = count_copies(case)
        copies = ExtraRecords(removed, (removed > 0) & (more == removed) & _met_copies(case))
        unread = case.in_files(is_read=False)
        # Nobody has looked for copies in files that no run has read.
        most = (more > 0) & (more <= unread) if case.definition.source.deduplicate_on else more == unread
        return cls(copies, ExtraRecords(unread, (unread > 0) & most))

    def is_copies(self) -> Mask:
        """Where theirs has counted copies."""
        wins = self.copies.share >= self.unread.share
        return np.asarray(self.copies.fits & (wins | ~self.unread.fits))


def count_copies(case: UnexplainedWindows) -> np.ndarray:
    """How many records of each window, in the files that its run has read, are copies and do not count."""
    ours = case.pairs.numbers("ours")
    if ours is None or not case.definition.source.deduplicate_on:
        return np.zeros(len(case.rows))
    final = case.pairs.numbers("final") if case.rows["has_panes"].any() else None
    whole = ours if final is None else np.where(case.rows["has_panes"], final, ours)
    return np.asarray(case.in_files(is_read=True) - whole)


def _met_copies(case: UnexplainedWindows) -> Mask:
    """Whether the run of a window met copies at all, as far as that is known."""
    known = {run_id: case.ours.duplicates(run_id) for run_id in case.rows[RUN].dropna().unique()}
    has_none = [run_id for run_id, count in known.items() if count == 0]
    return np.asarray(~case.rows[RUN].isin(has_none).to_numpy())


LEAST_RECORDS = 5
_LEAST_MULTIPLE = 2


def duplicate_rule(case: UnexplainedWindows) -> Evidence:
    """The windows where theirs has copies: of rows, of records, or of all its input."""
    return first_position(_same_rows(case), _removed_copies(case), _multiples(case))


def _same_rows(case: UnexplainedWindows) -> Evidence:
    copies = case.rows["copies"].to_numpy()
    is_repeated = (copies > 1) & case.pairs.all_equal()
    return explained_by(case, is_repeated, lambda place: f"theirs has this row {copies[place]} times")


def _removed_copies(case: UnexplainedWindows) -> Evidence:
    """Records that the files hold beyond those that count once."""
    surpluses = ExtraRecordCounts.from_windows(case)
    if surpluses is None:
        return first_position()
    removed, by = surpluses.copies.records, ", ".join(case.definition.source.deduplicate_on)

    def text(place: int) -> str:
        more = record_count_text(removed[place])
        return f"theirs has {more} more, as many as copies by {by} are in the input files"

    return explained_by(case, surpluses.is_copies(), text)


def _multiples(case: UnexplainedWindows) -> Evidence:
    """Where theirs is m times ours in all that adds up, and equal in all else."""
    pairs, rows = case.pairs, case.rows
    both = (rows["is_ours"] & rows["is_theirs"]).to_numpy()
    if not pairs.adding:
        return first_position()
    first = pairs.adding[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = np.round((rows[f"theirs__{first}"] / rows[f"ours__{first}"]).to_numpy(dtype=float))
    fits = both & (multiple >= _LEAST_MULTIPLE) & np.isfinite(multiple)
    for name in pairs.shape.aggregates:
        fits &= _is_multiple(case, name, multiple) if name in pairs.adding else pairs.equal(name)
    strong = fits & (_weights(case) >= LEAST_RECORDS)
    whole = _whole_windows(case, fits, multiple)

    def text(place: int) -> str:
        times = plain_number_text(multiple[place])
        return f"theirs is {times} times ours in {', '.join(pairs.adding)}, and equal in all else"

    return explained_by(case, strong | whole, text)


def _is_multiple(case: UnexplainedWindows, name: str, multiple: np.ndarray) -> Mask:
    ours, theirs = (case.rows[f"{side}__{name}"].to_numpy(dtype=float) for side in ("ours", "theirs"))
    with np.errstate(invalid="ignore"):
        near = np.abs(theirs - multiple * ours) <= TOLERANCE * np.abs(theirs)
    return np.asarray(near | (np.isnan(ours) & np.isnan(theirs)))


def _weights(case: UnexplainedWindows) -> np.ndarray:
    """How many records a window has: by our count, else 0, so that only whole windows speak."""
    counted = case.pairs.numbers("ours")
    return np.zeros(len(case.rows)) if counted is None else counted


def _whole_windows(case: UnexplainedWindows, fits: Mask, multiple: np.ndarray) -> Mask:
    """Windows in which every key fits one multiple, with enough records together."""
    bounds = ["start_ms", "end_ms"]
    places = case.rows[bounds].assign(fits=fits, multiple=np.where(fits, multiple, np.nan))
    by_window = places.groupby(bounds)
    is_one = by_window["fits"].transform("all") & (by_window["multiple"].transform("nunique") == 1)
    return np.asarray(is_one.to_numpy() & (_totals(case) >= LEAST_RECORDS))


def _totals(case: UnexplainedWindows) -> np.ndarray:
    bounds = ["start_ms", "end_ms"]
    counted = case.pairs.numbers("ours")
    if counted is not None:
        return case.rows[bounds].assign(n=counted).groupby(bounds)["n"].transform("sum").to_numpy()
    events = case.ours.metrics.groupby(bounds)["events"].sum().rename("n").reset_index()
    found: pd.Series = case.rows[bounds].merge(events, on=bounds, how="left")["n"].fillna(0)
    return found.to_numpy()


_BOUNDS = [START, END]
_LEAST_WINDOWS_OF_KEY = 2


def missing_input_rule(case: UnexplainedWindows) -> Evidence:
    """The windows where either side lacks records: whole windows, keys, files, partitions."""
    return first_position(
        _gaps(case),
        _absent_keys(case),
        _absent_files(case),
        _absent_partitions(case),
        _unread(case),
        _beyond(case),
    )


def _gaps(case: UnexplainedWindows) -> Evidence:
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
    return explained_by(case, mask, lambda place: f"theirs has no window at all from {spans[places[place]]}")


def _absent_keys(case: UnexplainedWindows) -> Evidence:
    keys = case.pairs.shape.places[:-2]
    if not keys:
        return first_position()
    by_key = case.rows.groupby(keys, dropna=False)
    is_absent = ~by_key["is_theirs"].transform("any").to_numpy()
    windows = by_key["is_ours"].transform("sum").to_numpy()

    def text(place: int) -> str:
        values = [case.rows[column].to_numpy()[place] for column in keys]
        said = ", ".join(f"{name}={value}" for name, value in zip(case.pairs.shape.keys, values, strict=True))
        return f"theirs has no row of {said}; ours has {windows[place]:,}"

    return explained_by(case, is_absent & (windows >= _LEAST_WINDOWS_OF_KEY), text)


def _absent_files(case: UnexplainedWindows) -> Evidence:
    """Files whose records theirs lacks in every window that they touch; a window may lack several."""
    counts, held = case.counts(), case.records.rows
    if counts is None or held.empty:
        return first_position()
    deficit, copies = np.maximum(counts[0] - counts[1], 0), np.maximum(count_copies(case), 0)
    known = {"place": np.arange(len(case.rows)), "deficit": deficit + copies}
    found = held.merge(case.rows[case.pairs.shape.places].assign(**known), on=case.pairs.shape.places)
    files = found[found[FILE].isin(_always(found, FILE, RECORDS))]
    totals = files.groupby("place")[RECORDS].sum().reindex(range(len(case.rows)), fill_value=0).to_numpy()
    of_row = files.groupby("place")[FILE].agg(set)

    def text(place: int) -> str:
        copied = f", {plain_number_text(copies[place])} of all here are copies" if copies[place] else ""
        held = f"{join_file_names(of_row[place])} holds {plain_number_text(totals[place])} here{copied}"
        return f"theirs lacks {record_count_text(deficit[place])}; {held}"

    return explained_by(case, (deficit > 0) & (deficit <= totals) & (totals <= deficit + copies), text)


def _absent_partitions(case: UnexplainedWindows) -> Evidence:
    """Source partitions whose records theirs lacks, over all keys of a window, wherever they delivered."""
    counts, metrics = case.counts(), case.ours.metrics
    if counts is None or metrics.empty or not isinstance(case.definition.window.spec(), Tumbling | Sliding):
        return first_position()
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
        return f"theirs lacks {record_count_text(gone[place])} of the window, all that partition {said} has here"

    return explained_by(case, mask, text)


def _always(held: pd.DataFrame, unit: str, count: str) -> Sequence[str]:
    """The files, or partitions, of which theirs can lack all records wherever they have any."""
    is_possible = held[count] <= held["deficit"]
    found = is_possible.groupby(held[unit]).all()
    return list(found[found].index)


def _unread(case: UnexplainedWindows) -> Evidence:
    """Records in files that came after the run, which theirs has and ours lacks."""
    surpluses, counts = ExtraRecordCounts.from_windows(case), case.counts()
    if surpluses is None or counts is None:
        return first_position()
    new, more = surpluses.unread.records, counts[1] - counts[0]

    def text(place: int) -> str:
        held = f"files that its run has not read hold {plain_number_text(new[place])} here"
        return f"ours lacks {record_count_text(more[place])}; {held}; backstream stale names them"

    return explained_by(case, surpluses.unread.fits, text)


def _beyond(case: UnexplainedWindows) -> Evidence:
    """More records than there are: input of theirs that is no input of ours."""
    counts = case.counts()
    if counts is None:
        return first_position()
    theirs, held = counts[1], case.in_files()

    def text(place: int) -> str:
        counted = record_count_text(theirs[place])
        return f"theirs counts {counted}, and the input files hold {plain_number_text(held[place])}"

    return explained_by(case, theirs > held, text)
