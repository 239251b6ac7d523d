"""Check the documented SQL: side tables keep rows of unpublished runs, and it excludes them."""

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


def query_run_ids(world: World, query: str) -> set[str]:
    """Return the runs whose rows a statement returns."""
    with duckdb.connect() as connection:
        for name in ("clicks", "clicks__metrics", "runs"):
            connection.register(name, load_rows(world.home, name))
        return set(connection.sql(query).to_arrow_table()["run_id"].to_pylist())


def test_the_documented_statements_exclude_refused_runs_and_rolled_back_runs(world: World) -> None:
    first = world.run_to_end("first", DAYS, 0)["outcome"][1]
    world.forks.run(world.job("loser", DAYS[:1], 1, die_at=[COMMIT]))
    wrong = world.run_to_end("wrong", DAYS, 2)["outcome"][1]
    (refused,) = world.forks.run(world.job("loser", DAYS[:1], 1))
    assert refused["outcome"][0] == "ConflictError"
    loser = world.find_plan("loser")
    assert loser

    published, current = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)

    assert query_run_ids(world, "select run_id from clicks__metrics") == {first, loser.run_id, wrong}
    assert query_run_ids(world, published) == {first, wrong}
    assert query_run_ids(world, current) == {wrong}
    rollback_run(world.home, wrong)
    assert query_run_ids(world, current) == {first}
