from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from tests.quality.example_run import failing
from tests.quality.mutations import MUTATIONS, table

from backstream.quality.suites import load_suite
from backstream.runs.results import Audit, CheckOutcome, Severity

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "quality.md"


@cache  # Great Expectations takes a second for each mutation
def audit_of(mutation: str, timetable: Path) -> Audit:
    return MUTATIONS[mutation].judged(timetable)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_caught_by_exactly_its_checks_and_named(timetable: Path, mutation: str) -> None:
    audit = audit_of(mutation, timetable)

    assert failing(audit) == MUTATIONS[mutation].found
    assert audit.verdict is MUTATIONS[mutation].verdict


def test_every_expectation_is_the_gravest_that_some_mutation_fails() -> None:
    suite = load_suite("window_audit")
    order = {entry.description: at for at, entry in enumerate(suite.entries)}
    gravity = list(Severity)
    severity = {entry.description: gravity.index(entry.severity) for entry in suite.entries}

    gravest = {
        min(mutation.found, key=lambda name: (severity[name], order[name]))
        for mutation in MUTATIONS.values()
        if mutation.found
    }

    assert gravest == set(order)


def test_the_page_on_quality_has_the_table_of_mutations() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "make accept writes it"


WITHOUT_ROWS = {"the run has at least one window"}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_failed_check_names_rows_with_both_values(timetable: Path, mutation: str) -> None:
    audit = audit_of(mutation, timetable)

    failed = [check for check in audit.checks if check.outcome is not CheckOutcome.PASS]
    assert {check.name for check in failed if not check.failing} <= WITHOUT_ROWS
    rows = [row for check in failed for row in check.failing]
    assert all(row["expected"] and row["found"] and row["expected"] != row["found"] for row in rows)
    assert all(row["command"] or "file" in row or set(row) == {"expected", "found", "command"} for row in rows)


NAMED = {
    "one window deleted": {
        "source_partition": "b",
        "window_start": "2026-03-01T06:00Z",
        "is_present": False,
        "expected": "50 events",
        "found": "no event",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "the run 6 % late": {
        "source_partition": "a",
        "window_start": "2026-03-01T00:00Z",
        "expected": "at most 5 %",
        "found": "3 of 50 events (6 %)",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "one chunk without manifest": {
        "chunk": "0000",
        "since": "2026-03-01T00:00Z",
        "until": "2026-03-02T00:00Z",
        "expected": "a manifest with 2,400 events",
        "found": "no manifest",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "10 % of the records are duplicates": {
        "source_partition": "a",
        "chunk": "0000",
        "since": "2026-03-01T00:00Z",
        "until": "2026-03-02T00:00Z",
        "expected": "no duplicate record",
        "found": "267 of 1,467 records duplicate (18.2 %)",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "one record without an id": {
        "chunk": "0000",
        "since": "2026-03-01T00:00Z",
        "until": "2026-03-02T00:00Z",
        "expected": "an id in each record",
        "found": "1 of 2,400 records without an id (< 0.1 %)",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "two positions of the source occur twice": {
        "source_partition": "a",
        "sequence": 17,
        "expected": "1 record",
        "found": "2 records",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "24 rows that would replace 100": {
        "since": "2026-03-01T00:00Z",
        "until": "2026-03-02T00:00Z",
        "expected": "at least 50 % of 100 rows",
        "found": "24 rows",
        "command": "backstream show clicks --since 2026-03-01 --until 2026-03-02",
    },
    "one damaged input file left out": {
        "file": "/data/a.parquet",
        "expected": "a file without damage",
        "found": "Parquet file size is 0 bytes",
        "command": "",
    },
}


@pytest.mark.parametrize("mutation", NAMED)
def test_the_first_row_names_the_place_and_both_values(timetable: Path, mutation: str) -> None:
    audit = audit_of(mutation, timetable)

    first = next(check for check in audit.checks if check.outcome in (CheckOutcome.FAIL, CheckOutcome.WARN))
    assert first.failing[0] == NAMED[mutation]
