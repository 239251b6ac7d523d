"""Test that the form refuses what cannot make sense, with the sentence at its field."""

from __future__ import annotations

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.definition.loader import load_definition
from backstream.pages.definitions import DefinitionEntry
from backstream.pages.form_problems import FORM, find_problems, range_of
from backstream.pages.reprocess import ReprocessForm
from backstream.runs.home import Home

NAMES = ("since", "until", "time_zone", "reason", "mode", "delay", "chunk", "max_spark_jobs")
PARAMS = ReprocessForm(
    "reprocess_clicks", {name: {"value": None, "schema": {"type": ["null", "string"]}} for name in NAMES}
)
TYPED = {"since": "2024-03-01", "until": "2024-03-02", "reason": "late files"}


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> DefinitionEntry:
    folder = tmp_path_factory.mktemp("clicks")
    write_clicks(folder / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    write_definition(folder, CLICKS)
    path = folder / "clicks.toml"
    return DefinitionEntry("clicks", load_definition(path), "", path)


def problems(entry: DefinitionEntry, **typed: str) -> dict[str, str]:
    found = find_problems(PARAMS, TYPED | typed, entry, Home(entry.path.parent / "home"))
    return {name: text.partition("\n")[0].partition(" (")[0] for name, text in found.items()}


def test_a_run_that_can_make_sense_has_no_problem(entry: DefinitionEntry) -> None:
    assert problems(entry) == {}
    assert problems(entry, mode="replay", delay="5m", chunk="2d") == {}


@pytest.mark.parametrize(
    ("typed", "field", "said"),
    [
        ({"since": "0001-01-01"}, "since", "since must not be before 1970-01-01T00:00Z, got 0001-01-01T00:00Z"),
        ({"since": ""}, "since", "since must be an instant such as 2013-02-01 or"),
        ({"until": "2024-03-01"}, "until", "cannot backfill 2024-03-01T00:00Z to 2024-03-01T00:00Z: the range"),
        ({"until": "2024-02-01"}, "until", "cannot backfill 2024-03-01T00:00Z to 2024-02-01T00:00Z: `since`"),
        ({"time_zone": "Mars"}, "time_zone", "time zone must be the name of an IANA zone"),
        ({"reason": " "}, "reason", "a reason is required: the run stores it"),
        ({"mode": "recompute", "delay": "5m"}, "delay", "watermark.delay has no meaning with the mode recompute"),
        ({"chunk": "5h"}, "chunk", "backfill.chunk must be whole days"),
        ({"color": "red"}, FORM, "color is not a field of this form, got 'red'"),
    ],
)
def test_each_problem_is_at_its_field(
    entry: DefinitionEntry, typed: dict[str, str], field: str, said: str
) -> None:
    found = problems(entry, **typed)
    assert list(found) == [field]
    assert found[field].startswith(said)


def test_a_range_in_the_future_is_refused_at_its_end(entry: DefinitionEntry) -> None:
    found = problems(entry, until="9999-12-31")
    assert list(found) == ["until"]
    assert found["until"].startswith("until must not be after 20")


def test_all_problems_are_shown_at_once(entry: DefinitionEntry) -> None:
    assert set(problems(entry, reason="", chunk="5h", since="")) == {"reason", "chunk", "since"}


def test_only_a_complete_range_has_an_effect() -> None:
    assert str(range_of(TYPED)) == "2024-03-01T00:00Z to 2024-03-02T00:00Z"
    assert range_of({"since": "2024-03-01", "until": ""}) is None
