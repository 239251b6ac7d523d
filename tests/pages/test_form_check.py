"""Test that the form refuses what cannot make sense, and shows what a run would do before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.definition.loader import load_definition
from backstream.lake.ledger import record_run, run_row
from backstream.pages.definitions import DefinitionEntry
from backstream.pages.form_check import FORM, FormCheck, check_form, find_refused_choices
from backstream.pages.reprocess import ReprocessForm
from backstream.runs.home import Home
from backstream.runs.requests import RunRequest
from backstream.runs.status import RunStatus
from backstream.workflow.plan.impact import Impact, Publisher

NAMES = ("since", "until", "time_zone", "reason", "mode", "delay", "chunk", "allow_unsealed")
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
    return DefinitionEntry("clicks", path)


def check(entry: DefinitionEntry, **typed: str) -> FormCheck:
    return check_form(PARAMS, TYPED | typed, entry, Home(entry.path.parent / "home"))


def problems(entry: DefinitionEntry, **typed: str) -> dict[str, str]:
    found = check(entry, **typed).problems
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


def test_an_empty_field_is_no_problem_before_the_start(entry: DefinitionEntry) -> None:
    typed = TYPED | {"reason": "", "chunk": "5h"}
    found = check_form(PARAMS, typed, entry, Home(entry.path.parent / "home"))
    assert list(found.problems) == ["reason", "chunk"]
    assert list(found.of_given_fields(typed).problems) == ["chunk"]


def test_the_effect_names_days_events_and_the_published_rows_with_their_run(tmp_path: Path) -> None:
    days = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (1, 2, 3)]
    write_clicks(tmp_path / "data/a.parquet", days)
    file = write_definition(tmp_path)
    plan = planned(tmp_path, file, until="2024-03-03")
    publish_counts(plan, days)
    home = Home(tmp_path / "home")
    record_run(home, run_row(plan, RunStatus.PUBLISHED, (0, 90_000), rows=2, events_read=2))
    asked = RunRequest("clicks", "reprocess_clicks", "manual", plan.triggered_by, requested_at_ms=0, by="ada")
    asked.write(home)

    found = check(DefinitionEntry("clicks", file), until="2024-03-04", reason="")

    assert list(found.problems) == ["reason"]
    assert found.impact == Impact(
        days=3,
        events=2,
        rows_replaced=2,
        publishers=(Publisher("test", "ada", "", 90_000, 2),),
        other_publishers=0,
        seconds=(90.0, 90.0),
    )


def test_a_day_that_can_still_gain_events_is_refused_until_that_is_allowed(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    file = write_definition(tmp_path, CLICKS + '\n[backfill]\nmax_arrival_delay = "2d"\n')
    entry = DefinitionEntry("clicks", file)

    assert problems(entry) == {"allow_unsealed": "cannot publish clicks as final: the day is not sealed"}
    assert problems(entry, allow_unsealed="true") == {}


def test_more_chunks_than_a_plan_can_hold_are_refused_at_their_length(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    file = write_definition(tmp_path, CLICKS + "\n[backfill]\nmax_chunks = 3\n")
    entry = DefinitionEntry("clicks", file)

    assert list(problems(entry, until="2024-03-08")) == ["chunk"]
    assert problems(entry, until="2024-03-08", chunk="7d") == {}


def test_a_mode_that_no_run_can_have_is_refused_with_its_reason(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    file = write_definition(tmp_path, CLICKS.replace('arrival_time = "arrived_at"\n', ""))
    entry = DefinitionEntry("clicks", file)
    reason = "source.arrival_time is missing, so the arrival order is unknown"

    assert find_refused_choices(load_definition(file)) == {"mode": {"replay": reason}}
    assert problems(entry, mode="replay") == {"mode": f"cannot replay clicks: {reason}"}
    assert problems(entry, mode="recompute") == {}


def test_files_that_the_run_prepares_first_make_the_effect_unknown_and_no_problem(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    file = write_definition(tmp_path, CLICKS.replace('key = ["page"]', 'key = ["page"]\nwhere = "page <> 1"'))
    entry = DefinitionEntry("clicks", file)

    found = check(entry)
    assert (found.problems, found.impact) == ({}, None)
    assert found.unknown != ""
    assert list(problems(entry, until="9999-12-31")) == ["until"]
