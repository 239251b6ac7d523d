"""Check runs that publish at the same moment, into different days and into the same days."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.crash.conftest import SINCE_MS
from tests.crash.world import Source, World, hash_rows
from tests.workflow.history import at, write_clicks

from backstream.eventtime.instants import DAY_MS
from backstream.lake import snapshots
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.reader import load_published_rows
from backstream.lake.run_rows import list_runs
from backstream.runs.status import RunStatus

pytestmark = pytest.mark.slow

PUBLISHERS = 4
BOTH = pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def later(source: Source) -> Iterator[None]:
    """Write events on later days than those of Spark's run, so that they can be planned."""
    file = source.definition.parent / "data/later.parquet"
    write_clicks(file, [(at(f"{day} 12:00"), at(f"{day} 12:01"), "A", day, "home") for day in range(4, 9)])
    yield
    file.unlink()


def days_from(first: int, count: int = 1) -> list[int]:
    """Return adjacent days of the history."""
    return [SINCE_MS + (first + number) * DAY_MS for number in range(count)]


def plan_all(world: World, days_by_trigger: dict[str, list[int]]) -> dict[str, str]:
    """Plan runs one after the other against the same state of the lake, and return the run ids by trigger."""
    return {
        trigger: world.forks.run(world.job(trigger, days, 0, plan_only=True))[0]["outcome"][1]
        for trigger, days in days_by_trigger.items()
    }


def run_together(world: World, days_by_trigger: dict[str, list[int]]) -> dict[str, list[str]]:
    """Run jobs at the same moment, and return the outcomes by trigger."""
    jobs = [
        world.job(trigger, days, more) for more, (trigger, days) in enumerate(days_by_trigger.items(), start=1)
    ]
    answers = world.forks.run(*jobs)
    assert [answer["exit"] for answer in answers] == [0] * len(jobs)
    return {trigger: answer["outcome"] for trigger, answer in zip(days_by_trigger, answers, strict=True)}


def list_committed_runs(world: World) -> list[str]:
    """Return the published runs in the order of their snapshots."""
    with open_catalog_for_writing(world.home) as catalog:
        table = catalog.load_table(table_identifier("clicks"))
        return [
            snapshots.summary_property(snapshot, snapshots.RUN_ID) or ""
            for snapshot in snapshots.list_ancestors(table)
        ][::-1]


@BOTH
def test_runs_of_disjoint_days_are_all_published(world: World) -> None:
    days_by_trigger = {f"day{number}": days_from(number) for number in range(PUBLISHERS)}
    ids = plan_all(world, days_by_trigger)

    outcomes = run_together(world, days_by_trigger)

    assert outcomes == {trigger: ["published", ids[trigger]] for trigger in days_by_trigger}
    for more, trigger in enumerate(days_by_trigger, start=1):
        world.expect_published(ids[trigger], days_by_trigger[trigger], more)
    assert world.current_state() == world.states[-1]
    world.require_complete()


@BOTH
def test_one_of_several_runs_of_the_same_days_is_published_and_the_errors_of_the_others_name_it(
    world: World,
) -> None:
    world.run_to_end("first", days_from(0, 2), 0)
    days_by_trigger = {f"run{number}": days_from(number % 2, 2) for number in range(PUBLISHERS)}
    ids = plan_all(world, days_by_trigger)

    outcomes = run_together(world, days_by_trigger)

    (winner,) = (trigger for trigger in days_by_trigger if outcomes[trigger][0] == "published")
    losers = [outcomes[trigger] for trigger in days_by_trigger if trigger != winner]
    assert {loser[0] for loser in losers} == {"ConflictError"}
    assert [loser for loser in losers if f"published by run {ids[winner]}" not in loser[1]] == []
    world.expect_published(ids[winner], days_by_trigger[winner], list(days_by_trigger).index(winner) + 1)
    assert world.current_state() == world.states[-1]
    metrics = set(load_published_rows(world.home, "clicks", "metrics")["run_id"].to_pylist())
    assert metrics == set(world.runs)
    refused = {row.run_id for row in list_runs(world.home) if row.status is RunStatus.REFUSED}
    assert refused == {ids[trigger] for trigger in days_by_trigger if trigger != winner}


@BOTH
def test_the_table_has_the_acknowledged_publications(world: World) -> None:
    random = Random(7)  # noqa: S311 - ranges, not secrets
    days_by_trigger = {
        f"run{number}": days_from(random.randrange(6), random.randint(1, 2)) for number in range(PUBLISHERS)
    }
    ids = plan_all(world, days_by_trigger)

    outcomes = run_together(world, days_by_trigger)

    more = {
        ids[trigger]: (days_by_trigger[trigger], number) for number, trigger in enumerate(days_by_trigger, start=1)
    }
    committed = list_committed_runs(world)
    assert sorted(committed) == sorted(
        ids[trigger] for trigger in days_by_trigger if outcomes[trigger][0] == "published"
    )
    for run_id in committed:
        world.expect_published(run_id, *more[run_id])
    assert (
        world.current_state() == world.states[-1] == hash_rows(row for rows in world.days.values() for row in rows)
    )
    published_days = [day for run_id in committed for day in more[run_id][0]]
    assert len(published_days) == len(set(published_days))
