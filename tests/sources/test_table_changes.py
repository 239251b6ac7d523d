"""Copies of a table's files hold the records of its current snapshot, whatever other programs did to the table."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from pyspark.sql import SparkSession
from tests.prepared.events import FIRST_DAY, Event, make_events
from tests.sources import tables
from tests.sources.definitions import PLAIN, write_orders
from tests.sources.tables import Archive

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.definition.prepared import copies_folder, prepared_folder
from backstream.errors import PlanError, SpecError
from backstream.lake.necessary_filter import necessary_filter
from backstream.lake.source_tables import SourceTableState
from backstream.runs.home import Home
from backstream.source.prepared import PreparedSource
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

ORDERS = 'format = "iceberg"\npath = "archive.sales.orders"\nkey = ["user"]\n' + PLAIN


@dataclass
class World:
    """A table, the events that it must have, and a definition that reads it."""

    archive: Archive
    home: Home
    definition: Path
    spark: SparkSession
    events: list[Event] = field(default_factory=list)

    @property
    def copies(self) -> Path:
        """The folder of the copies."""
        return copies_folder(resolve_raw_paths(load_definition(self.definition), self.home), self.home)

    def append(self, events: list[Event]) -> None:
        """Append events, as one file."""
        self.archive.append(events)
        self.events += events

    def remove(self, wanted: Callable[[Event], bool]) -> None:
        """Expect these events no longer."""
        self.events = [event for event in self.events if not wanted(event)]

    def data_files(self) -> list[str]:
        """Return the data files of the current snapshot."""
        with self.archive.table() as table:
            return sorted(task.file.file_path for task in table.scan().plan_files())

    def sync(self) -> set[str]:
        """Prepare the source, and return the names of its copies, which must have the events."""
        prepare_source(self.definition, self.home, SparkRunner(lambda: self.spark))
        files = list(self.copies.glob("*.parquet"))
        copied = Counter(
            (row["user"], row["at"], row["offset"], row["amount"])
            for file in files
            for row in pq.read_table(file).to_pylist()
        )
        assert copied == Counter((event.user, event.at, event.offset, event.amount) for event in self.events)
        return {file.name for file in files}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> World:
    archive = tables.on_disk(tmp_path / "archive")
    archive.configure(monkeypatch.setenv)
    return World(archive, Home(tmp_path / "home"), write_orders(tmp_path, ORDERS), spark)


def append_some(world: World, choose: random.Random) -> None:
    events = make_events(choose.randrange(1, 12), seed=choose.randrange(10**6))
    world.append(events)


def compact_some(world: World, choose: random.Random) -> None:
    share = choose.random()
    tables.compact(world.archive, lambda _: choose.random() < share)


def delete_a_user(world: World, choose: random.Random) -> None:
    user = choose.choice("abc")
    with world.archive.table() as table:
        table.delete(f"user = '{user}' and amount < 30")
    world.remove(lambda event: event.user == user and event.amount < 30)


def overwrite_a_user(world: World, choose: random.Random) -> None:
    events = [event for event in make_events(5, seed=choose.randrange(10**6)) if event.user == "a"]
    with world.archive.table() as table:
        table.overwrite(tables.to_rows(events), "user = 'a'")
    world.remove(lambda event: event.user == "a")
    world.events += events


def delete_positions(world: World, choose: random.Random) -> None:
    with world.archive.table() as table:
        whole = [task for task in table.scan().plan_files() if not task.delete_files]
        if not whole:
            return
        path = choose.choice(whole).file.file_path
        rows = pq.read_table(path.removeprefix("file://")).to_pylist()
    positions = sorted(choose.sample(range(len(rows)), min(2, len(rows))))
    tables.delete_positions(world.archive, path, positions)
    gone = Counter(
        (rows[at]["at"], rows[at]["user"], rows[at]["amount"], rows[at]["received"]) for at in positions
    )
    kept = []
    for event in world.events:
        if gone[event.at, event.user, event.amount, event.arrived]:
            gone[event.at, event.user, event.amount, event.arrived] -= 1
        else:
            kept.append(event)
    world.events = kept


def replace_deletes(world: World, _: random.Random) -> None:
    tables.replace_deletes(world.archive)


def expire_and_clean(world: World, _: random.Random | None = None) -> None:
    """Expire all snapshots except the current one, and remove the data files that it does not have."""
    with world.archive.table() as table:
        former = [snapshot.snapshot_id for snapshot in table.snapshots()]
        former = [number for number in former if number != table.metadata.current_snapshot_id]
        if former:
            table.maintenance.expire_snapshots().by_ids(former).commit()
        root = Path(table.location().removeprefix("file://"))
    with world.archive.table() as table:
        tasks = list(table.scan().plan_files())
        kept = {task.file.file_path for task in tasks}
        kept |= {file.file_path for task in tasks for file in task.delete_files}
    for file in root.glob("data/*.parquet"):
        if f"file://{file}" not in kept:
            file.unlink()


CHANGES: Mapping[Callable[[World, random.Random], None], int] = {
    append_some: 4,
    compact_some: 4,
    delete_a_user: 1,
    overwrite_a_user: 1,
    delete_positions: 2,
    replace_deletes: 2,
    expire_and_clean: 1,
}


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", range(6))
def test_copies_follow_any_sequence_of_changes(world: World, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311 - a test
    append_some(world, choose)
    for _ in range(14):
        change = choose.choices(list(CHANGES), list(CHANGES.values()))[0]
        change(world, choose)
        if choose.random() < 0.5:
            world.sync()
    world.sync()


def test_a_compaction_copies_nothing_and_later_appends_are_the_only_new_copies(world: World) -> None:
    events = make_events(60)
    for part in range(0, 30, 10):
        world.append(events[part : part + 10])
    first = world.sync()
    assert len(first) == 3

    tables.compact(world.archive)
    world.append(events[30:40])
    tables.compact(world.archive)  # replaces a file of which no copy exists yet
    assert len(world.data_files()) == 1
    second = world.sync()

    assert first < second
    assert len(second) == 4
    expire_and_clean(world)  # the copied data files are removed
    world.append(events[40:])
    assert second < world.sync()


def test_a_compaction_of_removed_files_is_read_as_new_files(world: World) -> None:
    events = make_events(30)
    world.append(events[:10])
    first = world.sync()
    world.append(events[10:])
    tables.compact(world.archive)
    expire_and_clean(world)  # the second file was never copied

    second = world.sync()

    assert len(second) == 1
    assert not first & second


def test_a_compaction_that_applies_new_deletes_is_read_as_new_files(world: World) -> None:
    world.append(make_events(10))
    first = world.sync()
    (path,) = world.data_files()
    rows = pq.read_table(path.removeprefix("file://")).to_pylist()
    tables.delete_positions(world.archive, path, [0, 3])
    tables.compact(world.archive)
    world.remove(
        lambda event: any(event.offset == rows[at]["offset"] and event.at == rows[at]["at"] for at in (0, 3))
    )
    assert len(world.events) == 8

    assert not first & world.sync()


def test_other_files_of_the_same_deleted_rows_change_no_copy(world: World) -> None:
    events = make_events(30)
    for part in range(0, 30, 10):
        world.append(events[part : part + 10])
    path = world.data_files()[0]
    rows = pq.read_table(path.removeprefix("file://")).to_pylist()
    tables.delete_positions(world.archive, path, [0])
    world.remove(lambda event: (event.at, event.offset) == (rows[0]["at"], rows[0]["offset"]))
    first = world.sync()

    for _ in range(2):
        assert tables.replace_deletes(world.archive) == 1
        assert world.sync() == first
    tables.compact(world.archive)
    assert world.sync() == first
    tables.delete_positions(world.archive, world.data_files()[0], [1])
    tables.replace_deletes(world.archive)
    with world.archive.table() as table:
        rest = {(row["at"], row["offset"]) for row in table.scan().to_arrow().to_pylist()}
    world.remove(lambda event: (event.at, event.offset) not in rest)
    assert not first & world.sync()


def test_a_column_with_the_name_of_a_dropped_one_is_null_in_old_files(world: World) -> None:
    world.append(make_events(10))
    with world.archive.table() as table, table.update_schema() as update:
        update.delete_column("user")
    with world.archive.table() as table, table.update_schema() as update:
        update.add_column("user", StringType())

    prepare_source(world.definition, world.home, SparkRunner(lambda: world.spark))

    (copy,) = world.copies.glob("*.parquet")
    assert pq.read_table(copy)["user"].to_pylist() == [None] * 10


def test_a_rollback_brings_back_the_former_files(world: World) -> None:
    events = make_events(30)
    world.append(events[:10])
    with world.archive.table() as table:
        before = table.metadata.current_snapshot_id
    assert before is not None
    first = world.sync()
    world.append(events[10:])
    world.sync()

    with world.archive.table() as table:
        table.manage_snapshots().rollback_to_snapshot(before).commit()
    world.events = events[:10]

    assert world.sync() == first


def test_columns_follow_their_field_ids(world: World) -> None:
    events = make_events(30)
    world.append(events[:10])
    world.sync()
    with world.archive.table() as table, table.update_schema() as update:
        update.rename_column("user", "account")
    with world.archive.table() as table, table.update_schema() as update:
        update.add_column("user", StringType())  # another column of the former name
        update.update_column("amount", LongType())
        update.delete_column("partition")
    with world.archive.table() as table:
        rows = tables.to_rows(events[10:])
        rows = rows.rename_columns(["at", "received", "partition", "offset", "account", "amount"])
        rows = rows.drop_columns("partition").set_column(4, "amount", rows["amount"].cast("int64"))
        table.append(rows.append_column("user", rows["account"]))
    source = ORDERS.replace('key = ["user"]', 'key = ["account", "user"]').replace('partition = "partition"\n', "")
    world.definition = write_orders(world.definition.parent, source)

    prepare_source(world.definition, world.home, SparkRunner(lambda: world.spark))

    rows = [row for file in world.copies.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    found = Counter((row["account"], row.get("user"), row["amount"]) for row in rows)
    assert found == Counter(
        (event.user, None if number < 10 else event.user, event.amount) for number, event in enumerate(events)
    )


def test_a_renamed_column_of_the_table_is_an_error_until_the_definition_names_it(world: World) -> None:
    world.append(make_events(10))
    world.sync()
    with world.archive.table() as table, table.update_schema() as update:
        update.rename_column("amount", "total")

    with pytest.raises(SpecError, match="has no column 'amount'") as refused:
        world.sync()

    assert str(refused.value).endswith("hint: if a column was renamed, write its new name into the definition")


@pytest.mark.parametrize(
    ("condition", "is_wanted", "files"),
    [
        ("user = 'a' and length(user) = 1", lambda event: event.user == "a", 2),
        ("user in ('a', 'b') or 'c' < user", lambda event: event.user != "c", 4),
        ("at >= timestamp '2024-03-02'", lambda event: event.at >= FIRST_DAY + timedelta(days=1), 3),
        ("at between '2024-03-01' and '2024-03-01 12:00:00'", lambda event: event.at.day == 1, 3),
        ("not user = 'a'", lambda event: event.user != "a", 6),
    ],
)
def test_partitions_and_files_that_cannot_meet_the_condition_are_not_read(
    world: World, condition: str, is_wanted: Callable[[Event], bool], files: int
) -> None:
    with world.archive.table() as table, table.update_spec() as update:
        update.add_identity("user")
    events = make_events(60)
    halves = [[event for event in events if (event.at.day == day) and event.at.hour < 12] for day in (1, 2)]
    for half in halves:
        world.append(half)
    kept = [event for event in world.events if is_wanted(event)]
    world.definition = write_orders(world.definition.parent, f'{ORDERS}where = "{condition}"\n')

    prepare_source(world.definition, world.home, SparkRunner(lambda: world.spark))

    definition = resolve_raw_paths(load_definition(world.definition), world.home)
    batches = PreparedSource(prepared_folder(definition, world.home)).batches()
    assert sum(len(batch.files) for batch in batches) == files
    rows = [
        row
        for batch in batches
        for file in batch.folder.glob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert Counter((row["user"], row["amount"]) for row in rows) == Counter(
        (event.user, event.amount) for event in kept
    )
    tables.compact(world.archive, lambda file: file.partition[0] == "a")
    assert prepare_source(world.definition, world.home, SparkRunner(lambda: world.spark)) is None


def test_a_missing_data_file_names_the_snapshot(world: World) -> None:
    world.append(make_events(10))
    (path,) = world.data_files()
    Path(path.removeprefix("file://")).unlink()
    with world.archive.table() as table:
        snapshot = table.metadata.current_snapshot_id

    with pytest.raises(PlanError) as raised:
        world.sync()

    assert str(raised.value) == (
        f"cannot read snapshot {snapshot} of table archive.sales.orders: a data file is missing\n  {path}\n\n"
        "hint: the snapshot may have expired meanwhile; run the command again, which reads the current one"
    )


def test_equality_deletes_are_refused_with_the_way_out(world: World) -> None:
    world.append(make_events(10))
    (path,) = world.data_files()
    tables.delete_positions(world.archive, path, [1], by_value=True)
    with world.archive.table() as table:
        snapshot = table.metadata.current_snapshot_id

    with pytest.raises(PlanError) as raised:
        world.sync()

    assert str(raised.value) == (
        "table archive.sales.orders has equality deletes, which PyIceberg cannot read"
        f" ({world.definition}, source.path)\n  snapshot {snapshot}\n\n"
        "hint: compact the table, for example with Spark's procedure rewrite_data_files"
    )


def test_files_of_another_format_are_refused_before_they_are_copied(world: World) -> None:
    world.append(make_events(10))
    tables.append_with_format(world.archive, FileFormat.AVRO)

    with pytest.raises(PlanError, match="has data files of the format AVRO, and only Parquet and ORC are read"):
        world.sync()


def test_a_type_that_pyiceberg_does_not_know_is_named(world: World) -> None:
    world.append(make_events(1))
    with world.archive.table() as table:
        metadata = Path(table.metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace('"type":"string"', '"type":"variant"'))

    with pytest.raises(PlanError) as raised:
        world.sync()

    assert "table archive.sales.orders has a column of the type variant, which PyIceberg" in str(raised.value)
    assert f"cannot read: column 5 ({world.definition}, source.path)" in str(raised.value)


def test_a_table_without_records_and_unknown_names_are_errors(world: World) -> None:
    where = f"({world.definition}, source.path)"
    with pytest.raises(PlanError) as empty:
        world.sync()
    assert str(empty.value) == f"table archive.sales.orders has no snapshot, and so no records {where}"

    write_orders(world.definition.parent, ORDERS.replace("sales.orders", "sales.other"))
    with pytest.raises(SpecError) as no_table:
        world.sync()
    assert str(no_table.value) == f"no table archive.sales.other in its catalog {where}"

    write_orders(world.definition.parent, ORDERS.replace("archive.", "other."))
    with pytest.raises(SpecError) as no_catalog:
        world.sync()
    assert str(no_catalog.value) == (
        f"PyIceberg has no configuration of the catalog 'other' {where}\n\n"
        "hint: configure it in ~/.pyiceberg.yaml or by variables such as PYICEBERG_CATALOG__OTHER__URI;"
        " the catalog of backstream is 'backstream'"
    )


def test_the_state_of_a_table_is_written_and_read(world: World) -> None:
    for seed in (1, 2):
        world.append(make_events(5, seed=seed))
        world.sync()
    tables.compact(world.archive)
    world.sync()

    state = SourceTableState.load(world.copies)

    assert state is not None
    assert len(state.groups) == 1
    assert [len(state.files), len(state.source_files())] == [1, 2]
    assert SourceTableState.load(world.copies) == state


def test_the_definitions_of_the_page_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/lakes.md").read_text()
    blocks = re.findall(r"```toml\n\[source\]\n(.*?)```", page, re.DOTALL)
    sources = [load_definition(write_orders(tmp_path, block)).source for block in blocks]
    condition = re.search(r"`where = \"(.*?)\"`", page)

    assert [source.format for source in sources] == ["iceberg", "parquet"]
    assert condition is not None
    table = sources[0].model_copy(update={"where": condition[1]})
    schema = Schema(NestedField(1, "at", TimestamptzType()), NestedField(2, "region", StringType()))
    assert str(necessary_filter(table, schema)) == (
        "And(left=GreaterThanOrEqual(term=Reference(name='at'), literal=LongLiteral(1709251200000000)),"
        " right=EqualTo(term=Reference(name='region'), literal=literal('EU')))"
    )
