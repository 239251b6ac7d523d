from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backstream.errors import ConflictError, LedgerError
from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.lake import maintenance as module
from backstream.lake.maintenance import VacuumResult, list_reachable_files, vacuum_tables
from backstream.lake.publication.data_files import to_data_files
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.rollback import roll_back_run
from backstream.lake.reader import content_hash, load_rows
from backstream.lake.storage import comparable_location
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.results import Publication

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

DAY = ("2013-02-01", "2013-02-02")
WEEK_MS = 7 * DAY_MS
FUTURE_MS = int(time.time() * SECOND_MS) + DAY_MS


def files(lake: Lake) -> set[Path]:
    """Return every file in the warehouse."""
    return {path for path in lake.home.warehouse.rglob("*") if path.is_file()}


def make_old(paths: set[Path], days: int = 8) -> None:
    """Set the modification times of files to some days ago."""
    at_s = time.time() - days * DAY_MS / SECOND_MS
    for path in paths:
        os.utime(path, (at_s, at_s))


def files_of_run(lake: Lake, run_id: str) -> set[Path]:
    """Return the data files of a run."""
    return {path for path in files(lake) if f"/data/{run_id}/" in str(path)}


def by_table(results: list[VacuumResult]) -> dict[str, int]:
    """Return the number of removed files by table."""
    return {result.table: result.files for result in results}


def test_a_lake_without_orphan_files_is_unchanged(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    before = files(lake)

    found = vacuum_tables(lake.home, "flights", 0)

    assert by_table(found) == {"flights": 0, "flights__metrics": 0, "flights__restatements": 0}
    assert files(lake) == before


@pytest.mark.parametrize(
    ("location", "same"),
    [
        ("file:/lake/a b/c.parquet", "/lake/a b/c.parquet"),  # by Iceberg's Java library
        ("file:///lake/c.parquet", "/lake/c.parquet"),  # by PyIceberg
        ("/lake/c.parquet", "/lake/c.parquet"),
        ("s3a://lake/c.parquet", "s3://lake/c.parquet"),
        ("s3n://lake/s3a://c.parquet", "s3://lake/s3a://c.parquet"),
        ("gs://lake/file:/c.parquet", "gs://lake/file:/c.parquet"),
    ],
)
def test_a_file_is_the_same_by_each_scheme_that_programs_write(location: str, same: str) -> None:
    assert comparable_location(location) == same


def test_files_that_spark_has_added_are_kept(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    table, theirs = lake.table(), lake.plan("2013-02-02", "2013-02-03", "theirs")
    files = lake.staged(theirs, {"2013-02-02T07:00Z": 4})[0].files[""]
    [added] = to_data_files(table, files, [f"file:{file.path}" for file in files])
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(added)

    vacuum_tables(lake.home, "flights", 0)

    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T07:00Z": 4}


def test_old_staged_files_that_were_never_published_are_removed(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*DAY, "abandoned")
    lake.staged(plan, {"2013-02-01T05:00Z": 2}, metrics=[("EWR", 2)])
    staged = files_of_run(lake, plan.run_id)
    assert len(staged) == 2
    before = files(lake)
    size_bytes = sum(path.stat().st_size for path in staged)

    recent = vacuum_tables(lake.home, "flights", WEEK_MS)
    make_old(files(lake))
    old = vacuum_tables(lake.home, "flights", WEEK_MS)

    assert by_table(recent) == {"flights": 0, "flights__metrics": 0}
    assert by_table(old) == {"flights": 1, "flights__metrics": 1}
    assert sum(item.size_bytes for item in old) == size_bytes
    assert files(lake) == before - staged
    assert not any(path.parent.exists() for path in staged)


def test_the_folders_of_a_killed_attempt_go_with_its_files(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    scratch = next(lake.home.warehouse.rglob("data")) / "killed/20130201-1.scratch"
    for name in ("counts", "units"):
        (scratch / name).mkdir(parents=True)
    (scratch / "counts/0-1.parquet").write_text("counts")
    make_old({scratch / "counts/0-1.parquet"})

    vacuum_tables(lake.home, "flights", WEEK_MS)

    assert not scratch.exists()


def test_a_dry_run_reports_the_same_files_and_removes_none(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*DAY, "abandoned")
    lake.staged(plan, {"2013-02-01T05:00Z": 2}, metrics=[("EWR", 2)])
    before = files(lake)

    reported = vacuum_tables(lake.home, "flights", 0, dry_run=True)

    assert files(lake) == before
    assert vacuum_tables(lake.home, "flights", 0) == reported


def test_files_of_a_recent_commit_are_not_reported_as_orphans(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    manifest = lake.home.warehouse / "backstream" / "flights" / "metadata" / "another-m0.avro"
    manifest.touch()

    recent = vacuum_tables(lake.home, "flights", WEEK_MS, dry_run=True)
    make_old({manifest})
    old = vacuum_tables(lake.home, "flights", WEEK_MS, dry_run=True)

    assert (by_table(recent)["flights"], by_table(old)["flights"]) == (0, 1)


def test_an_old_chunk_of_a_run_with_a_recent_chunk_is_kept(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-03")
    manifests = lake.staged(
        plan, {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2}, metrics=[("EWR", 1), ("JFK", 2)]
    )
    (metrics,) = (Path(file.path) for file in manifests[0].files["metrics"])
    recent = Path(manifests[1].files[""][0].path)
    make_old(files(lake) - {recent})
    assert metrics != recent

    vacuum_tables(lake.home, "flights", WEEK_MS)

    assert not publish_range(plan, manifests).already
    assert lake.departures() == {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 2}


def test_a_publication_protects_files_that_were_staged_long_ago(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lake.plan(*DAY)
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 1}, metrics=[("EWR", 1)])
    make_old(files(lake))
    listed: Callable[..., set[str]] = module.list_reachable_files

    def publishing(*arguments: object) -> set[str]:
        found = listed(*arguments)
        module.protect_staged_files(plan, manifests)  # as `publish_range` does before it checks the files
        return found

    monkeypatch.setattr(module, "list_reachable_files", publishing)

    vacuum_tables(lake.home, "flights", WEEK_MS)

    assert publish_range(plan, manifests).rows == 1
    assert lake.departures() == {"2013-02-01T05:00Z": 1}


def test_files_of_a_snapshot_that_was_expired_go(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    (replaced,) = files_of_run(lake, first.run_id)
    lake.expire(first)

    # The data file, its manifest, and the manifest list, but not the metadata in the log.
    assert by_table(vacuum_tables(lake.home, "flights", 0))["flights"] == 3
    assert not replaced.exists()
    assert lake.departures() == {"2013-02-01T05:00Z": 2}


def test_expiry_takes_old_snapshots_without_a_tag_only(lake: Lake) -> None:
    first = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    second = lake.publish(*DAY, {"2013-02-01T05:00Z": 2}, trigger="later")
    lake.publish(*DAY, {"2013-02-01T05:00Z": 3}, trigger="last")
    lake.table().manage_snapshots().remove_tag(f"run/{second.run_id}").commit()
    kept_ids = {item.snapshot_id for item in lake.table().snapshots()} - {second.snapshots[""]}

    dry = vacuum_tables(lake.home, "flights", 0, expire_before_ms=FUTURE_MS, dry_run=True)
    early = vacuum_tables(lake.home, "flights", 0, expire_before_ms=0)
    done = vacuum_tables(lake.home, "flights", 0, expire_before_ms=FUTURE_MS)

    assert [item[0].expired_snapshots for item in (dry, early, done)] == [1, 0, 1]
    assert {item.snapshot_id for item in lake.table().snapshots()} == kept_ids
    assert [path.parents[3].name for path in files_of_run(lake, second.run_id)] == ["flights__restatements"]
    assert load_rows(lake.home, "flights", snapshot_id=first.snapshots[""])["departures"].to_pylist() == [1]


def test_a_checksum_stays_with_its_file(lake: Lake) -> None:
    done = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    (data,) = files_of_run(lake, done.run_id)
    kept, left = data.with_name(f".{data.name}.crc"), data.with_name(".gone.parquet.crc")
    kept.touch()
    left.touch()

    vacuum_tables(lake.home, "flights", 0)

    assert (kept.exists(), left.exists()) == (True, False)


def test_other_datasets_are_left_alone(lake: Lake) -> None:
    lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    other = lake.home.warehouse / "backstream" / "clicks" / "data" / "run" / "0" / "part.parquet"
    other.parent.mkdir(parents=True)
    other.touch()

    vacuum_tables(lake.home, "flights", 0)

    assert other.exists()


def test_a_dataset_that_is_not_there_is_named(lake: Lake) -> None:
    with pytest.raises(LedgerError) as caught:
        vacuum_tables(lake.home, "clicks", 0)

    assert str(caught.value) == f"no dataset `clicks` in {lake.home.path}"


@dataclass
class History:
    """A random history of a lake, with the permanent content of each snapshot."""

    lake: Lake
    dice: random.Random
    published: list[Publication] = field(default_factory=list)
    staged: list[tuple[Plan, list[Manifest]]] = field(default_factory=list)
    recent: set[Path] = field(default_factory=set)
    contents: dict[int, str] = field(default_factory=dict)

    def step(self, number: int) -> None:
        """Perform a random action, and sometimes let a week pass."""
        before = files(self.lake)
        actions = [self.publish, self.publish, self.stage, self.finish, self.roll_back, self.expire]
        (self.dice.choice(actions) if number else self.publish)(number)
        self.recent |= files(self.lake) - before
        if (now := self.lake.table().current_snapshot()) and now.snapshot_id not in self.contents:
            self.contents[now.snapshot_id] = self.content(now.snapshot_id)
        if self.dice.random() < 0.3:
            make_old(files(self.lake))
            self.recent.clear()

    def stage(self, number: int) -> None:
        """Stage all chunks of a run."""
        first = self.dice.randint(1, 3)
        last = self.dice.randint(first, 3)
        plan = self.lake.plan(f"2013-02-0{first}", f"2013-02-0{last + 1}", f"r{number}")
        counts = {f"2013-02-0{day}T05:00Z": self.dice.randint(0, 2) for day in range(first, last + 1)}
        self.staged.append((plan, self.lake.staged(plan, counts, metrics=[("EWR", 1)])))

    def publish(self, number: int) -> None:
        """Plan, stage, and publish a run."""
        self.stage(number)
        plan, manifests = self.staged.pop()
        self.published.append(publish_range(plan, manifests))

    def finish(self, _: int) -> None:
        """Publish a staged run, unless another run published first."""
        waiting = [
            item
            for item in self.staged
            if all(Path(file.path) in self.recent for manifest in item[1] for file in manifest.files[""])
        ]
        if waiting:
            chosen = self.dice.choice(waiting)
            self.staged.remove(chosen)
            try:
                self.published.append(publish_range(*chosen))
            except ConflictError:
                return

    def roll_back(self, _: int) -> None:
        """Roll back a run if possible."""
        if self.published:
            try:
                roll_back_run(self.lake.home, self.dice.choice(self.published).run_id)
            except (ConflictError, LedgerError):
                return

    def expire(self, _: int) -> None:
        """Expire the snapshot of a run, unless it is the current one."""
        current = self.lake.table().metadata.current_snapshot_id
        lost = [item for item in self.published if item.snapshots[""] != current]
        if lost:
            chosen = self.dice.choice(lost)
            self.published.remove(chosen)
            self.lake.expire(chosen)

    def content(self, snapshot_id: int) -> str:
        """Return a hash of the table in a snapshot."""
        return content_hash(load_rows(self.lake.home, "flights", snapshot_id=snapshot_id))


@pytest.mark.parametrize("seed", range(4))
def test_after_any_history_a_vacuum_keeps_exactly_the_reachable_and_recent_files(lake: Lake, seed: int) -> None:
    history = History(lake, random.Random(seed))  # noqa: S311 - the same history each time
    for number in range(11):
        history.step(number)

        vacuum_tables(lake.home, "flights", WEEK_MS)

        left = files(lake)
        assert history.recent <= left
        tables = [path.name for path in (lake.home.warehouse / "backstream").iterdir()]
        reached = set().union(*(list_reachable_files(lake.table(name)) for name in tables))
        assert {path for path in left if str(path) not in reached and path not in history.recent} == set()
        for snapshot in lake.table().snapshots():
            if snapshot.snapshot_id in history.contents:
                assert history.content(snapshot.snapshot_id) == history.contents[snapshot.snapshot_id]


def test_drafts_that_killed_writers_left_go_when_they_are_old(lake: Lake) -> None:
    done = lake.publish(*DAY, {"2013-02-01T05:00Z": 1})
    folder = lake.home.run("flights", done.run_id)
    draft = folder.manifest("c1").with_name(f".c1.json.{'0123456789abcdef' * 2}")
    draft.parent.mkdir(parents=True)
    draft.write_text("{")
    folder.manifest("c1").write_text("{}")

    recent = vacuum_tables(lake.home, "flights", WEEK_MS)
    make_old({draft, folder.manifest("c1")})
    reported = vacuum_tables(lake.home, "flights", WEEK_MS, dry_run=True)
    assert draft.exists()
    old = vacuum_tables(lake.home, "flights", WEEK_MS)

    assert "(drafts)" not in by_table(recent)
    assert old == reported
    assert old[-1] == VacuumResult("(drafts)", 1, 1, 0, 0)
    assert not draft.exists()
    assert folder.manifest("c1").exists()
