from __future__ import annotations

from benchmarks.publication import figures
from benchmarks.results import Figure, Results
from benchmarks.table import figure_rows


def test_a_tiny_measure_of_planning_and_publishing_has_every_figure() -> None:
    said: list[str] = []

    found = figures(said.append, chunks=3, files=2, runs=1)

    assert [(each.what, each.unit, each.limit) for each in found] == [
        ("plan of 3 daily chunks over 3 files", "s", 5.0),
        ("publication of 2 files", "s", 5.0),
        ("restatement of 2 files", "s", 5.0),
        ("publication and ledger, first ten runs (median)", "ms", None),
        ("the same after 1 runs", "ms", None),
        ("after 1 runs against the first ten", "x", 2.0),
    ]
    assert all(each.value > 0 for each in found)
    assert len(said) == len(found)


def test_a_row_of_a_figure_shows_whether_it_meets_its_limit() -> None:
    results = Results(0, 0, "1g", "2026-01-01", {}, figures=[Figure("plan", 1.5, "s", 5), Figure("x", 6, "s", 5)])

    assert figure_rows(results) == [
        ("plan", "1.50 s", "at most 5 s", "yes"),
        ("x", "6.00 s", "at most 5 s", "no"),
    ]
