"""The records of an Iceberg table get the batches in which a recorded job read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sources.tables import Archive
from tests.structured_streaming.iceberg_table import add_snapshot, create_table, expire, recorded_snapshots
from tests.structured_streaming.recorded import JOBS, checkpoint_of, log_of, rows_of
from tests.structured_streaming.test_kept_batches import part_of
from tests.structured_streaming.test_replay import DEFINITION, published, run, summary

from backstream.errors import PlanError, SpecError
from backstream.lake.appended_files import list_appended_files
from backstream.lake.source_tables import SourceTableState
from backstream.storage.stores import Stores
from backstream.structured_streaming.batches import Batch, BatchLog
from backstream.structured_streaming.kept_batches import keep_batches, read_kept
from backstream.structured_streaming.table_appends import AppendedFile, TableAppends

SOURCE = '[source]\nformat = "iceberg"\npath = "archive.sales.orders"\nevent_time = "ts"\nkey = ["key"]\n'
CHECKPOINT, PROGRESS = (
    f'{key} = "{JOBS}/iceberg/{name}"'
    for key, name in (("checkpoint", "checkpoint"), ("progress", "progress.jsonl"))
)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """The catalog with the table, which has no snapshot yet."""
    made = create_table(tmp_path / "archive")
    made.configure(monkeypatch.setenv)
    return made


def add_all(archive: Archive, snapshots: Sequence[dict[str, object]] | None = None) -> None:
    for snapshot in snapshots or recorded_snapshots():
        add_snapshot(archive, snapshot)


def write_definition(folder: Path, watermark: str = f'{CHECKPOINT}\n{PROGRESS}\ndelay = "30m"') -> Path:
    window = 'kind = "tumbling"\nsize = "1h"'
    values = {"input": "", "columns": "", "source": "", "window": window, "watermark": watermark}
    text = DEFINITION.format(**values, publish="first", engine="native")
    path, rest = folder / "clicks.toml", text[text.index("[window]") :]
    path.write_text(f'name = "clicks"\n\n{SOURCE}\n{rest}')
    return path


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_a_run_publishes_what_the_job_emitted(archive: Archive, tmp_path: Path) -> None:
    """Batches end inside snapshots; others compacted files, and removed records that the job had counted."""
    definition = write_definition(tmp_path)
    add_all(archive)

    run(definition)

    assert published(definition) == summary(rows_of("iceberg"))


def test_later_runs_read_only_new_files_also_if_snapshots_have_expired(archive: Archive, tmp_path: Path) -> None:
    checkpoint, snapshots = part_of("iceberg", 0, 7, tmp_path / "checkpoint"), recorded_snapshots()
    definition = write_definition(tmp_path, f'checkpoint = "{checkpoint}"')
    add_all(archive, snapshots[:6])
    run(definition)
    part_of("iceberg", 6, 13, tmp_path / "checkpoint")
    add_all(archive, snapshots[6:])
    expire(archive, 5)

    run(definition)

    assert published(definition) == summary(rows_of("iceberg"))


def test_a_first_run_after_snapshots_have_expired_is_refused(archive: Archive, tmp_path: Path) -> None:
    add_all(archive)
    expire(archive, 2)

    with pytest.raises(SpecError, match="batch 3 ends at snapshot 2144493515462881624, which table") as refused:
        run(write_definition(tmp_path, CHECKPOINT))
    assert "it has expired, or the job read another table" in str(refused.value)


def test_a_file_of_an_expired_snapshot_is_refused(archive: Archive, tmp_path: Path) -> None:
    """The logs begin at a later snapshot, and the reports have the numbers of records."""
    snapshots = [each for each in recorded_snapshots() if each["operation"] == "append"]
    add_all(archive, snapshots)
    expire(archive, 2)
    checkpoint = part_of("iceberg", 4, 13, tmp_path / "checkpoint")
    reports = tmp_path / "progress.jsonl"
    lines = (JOBS / "iceberg/progress.jsonl").read_text().splitlines()
    reports.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["batchId"] >= 4))

    with pytest.raises(SpecError, match=r"before 4600606631298067071 have expired, and batch 4 may have read"):
        run(write_definition(tmp_path, f'checkpoint = "{checkpoint}"'))
    with pytest.raises(PlanError, match=r"snapshot \d+ has expired, so it is not known whether batch 4, or one"):
        run(write_definition(tmp_path, f'checkpoint = "{checkpoint}"\nprogress = "{reports}"'))


def test_kept_batches_have_the_offsets_as_spark_wrote_them(archive: Archive, tmp_path: Path) -> None:
    keep_batches(part_of("iceberg", 0, 6, tmp_path / "checkpoint"), str(tmp_path / "kept"))
    keep_batches(part_of("iceberg", 4, 13, tmp_path / "checkpoint"), str(tmp_path / "kept"))
    kept = read_kept(str(tmp_path / "kept"), Stores())
    assert kept
    assert kept.batches == checkpoint_of("iceberg").batches
    add_all(archive)
    definition = write_definition(tmp_path, f'checkpoint = "{tmp_path}/kept"')

    run(definition)

    assert published(definition) == summary(rows_of("iceberg"))


def test_a_table_that_others_read_is_not_that_of_the_job(archive: Archive, tmp_path: Path) -> None:
    add_all(archive, [{**each, "snapshot_id": number} for number, each in enumerate(recorded_snapshots(), 1)])

    with pytest.raises(SpecError, match="batch 13 ends at snapshot 1868900224567618168, which table archive"):
        run(write_definition(tmp_path))


def appends_of(**files: Sequence[str]) -> TableAppends:
    """Return a table whose snapshots have the numbers in their names: s7 is 7. A job can start at its last one."""
    snapshots = {int(name[1:]): [AppendedFile(*each) for each in enumerate(own)] for name, own in files.items()}
    every = [file.path for own in snapshots.values() for file in own]
    return TableAppends(
        "lake.t",
        snapshots,
        {},
        is_whole=True,
        list_whole=lambda _: [AppendedFile(*each) for each in enumerate(every)],
    )


def log_to(*ends: tuple[int, int] | tuple[int, int, bool]) -> BatchLog:
    """Return batches that end at a snapshot and a position."""
    offsets = [
        {"version": 1, "snapshot_id": end[0], "position": end[1], "scan_all_files": len(end) > 2} for end in ends
    ]
    batches = [Batch(number, 0, {"0": offset}) for number, offset in enumerate(offsets)]
    return BatchLog(frozenset(), tuple(batches), {}, "here")


def batches_of(appends: TableAppends, log: BatchLog, *paths: str) -> list[int | None]:
    named = appends.name_files(log, "0")
    return [named.batch_of_file("0", path) for path in paths]


def test_positions_count_files_of_their_snapshot() -> None:
    appends = appends_of(s9=["/a", "/b", "/c"], s2=["/d"], s5=["/e%20", "/f"])

    found = batches_of(appends, log_to((9, 2), (2, 0), (5, 1)), "/a", "/b", "/c", "/d", "/e%2520", "/f")

    assert found == [0, 0, 1, 2, 2, None]


def test_a_job_can_begin_with_the_whole_table() -> None:
    appends = appends_of(s9=["/a"], s2=["/b", "/c"])
    appends = replace(
        appends,
        snapshots={**appends.snapshots, 3: [AppendedFile(0, "/d")]},
        list_whole=lambda _: [AppendedFile(position, path) for position, path in enumerate(["/c", "/b", "/a"])],
    )

    assert batches_of(appends, log_to((2, 1, True), (2, 3, True), (3, 1)), "/a", "/b", "/c", "/d") == [1, 1, 0, 2]


def test_the_order_of_snapshots_is_that_of_the_table() -> None:
    appends = appends_of(s9=["/a"], s2=["/b"])

    assert batches_of(appends, log_to((-1, -1), (9, 1), (2, 1)), "/a", "/b") == [1, 2]
    with pytest.raises(SpecError, match="t goes back from file 1 of snapshot 2 in batch 0 to file 1 of snap"):
        appends.name_files(log_to((2, 1), (9, 1)), "0")
    unknown = Batch(0, 0, {"0": {"version": 2, "snapshot_id": 9}})
    with pytest.raises(SpecError, match="batch 0 ends at an offset of Iceberg of an unknown form: "):
        appends.name_files(replace(log_to(), batches=(unknown,)), "0")


def test_positions_of_the_table_are_those_of_its_manifests(archive: Archive) -> None:
    add_all(archive)
    with archive.table() as table:
        listed = list_appended_files(table, "archive.sales.orders", None, "here")
    assert listed.appends
    assert isinstance(listed.state, SourceTableState)
    named = listed.appends.name_files(log_of("iceberg"), "0")
    files = [file.path for files in listed.appends.snapshots.values() for file in files]
    assert [named.batch_of_file("0", file) for file in files] == [
        0,
        0,
        1,
        1,
        2,
        4,
        4,
        5,
        5,
        6,
        6,
        8,
        8,
        9,
        9,
        10,
        10,
        12,
        12,
    ]
