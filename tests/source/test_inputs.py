"""Test the input files of a plan: ignored, damaged, skipped and missing files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.source.days import BAD_PAGE, HINT, MAGIC, SKIP, damage_pages, names, refusal, write_days
from tests.workflow.history import AT_ONE_TIME, CLICKS, COLUMNS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts
from typer.testing import CliRunner

from backstream.cli import app
from backstream.definition.loader import load_definition
from backstream.errors import PlanError
from backstream.runs.home import Home
from backstream.runs.input_files import HIDDEN, OTHER_SUFFIX, FileList, SkippedFile
from backstream.runs.input_notes import REMOVED_HINT, describe_inputs
from backstream.runs.plan import Mode, Plan
from backstream.source.files import sum_source_bytes
from backstream.variables import HOME_VARIABLE


def test_files_that_are_no_data_are_ignored_and_listed(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.snappy.parquet", "c.parq", "d.pq", "e.PARQUET"):
        write_clicks(tmp_path / "data" / name, [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    for name in (
        "README.txt",
        "manifest.json",
        "_SUCCESS",
        ".a.parquet.crc",
        "_temporary/0/x.parquet",
        "x.parquet.tmp",
    ):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).touch()

    plan = planned(tmp_path, write_definition(tmp_path))

    assert names(plan) == ["a.parquet", "b.snappy.parquet", "c.parq", "d.pq", "e.PARQUET"]
    folder = f"{tmp_path}/data"
    assert plan.ignored == {
        HIDDEN: FileList(
            3, (f"{folder}/.a.parquet.crc", f"{folder}/_SUCCESS", f"{folder}/_temporary/0/x.parquet")
        ),
        OTHER_SUFFIX: FileList(3, (f"{folder}/README.txt", f"{folder}/manifest.json", f"{folder}/x.parquet.tmp")),
    }
    assert Plan.read(plan.folder.plan) == plan


def test_a_file_with_a_time_after_the_year_9999_has_no_bounds_and_is_read(tmp_path: Path) -> None:
    file = tmp_path / "data/a.parquet"
    write_clicks(file, [(at("1 05:00"), at("1 05:01"), "A", number, "home") for number in range(2)])
    rows = pq.read_table(file)
    beyond = pa.array([at("1 05:00"), 400_000_000_000_000_000], rows.schema.field(0).type)
    pq.write_table(rows.set_column(0, rows.schema.field(0), beyond), file)

    (planned_file,) = planned(tmp_path, write_definition(tmp_path)).inputs

    assert (planned_file.rows, planned_file.min_event_ms, planned_file.max_event_ms) == (2, None, None)


def test_ten_of_many_ignored_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_days(tmp_path, 1)
    for number in range(12):
        (tmp_path / f"data/{number:02}.csv").touch()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    definition = write_definition(tmp_path)

    command = ["plan", str(definition), "--since", "2024-03-01", "--until", "2024-03-02"]
    printed = CliRunner().invoke(app, command).output

    listed = ", ".join(f"{tmp_path}/data/{number:02}.csv" for number in range(10))
    line = f"no data: 12 files with another suffix than .parquet, .parq, .pq: {listed} and 2 more"
    assert line in printed.splitlines()


@pytest.mark.parametrize("name", ["clicks.dat", "clicks"])
def test_a_source_that_is_one_file_is_read_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    write_clicks(tmp_path / name, [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])

    plan = planned(tmp_path, write_definition(tmp_path, path=f'"{tmp_path}/{name}"'))

    assert names(plan) == [name]


def test_a_source_that_is_one_hidden_file_is_rejected(tmp_path: Path) -> None:
    write_clicks(tmp_path / "_clicks.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])

    assert refusal(tmp_path, PlanError, CLICKS.replace("{folder}/data", "{folder}/_clicks.parquet")) == (
        "Spark ignores files whose name begins with _ or .: FOLDER/_clicks.parquet"
        " (FOLDER/clicks.toml, source.path)\n\nhint: rename the file"
    )


def empty(file: Path) -> str:
    file.write_bytes(b"")
    return "Parquet file size is 0 bytes"


def foreign(file: Path) -> str:
    file.write_text("happened_at,page\n2024-03-01T05:00Z,home\n")
    return MAGIC


def cut_off(file: Path) -> str:
    file.write_bytes(file.read_bytes()[:-100])
    return MAGIC


@pytest.mark.parametrize("damage", [empty, foreign, cut_off])
def test_a_damaged_file_without_known_bounds_may_contain_any_event(tmp_path: Path, damage: object) -> None:
    write_days(tmp_path, 1, 2)
    assert callable(damage)
    reason = damage(tmp_path / "data/2.parquet")

    for since, until in (("2024-03-01", "2024-03-02"), ("2024-03-02", "2024-03-03")):
        assert refusal(tmp_path, PlanError, since=since, until=until) == (
            "cannot read input file FOLDER/data/2.parquet, which may contain any event, so every range needs it: "
            f"{reason} (FOLDER/clicks.toml){HINT}"
        )


def test_a_damaged_file_with_known_bounds_only_fails_the_ranges_that_need_it(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2, 3)
    planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME))
    empty(tmp_path / "data/2.parquet")
    empty(tmp_path / "data/3.parquet")

    plan = planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME))

    assert names(plan) == ["1.parquet"]
    assert [Path(file.path).name for file in plan.damaged] == ["2.parquet", "3.parquet"]
    assert describe_inputs(plan) == [
        (
            "Damaged, not needed",
            f"{tmp_path}/data/{day}.parquet: it has no event of this range, according to an earlier run",
        )
        for day in (2, 3)
    ]
    # The newer plan does not read the file, but keeps its bounds.
    assert names(planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME))) == ["1.parquet"]
    assert refusal(tmp_path, PlanError, since="2024-03-02", until="2024-03-04") == (
        "cannot read input file FOLDER/data/2.parquet, which this range needs: it contained events from "
        "2024-03-02T05:00Z to 2024-03-02T05:00Z: Parquet file size is 0 bytes (FOLDER/clicks.toml)"
        f"\n  and 1 more{HINT}"
    )


def test_a_replay_needs_every_file_since_watermarks_depend_on_all(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2)
    planned(tmp_path, write_definition(tmp_path, AT_ONE_TIME))
    empty(tmp_path / "data/2.parquet")

    assert refusal(tmp_path, PlanError, AT_ONE_TIME, mode="replay") == (
        "cannot read input file FOLDER/data/2.parquet, which every replay needs: watermarks depend on all "
        f"arrivals: Parquet file size is 0 bytes (FOLDER/clicks.toml){HINT}"
    )


def test_a_file_without_rows_may_have_any_columns(tmp_path: Path) -> None:
    write_days(tmp_path, 1)
    write_clicks(tmp_path / "data/none.parquet", [], dict.fromkeys(COLUMNS, pa.null()))

    plan = planned(tmp_path, write_definition(tmp_path))

    assert (names(plan), plan.chunks[0].files, plan.absent) == (["1.parquet", "none.parquet"], (0,), {})


def test_damaged_files_are_skipped_if_the_definition_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path, 1, 2, 3, 4)
    foreign(tmp_path / "data/2.parquet")
    damage_pages(tmp_path / "data/3.parquet")
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    definition = write_definition(tmp_path, SKIP)

    plan = planned(tmp_path, definition, until="2024-03-05")

    assert names(plan) == ["1.parquet", "4.parquet"]
    assert [(Path(file.path).name, file.reason, file.rows) for file in plan.skipped] == [
        ("2.parquet", MAGIC, None),
        ("3.parquet", BAD_PAGE, 1),
    ]
    assert [chunk.files for chunk in plan.chunks] == [(0,), (), (), (1,)]
    assert Plan.read(plan.folder.plan) == plan
    command = ["plan", str(definition), "--since", "2024-03-01", "--until", "2024-03-05"]
    printed = CliRunner().invoke(app, command).output.splitlines()
    assert f"damaged, skipped: {tmp_path}/data/2.parquet, an unknown number of rows: {MAGIC}" in printed
    assert f"damaged, skipped: {tmp_path}/data/3.parquet, 1 row: {BAD_PAGE}" in printed


def test_a_plan_fails_if_all_files_are_damaged(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2)
    damage_pages(tmp_path / "data/1.parquet")
    foreign(tmp_path / "data/2.parquet")

    assert refusal(tmp_path, PlanError, SKIP, until="2024-03-04") == (
        "no input file is left: all 2 are damaged (FOLDER/clicks.toml)"
        f"\n  FOLDER/data/2.parquet, an unknown number of rows: {MAGIC}"
    )


def test_the_pages_of_a_file_are_verified_once_and_again_after_a_change(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2)
    write_clicks(tmp_path / "data/sound.parquet", [(at("1 06:00"), at("1 06:01"), "A", 9, "home")])
    definition, file = write_definition(tmp_path, SKIP), tmp_path / "data/1.parquet"
    before = file.stat()
    planned(tmp_path, definition)

    # Damage without a visible change: only another read of the file would detect it.
    damage_pages(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert planned(tmp_path, definition).skipped == ()
    os.utime(file, (1, 1))
    assert [skipped.path for skipped in planned(tmp_path, definition).skipped] == [str(file)]


def test_only_pages_of_needed_files_are_verified(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2)
    write_clicks(tmp_path / "data/sound.parquet", [(at("2 06:00"), at("2 06:01"), "A", 9, "home")])
    damage_pages(tmp_path / "data/2.parquet")
    definition = write_definition(tmp_path, SKIP.replace("\n[window]", 'deduplicate_within = "0s"\n\n[window]'))

    assert planned(tmp_path, definition).skipped == ()
    assert len(planned(tmp_path, definition, "2024-03-02", "2024-03-03").skipped) == 1
    assert len(planned(tmp_path, definition, mode=Mode.REPLAY).skipped) == 1


def publish_days(folder: Path, *days: int) -> Plan:
    """Publish each day in a separate run, and return the last plan."""
    for day in days:
        plan = planned(folder, write_definition(folder), f"2024-03-{day:02}", f"2024-03-{day + 1:02}")
        publish_counts(plan, [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home")])
    return plan


def test_missing_files_that_published_runs_read_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path, 1, 2, 3, 4)
    assert not publish_days(tmp_path, 1, 2, 3).removed
    (tmp_path / "data/2.parquet").unlink()
    shutil.move(tmp_path / "data/3.parquet", tmp_path / "data/_3.parquet")
    (tmp_path / "data/4.parquet").unlink()  # no run has read it

    plan = planned(tmp_path, write_definition(tmp_path), "2024-03-01", "2024-03-06")

    assert plan.removed == FileList(2, (f"{tmp_path}/data/2.parquet", f"{tmp_path}/data/3.parquet"))
    assert Plan.read(plan.folder.plan) == plan
    assert not planned(tmp_path, write_definition(tmp_path), "2024-03-01", "2024-03-02").removed
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    command = ["plan", str(tmp_path / "clicks.toml"), "--since", "2024-03-02", "--until", "2024-03-03"]
    assert (
        f"removed: 1 file that published runs of this range read: {tmp_path}/data/2.parquet; {REMOVED_HINT}"
        in CliRunner().invoke(app, command).output.splitlines()
    )


def test_a_renamed_file_is_not_removed(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 2)
    publish_days(tmp_path, 1, 2)
    for name in ("1", "2"):
        (tmp_path / f"data/{name}.parquet").rename(tmp_path / f"data/{name}b.parquet")
    assert not planned(tmp_path, write_definition(tmp_path), "2024-03-01", "2024-03-03").removed

    os.utime(tmp_path / "data/2b.parquet", (1, 1))  # it may be another file

    plan = planned(tmp_path, write_definition(tmp_path), "2024-03-01", "2024-03-03")
    assert plan.removed == FileList(1, (f"{tmp_path}/data/2.parquet",))


def test_only_the_newest_run_of_a_day_determines_its_expected_files(tmp_path: Path) -> None:
    write_days(tmp_path, 1)
    write_clicks(tmp_path / "data/1b.parquet", [(at("1 07:00"), at("1 07:01"), "A", 9, "home")])
    publish_days(tmp_path, 1)
    (tmp_path / "data/1b.parquet").unlink()
    again = planned(tmp_path, write_definition(tmp_path))
    assert again.removed.count == 1
    publish_counts(again, [(at("1 05:00"), at("1 05:01"), "A", 1, "home")])
    later(again)

    assert not planned(tmp_path, write_definition(tmp_path)).removed


def later(plan: Plan) -> None:
    """Move a publication to a later time, since all publications of a test have the same second."""
    content = json.loads(plan.folder.publication.read_text())
    plan.folder.publication.write_text(json.dumps(content | {"published_at": "2999-01-01T00:00:00+00:00"}))


def test_a_moved_source_has_no_missing_files(tmp_path: Path) -> None:
    write_days(tmp_path, 1)
    publish_days(tmp_path, 1)
    shutil.move(tmp_path / "data", tmp_path / "archive")

    plan = planned(tmp_path, write_definition(tmp_path, path=f'"{tmp_path}/archive"'))

    assert not plan.removed


def test_skipping_damaged_files_does_not_change_the_reading_of_records(tmp_path: Path) -> None:
    read_by = [load_definition(write_definition(tmp_path, text)).read_by for text in (CLICKS, SKIP)]

    assert read_by[0] == read_by[1]


def test_a_page_with_a_wrong_checksum_is_damaged(tmp_path: Path) -> None:
    write_days(tmp_path, 1)
    file = tmp_path / "data/1.parquet"
    plain = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    pq.write_table(pq.read_table(file), file, **plain)
    file.write_bytes(file.read_bytes().replace(b"home", b"hOme"))

    (skipped,) = skipped_beside_a_sound_one(tmp_path)

    assert skipped.reason == "could not verify page integrity, CRC checksum verification failed for page_ordinal 0"


def skipped_beside_a_sound_one(folder: Path) -> tuple[SkippedFile, ...]:
    """Return the skipped files of a plan with one more, sound file."""
    write_days(folder, 2)
    return planned(folder, write_definition(folder, SKIP), until="2024-03-03").skipped


@pytest.mark.parametrize(
    ("path", "expected"), [("${BACKSTREAM_HOME}/raw", 30), ("/nowhere", None), ("s3://bucket/raw", None)]
)
def test_the_size_of_a_source_is_known_before_it_is_prepared(
    path: str, expected: int | None, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.json").write_text("{}\n" * 10)
    (tmp_path / "raw/b.csv").write_text("not read")
    definition = tmp_path / "clicks.toml"
    definition.write_text(
        f'name = "clicks"\n[source]\npath = "{path}"\nformat = "json"\nevent_time = "t"\n'
        'columns = { t = "timestamp" }\n[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nn = "count(*)"\n'
    )
    assert sum_source_bytes(definition, Home(tmp_path)) == expected
