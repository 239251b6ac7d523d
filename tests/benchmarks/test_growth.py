"""The benchmark of growth at toy size: each command over an empty table and over one with some runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.growth import SHAPES, bar_of, costs, scaled
from benchmarks.history import kept, made
from benchmarks.history_shape import Shape
from benchmarks.results import Cost, Results
from benchmarks.table import growth_columns, growth_rows, markdown

from backstream.eventtime.instants import DAY_MS
from backstream.lake.ledger import list_checks
from backstream.lake.published_windows import load_published_windows
from backstream.lake.run_rows import list_runs
from backstream.variables import CATALOG_VARIABLE
from backstream.workflow.late_data.stale import find_stale_days

pytestmark = pytest.mark.slow

SMALL = Shape(rows=90, days=3, runs=4)
COMMANDS = (
    "plan",
    "run of one small day",
    "report of that run",
    "diff of that run",
    "explain one row",
    "stale",
    "days",
    "status",
    "show --limit 20",
    "datasets page",
    "windows page",
    "restate check",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("growth")


@pytest.fixture(autouse=True)
def own_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)


def test_a_history_that_is_made_is_one_that_commands_find(folder: Path) -> None:
    place = made(folder, SMALL)
    found = load_published_windows(place.home, "growth")
    ranges = [(each.interval.start_ms - SMALL.interval.start_ms) // DAY_MS for each in found.commits]

    assert ranges == [0, 2, 1, 0]  # the fourth run restated the first day; the newest first
    assert [len(run_ids) for run_ids in found.runs_by_day().values()] == [1, 1, 1]
    assert found.rows(lambda _: True, ["key"]).num_rows == SMALL.rows
    assert len(list_runs(place.home, "growth")) == SMALL.runs
    assert len(list_checks(place.home, "growth")) == 12 * SMALL.runs
    looked = find_stale_days(place.definition, place.home)
    assert (looked.published_days, looked.days) == (3, ())


def test_what_runs_in_a_history_is_forgotten_even_if_who_measured_was_killed(folder: Path) -> None:
    place = made(folder, SMALL)
    catalog, runs_of_it = place.home.path / "catalog.db", place.home.path / "runs/growth"
    before = catalog.read_bytes()

    def is_as_it_was() -> bool:
        return catalog.read_bytes() == before and len(list(runs_of_it.iterdir())) == SMALL.runs

    catalog.with_suffix(".kept").write_bytes(before)  # one that was killed has left this
    catalog.write_bytes(b"killed")
    (runs_of_it / "killed").mkdir()

    with kept(place):
        assert is_as_it_was()
        catalog.write_bytes(b"another")
        (runs_of_it / "another").mkdir()

    assert is_as_it_was()
    assert list(place.home.path.glob("*.kept")) == []


@pytest.mark.long
def test_each_command_is_measured_over_each_shape(folder: Path) -> None:
    said: list[str] = []

    found = costs(said.append, folder, 1, [Shape(), SMALL])

    results = Results(0, 1, "", "2026-01-01", {}, costs=found)
    assert [(cost.shape, cost.command) for cost in found] == [
        (shape, command) for shape in ("empty table", "90 rows, 3 days, 4 runs") for command in COMMANDS
    ]
    assert all(cost.wall_s > 0 and cost.cpu_s > 0 and 10 < cost.rss_mb < 2_000 for cost in found)
    assert [row[0] for row in growth_rows(results)] == list(COMMANDS)
    assert len(said) == len(found) + 2
    assert "| empty table | 90 rows, 3 days, 4 runs | against an empty table |" in markdown([results], [])


def test_a_cost_is_held_to_its_bar() -> None:
    empty, large = "empty table", "1 M rows, 3 days, 4 runs"
    told = [("stale", 1.0, 1.9), ("days", 1.0, 2.1), ("report of that run", 1.0, 1.3), ("plan", 2.0, 3.1)]
    told += [("run of one small day", 9.0, 10.0)]
    found = [
        Cost(name, shape, 4.0, value, 100.0)
        for name, *values in told
        for shape, value in zip((empty, large), values, strict=True)
    ]
    found += [Cost("show", each, 1, 1, 500) for each in (empty, large)]
    results = Results(0, 1, "", "", {}, costs=found)

    assert growth_columns(results) == ("command", empty, large, "against an empty table", "asked", "met")
    assert growth_rows(results)[0] == (
        "stale",
        "1.00 s (4.0 s), 100 MB",
        "1.90 s (4.0 s), 100 MB",
        "1.90 x",
        "at most 3 s, 2 x, 400 MB",
        "yes",
    )
    assert {row[0]: row[-1] for row in growth_rows(results)} == {
        "stale": "yes",
        "days": "no",
        "report of that run": "no",
        "plan": "no",
        "run of one small day": "yes",
        "show": "no",
    }
    assert str(bar_of("run of one small day")) == "at most 2 x, 400 MB"


def test_fewer_rows_leave_days_and_runs_as_many() -> None:
    assert [str(shape) for shape in scaled(3_000)] == [
        "empty table",
        "300 rows, 30 days, 10 runs",
        "3,000 rows, 30 days, 10 runs",
        "3,000 rows, 3,000 days, 1,000 runs",
    ]
    assert scaled(200_000_000) == SHAPES
