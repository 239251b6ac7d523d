"""Many processes publish at the same moment: into days of their own, and into the same days."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.crash.conftest import SINCE_MS
from tests.crash.world import Source, World, hash_of
from tests.workflow.history import at, write_clicks

from backstream.eventtime.instants import DAY_MS
from backstream.lake import snapshots
from backstream.lake.catalog import NAMESPACE, open_catalog_for_writing
from backstream.lake.ledger import Status, list_runs
from backstream.lake.reader import load_published_rows

PUBLISHERS = 6
BOTH = pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def later(source: Source) -> Iterator[None]:
    """Events on the days after those that Spark has seen, so that they can be planned."""
    file = source.definition.parent / "data/later.parquet"
    write_clicks(file, [(at(f"{day} 12:00"), at(f"{day} 12:01"), "A", day, "home") for day in range(4, 9)])
    yield
    file.unlink()


def days_from(first: int, count: int = 1) -> list[int]:
    """Days of the history, by their number."""
    return [SINCE_MS + (first + number) * DAY_MS for number in range(count)]


def planned(world: World, asked: dict[str, list[int]]) -> dict[str, str]:
    """Plan runs one after the other, against the same state of the lake; trigger to run id."""
    return {
        trigger: world.forks.run(world.job(trigger, days, 0, plan_only=True))[0]["said"][1]
        for trigger, days in asked.items()
    }


def said_together(world: World, asked: dict[str, list[int]]) -> dict[str, list[str]]:
    """Carry out runs at the same moment; trigger to what became of each."""
    jobs = [world.job(trigger, days, more) for more, (trigger, days) in enumerate(asked.items(), start=1)]
    answers = world.forks.run(*jobs)
    assert [answer["exit"] for answer in answers] == [0] * len(jobs)
    return {trigger: answer["said"] for trigger, answer in zip(asked, answers, strict=True)}


def in_order(world: World) -> list[str]:
    """The runs as the table has them, first to last."""
    with open_catalog_for_writing(world.home) as catalog:
        table = catalog.load_table((NAMESPACE, "clicks"))
        return [
            snapshots.summary_property(each, snapshots.RUN_ID) or "" for each in snapshots.list_ancestors(table)
        ][::-1]


@BOTH
def test_runs_of_disjoint_days_are_all_published(world: World) -> None:
    asked = {f"day{number}": days_from(number) for number in range(PUBLISHERS)}
    ids = planned(world, asked)

    said = said_together(world, asked)

    assert said == {trigger: ["published", ids[trigger]] for trigger in asked}
    for more, trigger in enumerate(asked, start=1):
        world.published(ids[trigger], asked[trigger], more)
    assert world.seen() == world.states[-1]
    world.require_all_there()


@BOTH
def test_of_runs_of_the_same_days_one_wins_and_the_others_name_it(world: World) -> None:
    world.ran("first", days_from(0, 2), 0)
    asked = {f"run{number}": days_from(number % 2, 2) for number in range(PUBLISHERS)}
    ids = planned(world, asked)

    said = said_together(world, asked)

    (winner,) = (trigger for trigger in asked if said[trigger][0] == "published")
    losers = [said[trigger] for trigger in asked if trigger != winner]
    assert {each[0] for each in losers} == {"ConflictError"}
    assert [each for each in losers if f"published by run {ids[winner]}" not in each[1]] == []
    world.published(ids[winner], asked[winner], list(asked).index(winner) + 1)
    assert world.seen() == world.states[-1]
    metrics = set(load_published_rows(world.home, "clicks", "metrics")["run_id"].to_pylist())
    assert metrics == set(world.runs)
    refused = {row.run_id for row in list_runs(world.home) if row.status is Status.REFUSED}
    assert refused == {ids[trigger] for trigger in asked if trigger != winner}


@BOTH
def test_what_was_acknowledged_is_what_the_table_holds(world: World) -> None:
    random = Random(7)  # noqa: S311 - ranges, not secrets
    asked = {f"run{number}": days_from(random.randrange(6), random.randint(1, 2)) for number in range(PUBLISHERS)}
    ids = planned(world, asked)

    said = said_together(world, asked)

    more = {ids[trigger]: (asked[trigger], number) for number, trigger in enumerate(asked, start=1)}
    committed = in_order(world)
    assert sorted(committed) == sorted(ids[trigger] for trigger in asked if said[trigger][0] == "published")
    for run_id in committed:
        world.published(run_id, *more[run_id])
    assert world.seen() == world.states[-1] == hash_of(row for rows in world.days.values() for row in rows)
    taken = [day for run_id in committed for day in more[run_id][0]]
    assert len(taken) == len(set(taken))
