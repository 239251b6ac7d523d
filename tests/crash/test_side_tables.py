"""Side tables keep rows of runs that were never published; the documented SQL takes the others."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
from tests.crash.conftest import DAYS
from tests.crash.world import World

from backstream.lake.reader import load_rows
from backstream.workflow.history import rollback_run

DOCUMENT = Path(__file__).parents[2] / "docs/publishing.md"
COMMIT = r"create .*/clicks/metadata/.*-m\d+.avro"


def runs_found(world: World, query: str) -> set[str]:
    """The runs whose rows a statement finds."""
    with duckdb.connect() as connection:
        for name in ("clicks", "clicks__metrics", "runs"):
            connection.register(name, load_rows(world.home, name))
        return set(connection.sql(query).to_arrow_table()["run_id"].to_pylist())


def test_the_documented_statements_leave_out_who_lost_and_what_was_undone(world: World) -> None:
    first = world.ran("first", DAYS, 0)["said"][1]
    world.forks.run(world.job("loser", DAYS[:1], 1, die_at=[COMMIT]))
    wrong = world.ran("wrong", DAYS, 2)["said"][1]
    (refused,) = world.forks.run(world.job("loser", DAYS[:1], 1))
    assert refused["said"][0] == "ConflictError"
    loser = world.plan_of("loser")
    assert loser

    published, standing = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)

    assert runs_found(world, "select run_id from clicks__metrics") == {first, loser.run_id, wrong}
    assert runs_found(world, published) == {first, wrong}
    assert runs_found(world, standing) == {wrong}
    rollback_run(world.home, wrong)
    assert runs_found(world, standing) == {first}
