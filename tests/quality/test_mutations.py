from __future__ import annotations

from pathlib import Path

import pytest
from tests.quality.example_run import failing
from tests.quality.mutations import MUTATIONS, table

from backstream.quality.suites import load_suite
from backstream.runs.results import Severity

PAGE = Path(__file__).parents[2] / "docs" / "quality.md"


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_caught_by_exactly_its_checks_and_named(timetable: Path, mutation: str) -> None:
    mutated = MUTATIONS[mutation]

    audit = mutated.judged(timetable)

    assert failing(audit) == mutated.found
    assert audit.verdict is mutated.verdict


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
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m tests.quality.mutations prints it"
