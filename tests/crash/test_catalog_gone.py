"""Check that a run reports the failure of its catalog during the publication, and that a retry completes it."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.conftest import DAYS
from tests.crash.world import Forks, Source, World
from tests.lake.postgres import QUICK, binaries, running

from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE

pytestmark = pytest.mark.slow

COMMIT = r"create .*/clicks/metadata/.*-m\d+.avro"
PUBLISH = "could not publish clicks 2024-03-01T00:00Z to 2024-03-04T00:00Z: the catalog failed: "
OPEN = "cannot open the catalog "
POINTS = {
    "planned": ([r"os.mkdir .*/data/"], OPEN, False),
    "side table": ([r"create .*/clicks__panes/metadata/"], "could not append to table `clicks__panes`: ", False),
    # The processes of the server may answer once more, so the run may or may not be published. Once it is, only
    # its row in the ledger needs the server.
    "before the commit": ([COMMIT, "before UPDATE"], (PUBLISH, OPEN), None),
    "in the transaction": ([COMMIT, "after UPDATE"], (PUBLISH, OPEN), None),
    "committed": ([COMMIT, "after UPDATE", "connection given back"], (PUBLISH, OPEN), True),
}


def test_a_postgres_that_is_killed_while_a_run_publishes(
    source: Source, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL on this machine")
    with running(folder, QUICK) as server:
        uri = server.new_database()
        monkeypatch.setenv(CATALOG_VARIABLE, uri)
        world = World(Home(tmp_path / "home"), source, forks, uri)
        world.run_to_end("first", DAYS, 0)
        for number, (name, (patterns, error, is_visible)) in enumerate(POINTS.items(), start=1):
            trigger, before = f"k{number}", world.states[-1]
            assert server.process
            job = world.job(trigger, DAYS, number, quit_at=patterns, pid=server.process.pid)
            (failed,) = world.forks.run(job)
            server.process.wait()

            kind, message = failed["outcome"]
            assert kind == "CatalogError", (name, failed)
            assert message.startswith(error), (name, message)
            assert uri.partition("?")[0] in message
            server.start()
            after = world.state_with(trigger, DAYS, number)
            state = world.current_state()
            assert state in (before, after), name
            assert is_visible in (None, state == after), name
            retried = world.run_to_end(trigger, DAYS, number)
            assert retried["outcome"][0] == ("already" if state == after else "published"), name
        world.require_complete()


def test_a_sqlite_that_another_process_locks(
    source: Source, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "home/catalog.db"
    uri = f"sqlite:///{file}?timeout=0.3"
    monkeypatch.setenv(CATALOG_VARIABLE, uri)
    world = World(Home(tmp_path / "home"), source, forks, uri)
    world.run_to_end("first", DAYS, 0)
    world.forks.run(world.job("k1", DAYS, 1, die_at=[COMMIT]))
    with closing(sqlite3.connect(file)) as holder:
        holder.execute("BEGIN IMMEDIATE")  # others can read but not write
        begin = time.monotonic()
        (failed,) = world.forks.run(world.job("k1", DAYS, 1))
        assert time.monotonic() - begin < 60
        holder.rollback()

    kind, message = failed["outcome"]
    assert kind == "CatalogError"
    assert message == (
        f"{PUBLISH}{uri}\n  database is locked\n\n"
        "hint: run the same command again when the catalog is available; committed work is not repeated"
    )
    assert world.current_state() == world.states[-1]
    world.run_to_end("k1", DAYS, 1)
    assert world.current_state() == world.states[-1]
    world.require_complete()


def test_a_read_only_sqlite(world: World) -> None:
    world.run_to_end("first", DAYS, 0)
    uri = f"sqlite:///file:{world.home.path}/catalog.db?mode=ro&uri=true"

    (failed,) = world.forks.run(world.job("k1", DAYS, 1, environment={CATALOG_VARIABLE: uri}))

    assert failed["outcome"][0] == "CatalogError"
    assert "attempt to write a readonly database" in failed["outcome"][1]
    assert world.current_state() == world.states[-1]
    world.run_to_end("k1", DAYS, 1)
