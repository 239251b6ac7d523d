from __future__ import annotations

from pathlib import Path

import pytest
from tests.quality.example_run import definition, failing, good, judged
from tests.quality.mutations import MUTATIONS, OF_THE_RUN

from backstream.quality.suites import load_suite


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_caught_by_exactly_its_checks_and_named(timetable: Path, mutation: str) -> None:
    mutated, limits, expected, verdict = MUTATIONS[mutation]

    audit = judged(mutated(good()), definition(timetable, **limits))

    assert failing(audit) == expected
    assert audit.verdict is verdict


def test_every_expectation_of_the_suite_is_caught_by_some_mutation() -> None:
    caught = {name for _, _, expected, _ in MUTATIONS.values() for name in expected}

    assert {entry.description for entry in load_suite("window_audit").entries} == caught | OF_THE_RUN
