"""The history of windows is expired on request; that of append-only tables is expired automatically."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile
from tests.lake.conftest import Lake

from backstream.errors import LedgerError
from backstream.eventtime.instants import instant_ms
from backstream.lake import compaction, maintenance
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.ledger import record_run, run_row
from backstream.lake.maintenance import expire_side_table_snapshots, vacuum_tables
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.reader import load_published_rows
from backstream.lake.run_rows import list_runs
from backstream.lake.snapshot_producers import write_data_files
from backstream.lake.snapshots import list_tagged_snapshots
from backstream.runs.plan import Plan
from backstream.runs.results import Publication, Verdict
from backstream.runs.status import RunStatus

pytestmark = pytest.mark.slow

RANGE = ("2013-02-01", "2013-02-02")
METRICS = [("EWR", 3)]


def publish_repeatedly(lake: Lake, count: int) -> list[Publication]:
    """Publish the same day repeatedly, record the runs in the ledger, and return their publications."""
    return [_published(lake, number) for number in range(1, count + 1)]


def _published(lake: Lake, number: int, plan: Plan | None = None) -> Publication:
    plan = plan or lake.plan(*RANGE, trigger=f"run{number}")
    done = publish_range(plan, lake.staged(plan, {"2013-02-01T05:00Z": number}, METRICS))
    span_ms = (instant_ms("2026-01-01", ""), instant_ms("2026-01-01", "") + number)
    record_run(lake.home, run_row(plan, RunStatus.PUBLISHED, span_ms, Verdict.PASS, done.rows))
    expire_side_table_snapshots(lake.home, plan.dataset)
    return done


def test_only_the_newest_runs_keep_their_tags_and_can_be_rolled_back(lake: Lake) -> None:
    done = publish_repeatedly(lake, 6)

    dry_results, results = (
        vacuum_tables(lake.home, "flights", 0, keep_runs=2, dry_run=dry_run) for dry_run in (True, False)
    )

    assert [item.expired_snapshots for item in (dry_results[0], results[0])] == [3, 3]
    assert set(list_tagged_snapshots(lake.table())) == {item.run_id for item in done[-2:]}
    versions = [snapshot.sequence_number for snapshot in lake.table().snapshots()]
    assert versions == [4, 5, 6]  # the base of the oldest kept run stays
    assert lake.departures() == {"2013-02-01T05:00Z": 6}
    roll_back_run(lake.home, done[-1].run_id)
    assert lake.departures() == {"2013-02-01T05:00Z": 5}
    with pytest.raises(
        LedgerError, match=r"snapshot of run .* has expired; according to the ledger, it published"
    ):
        roll_back_run(lake.home, done[0].run_id)


def test_expired_runs_still_count_as_published(lake: Lake) -> None:
    plan = lake.plan(*RANGE, trigger="first")
    first = _published(lake, 0, plan)
    publish_repeatedly(lake, 3)

    vacuum_tables(lake.home, "flights", 0, keep_runs=1)

    assert load_published_rows(lake.home, "flights", "metrics").num_rows == 4
    again = publish_range(plan, [])
    assert (again.already, again.run_id) == (True, first.run_id)


def test_keeping_more_runs_than_there_are_lets_go_of_nothing(lake: Lake) -> None:
    publish_repeatedly(lake, 3)

    assert vacuum_tables(lake.home, "flights", 0, keep_runs=3)[0].expired_snapshots == 0
    assert len(list_tagged_snapshots(lake.table())) == 3


def test_tables_whose_rows_name_their_run_keep_few_snapshots(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_SNAPSHOTS", 4)
    monkeypatch.setattr(compaction, "KEPT_SNAPSHOTS", 2)

    publish_repeatedly(lake, 12)

    for name in ("flights__metrics", "flights__restatements", "runs"):
        assert len(lake.table(name).snapshots()) <= 5, name
    assert len(lake.table().snapshots()) == 12
    assert load_published_rows(lake.home, "flights", "metrics").num_rows == 12
    assert len(list_runs(lake.home)) == 12


def test_the_ledger_does_not_get_a_file_per_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_FILES", 3)

    done = publish_repeatedly(lake, 9)

    assert len(list(lake.table("runs").scan().plan_files())) <= 3
    assert [row.run_id for row in list_runs(lake.home)] == [item.run_id for item in reversed(done)]


def test_a_row_that_is_recorded_while_files_become_one_is_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_repeatedly(lake, 4)

    def interrupted(*arguments: Any) -> Iterable[DataFile]:
        with monkeypatch.context() as undone:
            undone.setattr(compaction, "MAX_FILES", 100)
            _published(lake, 5)
        return write_data_files(*arguments)

    monkeypatch.setattr(compaction, "MAX_FILES", 3)
    monkeypatch.setattr(compaction, "write_data_files", interrupted)
    with open_catalog_for_writing(lake.home) as catalog:
        assert compaction.compact_data_files(catalog, "runs") == 0

    assert len(list_runs(lake.home)) == 5


def test_a_run_that_was_not_published_finds_that_it_has_written_its_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_SNAPSHOTS", 4)
    monkeypatch.setattr(compaction, "KEPT_SNAPSHOTS", 2)
    interrupted = lake.plan("2013-02-05", "2013-02-06", trigger="interrupted")
    manifests = lake.staged(interrupted, {"2013-02-05T05:00Z": 9}, METRICS)
    with monkeypatch.context() as broken:
        broken.setattr("backstream.lake.publication.publish._commit_windows", _killed)
        with pytest.raises(KeyboardInterrupt):
            publish_range(interrupted, manifests)
    publish_repeatedly(lake, 8)

    publish_range(interrupted, manifests)

    rows = load_published_rows(lake.home, "flights", "metrics")
    assert rows.num_rows == 9
    assert rows["run_id"].to_pylist().count(interrupted.run_id) == 1


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_manifests_are_merged_so_that_a_commit_reads_few(lake: Lake) -> None:
    publish_repeatedly(lake, 25)

    with open_catalog_for_writing(lake.home):
        table = lake.table("flights__metrics")
        current = table.current_snapshot()
        assert current is not None
        assert len(current.manifests(table.io)) < 20
    assert load_published_rows(lake.home, "flights", "metrics").num_rows == 25


def test_a_file_made_young_at_the_last_moment_is_put_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication begins between the check and the removal by a vacuum."""
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    plan = lake.plan("2013-02-02", "2013-02-03")
    manifests = lake.staged(plan, {"2013-02-02T05:00Z": 2})
    [file] = manifests[0].files[""]
    os.utime(file.path, (0, 0))
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if str(path) == file.path:
            maintenance.protect_staged_files(plan, manifests)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    vacuum_tables(lake.home, "flights", 3_600_000)

    publish_range(plan, manifests)
    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2}
