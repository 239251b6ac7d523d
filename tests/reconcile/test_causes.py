"""Test each cause with known changes in a copy of the published windows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import pytest
from tests.reconcile.conftest import TYPES, Published, clicks, counted, labels
from tests.workflow.history import write_clicks

from backstream.reconcile.comparison import Reconciliation
from backstream.reconcile.rules import Cause

pytestmark = pytest.mark.slow

VALUES = ["clicks", "seconds", "longest", "mean"]


def of_pane(published: Published, pane: str) -> pd.DataFrame:
    """Return the output of a live system that publishes only one pane; windows without records are missing."""
    found = published.panes()
    theirs = found[["window_start", "window_end", "page", *(f"{name}__{pane}" for name in VALUES)]]
    return theirs.rename(columns={f"{name}__{pane}": name for name in VALUES}).dropna()


def evidence(found: Reconciliation, cause: Cause) -> set[str]:
    return {row["evidence"] for row in found.differing.to_pylist() if row["cause"] == cause}


def test_what_was_published_equals_itself(published: Published) -> None:
    found = published.compare(published.truth())

    assert (found.windows, found.causes, found.differing.num_rows) == (1_152, {}, 0)
    assert str(found.interval) == "2024-03-05T00:00Z to 2024-03-17T00:00Z"


@pytest.mark.parametrize("pane", ["first", "live"])
def test_a_stream_that_missed_late_records(published: Published, pane: str) -> None:
    panes = published.panes()

    found = published.compare(of_pane(published, pane))

    differing = int((panes[f"clicks__{pane}"] != panes["clicks__final"]).sum())
    assert found.causes == {Cause.LATE_DATA: differing}
    row = found.differing.to_pylist()[0]
    mine = panes[(panes["window_start"] == row["window_start"]) & (panes["page"] == row["page"])].iloc[0]
    late, dropped = (mine["clicks__live"] - mine["clicks__first"], mine["clicks__final"] - mine["clicks__live"])
    assert f"; {late:.0f} record" in row["evidence"]
    assert f" and {dropped:.0f} record" in row["evidence"]


def test_a_stream_that_counts_copies(published: Published) -> None:
    events = published.events(with_copies=True)

    found = published.compare(counted(events))

    copies = events[events.duplicated(["origin", "seq"])].groupby(["window_start", "page"]).size()
    assert found.causes == {Cause.DUPLICATE: len(copies)}
    row = found.differing.to_pylist()[0]
    duplicates = "the number of duplicates by origin, seq in the input files"
    assert row["evidence"] == f"the live system counts {copies.max()} records more, {duplicates}"


def test_a_window_delivered_twice_and_a_row_written_twice(published: Published) -> None:
    truth = published.truth()
    times = truth["window_start"] == "2024-03-07T12:00Z"
    truth.loc[times, ["clicks", "seconds"]] *= 3

    found = published.compare(pd.concat([truth, truth.iloc[[0]]]))

    assert found.causes == {Cause.DUPLICATE: int(times.sum()) + 1}
    assert evidence(found, Cause.DUPLICATE) == {
        "the live system has this row 2 times",
        "clicks, seconds: the live value is 3 times the backstream value; all other values are equal",
    }


def test_a_stream_without_a_file_or_a_partition(published: Published) -> None:
    events = published.events()
    of_file = (events["origin"] == "B") & (events["seq"] // 1_000 == 3)

    file = published.compare(counted(events[~of_file]))
    partition = published.compare(counted(events[events["origin"] != "B"]))

    touched = {
        (at.strftime("%dT%H:%MZ"), page) for at, page in events[of_file][["window_start", "page"]].to_numpy()
    }
    assert set(labels(file)) == touched
    assert set(file.causes) <= {Cause.MISSING_INPUT, Cause.LATE_DATA}
    assert set(partition.causes) <= {Cause.MISSING_INPUT, Cause.LATE_DATA}
    assert file.causes[Cause.MISSING_INPUT] > 0.9 * len(touched)
    assert any("; B-03.parquet has " in text for text in evidence(file, Cause.MISSING_INPUT))


def test_an_outage_and_a_key_without_rows_are_missing_input(published: Published) -> None:
    truth = published.truth()
    is_out = truth["window_start"].between("2024-03-09T03:00Z", "2024-03-09T05:00Z")
    is_shop = truth["page"] == "shop"

    found = published.compare(truth[~is_out & ~is_shop])

    assert found.causes == {Cause.MISSING_INPUT: int((is_out | is_shop).sum())}
    assert evidence(found, Cause.MISSING_INPUT) == {
        "the live system has no windows from 2024-03-09T03:00Z to 2024-03-09T06:00Z",
        f"the live system has no row with page=shop; backstream has {int(is_shop.sum())}",
    }


def test_records_without_a_file_and_files_newer_than_the_run_are_missing_input(published: Published) -> None:
    more = published.truth()
    more["clicks"] = more["clicks"].where(more.index != 7, more["clicks"] + 100)
    new = published.folder / "data/C-00.parquet"

    found = published.compare(more)
    assert labels(found) == {(more["window_start"][7].strftime("%dT%H:%MZ"), more["page"][7]): "missing input"}
    [text] = evidence(found, Cause.MISSING_INPUT)
    assert text.startswith(f"the live system counts {more['clicks'][7]:.0f} records, the input files have ")

    write_clicks(new, [each for each in clicks("C", 2, 999) if each[1] > each[0]][:60], TYPES)
    try:
        found = published.compare(counted(published.events()))
    finally:
        new.unlink()
    assert set(found.causes) == {Cause.MISSING_INPUT}
    texts = evidence(found, Cause.MISSING_INPUT)
    assert all(text.startswith("backstream lacks ") and "stale" in text for text in texts)


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("America/New_York", "-5h, from 2024-03-10T07:00Z -4h, as in America/"),
        ("Asia/Kathmandu", "+5h45m: "),
        ("Etc/GMT-1", "+1h: "),
    ],
)
def test_a_wall_clock_written_as_utc(published: Published, zone: str, said: str) -> None:
    theirs = published.truth()
    for name in ("window_start", "window_end"):
        theirs[name] = theirs[name].dt.tz_convert(zone).dt.tz_localize(None)

    found = published.compare(theirs)

    assert set(found.causes) == {Cause.TIME_ZONE_SHIFT}
    assert found.causes[Cause.TIME_ZONE_SHIFT] == found.windows > 1_000
    assert str(found.shift).startswith(said)
    at = found.differing.to_pylist()[0]
    local = pd.Timestamp(at["window_start"]).tz_convert(zone).strftime("%Y-%m-%dT%H:%MZ")
    assert at["evidence"] == f"the live system has it at {local}"


@pytest.mark.parametrize("is_summed", [False, True])
def test_a_repeated_hour_of_a_local_clock_is_a_time_zone_shift(published: Published, is_summed: bool) -> None:
    """In Morocco, clocks went back on March 10, 2024, for Ramadan."""
    theirs = published.truth()
    for name in ("window_start", "window_end"):
        theirs[name] = theirs[name].dt.tz_convert("Africa/Casablanca").dt.tz_localize(None)
    twice = theirs[theirs["window_start"] == "2024-03-10T02:00"]
    assert len(twice) == 8
    if is_summed:
        sums = {"clicks": "sum", "seconds": "sum", "longest": "max", "mean": "mean", "window_end": "max"}
        theirs = theirs.groupby(["window_start", "page"]).agg(sums).reset_index()

    found = published.compare(theirs)

    moved = found.windows - _unmoved(published) + (4 if is_summed else 0)
    assert found.causes == {Cause.TIME_ZONE_SHIFT: moved}
    end = ", added to the other window of the repeated hour"
    assert sum(row["evidence"].endswith(end) for row in found.differing.to_pylist()) == (8 if is_summed else 0)


def _unmoved(published: Published) -> int:
    """Return the number of windows after the clocks of Morocco changed to UTC."""
    return int((published.truth()["window_start"] >= "2024-03-10T02:00Z").sum())


def test_differences_after_a_shift_are_compared_with_the_shifted_window(published: Published) -> None:
    theirs = of_pane(published, "first")
    for name in ("window_start", "window_end"):
        theirs[name] += pd.Timedelta(hours=2)

    found = published.compare(theirs, since_ms=_ms("2024-03-06"), until_ms=_ms("2024-03-12"))

    assert found.shift is None  # too few windows are equal, by the rule of 80 %

    found = published.compare(_mostly(theirs, of_pane(published, "final")))
    assert set(found.causes) == {Cause.TIME_ZONE_SHIFT, Cause.LATE_DATA}
    assert all(each.endswith("; after the shift") for each in evidence(found, Cause.LATE_DATA))


def _mostly(theirs: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Return windows that lack late records in the first two days only."""
    moved = whole.assign(**{name: whole[name] + pd.Timedelta(hours=2) for name in ("window_start", "window_end")})
    is_early = theirs["window_start"] < "2024-03-07"
    return pd.concat([theirs[is_early], moved[moved["window_start"] >= "2024-03-07"]])


def _ms(day: str) -> int:
    return int(pd.Timestamp(day, tz="UTC").timestamp() * 1_000)


def test_data_that_repeat_themselves_prove_no_shift(published: Published) -> None:
    truth = published.truth()
    theirs = truth.assign(clicks=1, seconds=1.0, longest=1.0, mean=1.0)

    found = published.compare(theirs)

    assert found.shift is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: rows.assign(seconds=rows["seconds"] / 60),
            "seconds is 0.0166666667 times the backstream ",
        ),
        (lambda rows: rows.assign(longest=rows["longest"] + 2.5), "longest is the backstream value plus 2.5 "),
        (lambda rows: rows.assign(mean=rows["longest"]), "mean differs in "),
    ],
)
def test_another_code_over_the_same_records(published: Published, change: object, said: str) -> None:
    found = published.compare(change(published.truth()))  # type: ignore[operator]

    assert set(found.causes) == {Cause.CODE}
    assert all(each.startswith(f"same records; {said}") for each in evidence(found, Cause.CODE))


def test_what_has_no_evidence_is_unknown(published: Published) -> None:
    truth = published.truth()
    draw = random.Random(7)  # noqa: S311 - the same windows each time
    places = draw.sample(range(len(truth)), 20)
    truth.loc[places[:10], "seconds"] += [draw.random() for _ in range(10)]
    truth.loc[places[10:15], "clicks"] = [0, 1, 0, 1, 0]

    found = published.compare(truth.drop(index=places[15:]))

    assert found.causes == {Cause.UNKNOWN: 20}


@pytest.mark.parametrize("seed", range(3))
def test_reconcile_finds_the_cause_of_each_random_change(published: Published, seed: int) -> None:
    """Each window has one random cause, and its label doesn't depend on other windows."""
    dealt = Dealt.of(published, seed)
    expected = {}
    for place, (start, page) in enumerate(dealt.theirs[["window_start", "page"]].to_numpy()):
        cause = dealt.draw.choices([None, *dealt.causes], [60, *[8] * len(dealt.causes)])[0]
        if cause and dealt.causes[cause](place):
            expected[start.strftime("%dT%H:%MZ"), page] = cause

    found = published.compare(dealt.theirs.dropna())

    assert labels(found) == expected
    assert set(found.causes) == set(dealt.causes)


@dataclass(frozen=True)
class Dealt:
    """A copy of the published windows, and functions that put a cause into a row, False if they can't."""

    draw: random.Random
    theirs: pd.DataFrame
    panes: pd.DataFrame
    with_copies: pd.DataFrame

    @classmethod
    def of(cls, published: Published, seed: int) -> Dealt:
        """Return a copy of all published windows."""
        with_copies = counted(published.events(with_copies=True))
        draw = random.Random(seed)  # noqa: S311 - the same windows each time
        return cls(draw, published.truth(), published.panes(), with_copies)

    @property
    def causes(self) -> dict[Cause, Callable[[int], bool]]:
        """Functions that put a cause into a row."""
        return {
            Cause.LATE_DATA: self._late,
            Cause.DUPLICATE: self._copied,
            Cause.MISSING_INPUT: self._more_than_there_is,
            Cause.CODE: self._in_seconds,
            Cause.UNKNOWN: self._noise,
        }

    def _late(self, place: int) -> bool:
        pane = self.draw.choice(["first", "live"])
        values = [self.panes[f"{name}__{pane}"][place] for name in VALUES]
        is_late = bool(values[0] != self.panes["clicks__final"][place])
        self.theirs.loc[place, VALUES] = values
        return is_late

    def _copied(self, place: int) -> bool:
        is_copied = bool(self.with_copies["clicks"][place] != self.theirs["clicks"][place])
        self.theirs.loc[place, VALUES] = [self.with_copies[name][place] for name in VALUES]
        return is_copied

    def _more_than_there_is(self, place: int) -> bool:
        all_there_are = int(self.with_copies["clicks"][place])
        self.theirs.loc[place, VALUES[:2]] = [all_there_are + self.draw.randrange(1, 40), 1e6]
        return True

    def _in_seconds(self, place: int) -> bool:
        self.theirs.loc[place, "mean"] = self.panes["mean__final"][place] * 60
        return True

    def _noise(self, place: int) -> bool:
        self.theirs.loc[place, "longest"] = self.panes["longest__final"][place] + self.draw.random()
        return True
