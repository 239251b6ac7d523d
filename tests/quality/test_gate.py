from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pytest
from tests.quality.example_run import (
    PLAN,
    Row,
    definition,
    failing,
    fates_of,
    good,
    judge_rows,
    judged,
    metrics,
    panes_of,
    results_of,
)
from tests.quality.faults import changed, deleted, everywhere, past_weeks
from tests.quality.mutations import SOFT_MISSING, WINDOW, share

from backstream.quality.evidence import RunEvidence
from backstream.quality.gate import evaluate_suite
from backstream.runs.manifest import Manifest
from backstream.runs.results import Audit, CheckOutcome, Verdict


def test_a_good_run_passes_every_check(timetable: Path) -> None:
    audit, frame = judge_rows(good(), definition(timetable), [fates_of(good())], of=good())

    assert failing(audit) == {}
    assert audit.verdict is Verdict.PASS
    assert audit.summary == (
        "all 48 windows have events; 2 % of 2,400 events were late, 0 % were dropped (delay 10m)"
    )
    assert len(frame) == 48


def test_five_records_without_a_window_are_reported_with_their_source_partition(
    timetable: Path,
) -> None:
    lossy = changed(events=45, on_time=44)(good())

    audit, _ = judge_rows(lossy, definition(timetable), [fates_of(good())], of=good())

    assert failing(audit) == {
        "every record with a fate is in its window": ["b 5"],
        "the rows of every window contain all its records": ["2026-03-01T06:00Z -5"],
        "the panes of every window contain their records": ["2026-03-01T06:00Z 15"],
    }
    assert audit.verdict is Verdict.FAIL
    assert audit.summary == (
        'failed the check "every record with a fate is in its window" (b) and 2 more; all 48 windows have events; '
        "2 % of 2,395 events were late, 0 % were dropped (delay 10m)"
    )


def test_records_lost_before_the_windows_are_reported(timetable: Path) -> None:
    whole = fates_of(good())
    lossy = Manifest("run", "0000", "1", whole.events_read + 123, whole.fates, whole.files)

    audit, _ = judge_rows(good(), definition(timetable), [lossy], of=good())

    assert failing(audit) == {"every record read has exactly one fate": []}
    assert [check.observed for check in audit.checks if check.outcome is CheckOutcome.FAIL] == ["unaccounted: 123"]


def test_an_unfinished_chunk_is_reported(timetable: Path) -> None:
    audit, _ = judge_rows(good(), definition(timetable), [], of=good())

    assert "every chunk of the plan was finished" in failing(audit)
    assert audit.verdict is Verdict.FAIL


def test_a_run_with_no_window_to_judge_fails() -> None:
    audit, frame = evaluate_suite(PLAN, definition(Path(), expected=None), metrics([]), [fates_of([])], results=[])

    assert failing(audit) == {"the run has at least one window": []}
    assert audit.verdict is Verdict.FAIL
    assert audit.summary == 'failed the check "the run has at least one window"; no window was expected'
    assert len(frame) == 0


def test_values_equal_to_their_limits_pass(timetable: Path) -> None:
    rows = everywhere(on_time=35, late=15)(good())
    limits: dict[str, Any] = {
        "missing_ratio": {"warn": 0.375, "fail": 0.375},
        "late_ratio": {"warn": 0.3, "fail": 0.3},
    }

    audit = judged(rows[12:30] + rows[36:], definition(timetable, **limits))

    assert failing(audit) == {}


def test_a_check_lists_at_most_twenty_windows_and_the_worst_one_first(timetable: Path) -> None:
    rows = everywhere(on_time=30, late=20)(good())

    audit = judged(changed(on_time=10, late=40)(rows), definition(timetable))

    (check,) = [check for check in audit.checks if check.name == share("late", WINDOW, "hard")]
    assert check.failing[0] == {
        "source_partition": "b",
        "window_start": "2026-03-01T06:00Z",
        "late_ratio": 0.8,
        "expected": "at most 25 %",
        "found": "40 of 50 events (80 %)",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    }
    assert (len(check.failing), check.unexpected_count, check.element_count) == (20, 48, 48)
    assert (check.observed, check.limit) == ("48 of 48 windows fail, the worst 80 %", "at most 25 %")


def test_missing_windows_are_summarized_in_one_sentence(timetable: Path) -> None:
    audit = judged(good()[:5] + good()[8:], definition(timetable))

    assert audit.summary == (
        "3 of 48 windows have no event (a, 1 March 2026); "
        "2 % of 2,250 events were late, 0 % were dropped (delay 10m)"
    )


def test_a_check_that_raises_is_an_error_and_never_a_pass(timetable: Path, tmp_path: Path) -> None:
    entry = {
        "type": "expect_column_values_to_be_between",
        "description": "partitions are between 1 and 2",
        "severity": "info",
        "kwargs": {"column": "source_partition", "min_value": 1, "max_value": 2},
    }
    (tmp_path / "window_audit.json").write_text(json.dumps({"name": "window_audit", "expectations": [entry]}))

    audit, _ = evaluate_suite(
        PLAN, definition(timetable), metrics(good()), [fates_of(good())], results=[], suites_folder=tmp_path
    )

    (check,) = audit.checks
    assert check.outcome is CheckOutcome.ERROR
    assert audit.verdict is Verdict.ERROR
    cause = "TypeError: Column values, min_value, and max_value must either be None or of the same type."
    assert check.observed == f"could not run: {cause}"
    assert audit.summary.startswith(f'could not run the check "partitions are between 1 and 2" ({cause}); all 48')


def test_an_audit_survives_its_file(timetable: Path, tmp_path: Path) -> None:
    audit = judged(deleted(good()), definition(timetable))

    audit.write(tmp_path / "audit_result.json")

    assert Audit.read(tmp_path / "audit_result.json") == audit


def test_judging_needs_no_network(timetable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)

    assert judged(good(), definition(timetable)).verdict is Verdict.PASS


def test_importing_the_gate_does_not_import_great_expectations() -> None:
    code = "import sys, backstream.quality.gate; print('great_expectations' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "False\n"


SUNDAY = 6
LATE_AS_USUAL = [row | {"on_time": 45, "late": 5} for row in good()]


def judged_after(past: pd.DataFrame, rows: list[Row], timetable: Path, rates: Sequence[float] = ()) -> Audit:
    """Return the audit of a run after past weeks; `rates` are the records per day of past runs."""
    return evaluate_suite(
        PLAN,
        definition(timetable),
        metrics(rows),
        [fates_of(rows)],
        results=[results_of(rows)],
        panes=[panes_of(rows)],
        load_evidence=lambda: RunEvidence(past=rates, past_windows=past),
    )[0]


def with_events_at_six(past: pd.DataFrame, events: Sequence[int]) -> pd.DataFrame:
    """Return past weeks with these events of source partition b in the window that `deleted` removes."""
    starts = past["window_start"].dt
    is_six = (past["source_partition"] == "b") & (starts.dayofweek == SUNDAY) & (starts.hour == 6)
    weeks = past[is_six].iloc[: len(events)].assign(events=[float(count) for count in events])
    changed_past: pd.DataFrame = pd.concat([past[~is_six], weeks])
    return changed_past


def warnings(audit: Audit) -> list[str]:
    return [check.name for check in audit.checks if check.outcome is CheckOutcome.WARN]


def test_a_band_replaces_the_soft_limit_of_the_late_share(timetable: Path) -> None:
    usual = past_weeks(late_ratio=0.1)
    assert warnings(judged_after(usual, LATE_AS_USUAL, timetable)) == []
    assert warnings(judged_after(past_weeks(weeks=3, late_ratio=0.1), LATE_AS_USUAL, timetable)) == [
        "the late share of the run is within its soft limit"
    ]
    half = usual[usual["window_start"].dt.hour < 12]
    assert warnings(judged_after(half, LATE_AS_USUAL, timetable)) == [
        "the late share of the run is within its soft limit"
    ]


def test_a_band_replaces_the_soft_limit_of_missing_windows_and_keeps_the_hard_one(timetable: Path) -> None:
    usual = with_events_at_six(past_weeks(completeness=0.5), [50, 50, 50, 0])
    assert warnings(judged_after(usual, deleted(good()), timetable)) == []
    assert judged_after(past_weeks(weeks=3), deleted(good()), timetable).verdict is Verdict.WARN
    assert judged_after(usual, good()[:24], timetable).verdict is Verdict.FAIL


def test_a_window_that_was_never_empty_in_past_weeks_keeps_its_soft_limit(timetable: Path) -> None:
    found = {}
    for events in ((50, 50, 50, 50), (50, 50, 50, 0), (16, 16, 16, 16), (15, 15, 15, 15), (50, 50, 50)):
        past = with_events_at_six(past_weeks(completeness=0.5), events)
        found[events] = warnings(judged_after(past, deleted(good()), timetable))
    # With 15 usual events, a window is empty by chance as often as events are beyond an edge of the band.
    assert found == {
        (50, 50, 50, 50): [SOFT_MISSING],
        (50, 50, 50, 0): [],
        (16, 16, 16, 16): [SOFT_MISSING],
        (15, 15, 15, 15): [],
        (50, 50, 50): [],
    }


def test_a_band_replaces_the_fixed_limit_of_the_volume(timetable: Path) -> None:
    rates = [100.0, 101.0, 102.0, 99.0, 98.0, 100.0]
    assert warnings(judged_after(past_weeks(), good(), timetable, rates)) == []
    assert warnings(judged_after(past_weeks(weeks=3), good(), timetable, rates)) == [
        "records per day are near those of past runs (median and MAD)"
    ]


def test_an_audit_frame_has_the_bands_of_its_windows(timetable: Path) -> None:
    rows = good()
    _, frame = evaluate_suite(
        PLAN,
        definition(timetable),
        metrics(rows),
        [fates_of(rows)],
        results=[results_of(rows)],
        load_evidence=lambda: RunEvidence(past_windows=past_weeks()),
    )
    assert frame["has_band"].all()
    assert frame["is_limited"].all(), "no past week has an empty window"
    assert list(zip(frame["band_low"], frame["band_high"], strict=True))[:1] == [(50.0, 150.0)]
