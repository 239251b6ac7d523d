"""`backstream doctor` prints one line per part of a machine, with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool
from tests.lake.postgres import USER, Server
from tests.lake.store import Store
from tests.spark.test_installation import install
from tests.workflow.history import write_definition

from backstream.lake.catalog import open_catalog_for_writing
from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE, DEFINITIONS_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow.checks.check_installation import check_installation


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with one definition, and no other settings."""
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    monkeypatch.delenv(WAREHOUSE_VARIABLE, raising=False)
    monkeypatch.setenv(DEFINITIONS_VARIABLE, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_definition(tmp_path)


def lines(folder: Path, part: str) -> list[str]:
    """Return the lines about a part, with the folder as `<folder>`."""
    found = check_installation(Home(folder / "home"))
    return [str(each).replace(str(folder), "<folder>") for each in found if each.part == part]


def test_a_sound_installation_has_one_line_per_part_and_nothing_is_written(tmp_path: Path) -> None:
    found = list(check_installation(Home(tmp_path / "home")))

    assert [(each.part, str(each.state)) for each in found] == [
        *(("python", "ok"), ("java", "ok"), ("spark", "ok"), ("native", "ok"), ("settings", "ok")),
        *(("definitions", "ok"), ("home", "ok"), ("catalog", "ok"), ("warehouse", "ok")),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["clicks.toml"]


def test_doctor_reports_a_missing_java_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert lines(tmp_path, "java") == [
        (
            "warn  java         no Java: native tasks run in processes of this machine; "
            "what only Spark can do is refused; install a Java 17 runtime, and set JAVA_HOME to its folder"
        )
    ]


def test_doctor_reports_an_overwritten_pyspark_with_the_command_to_restore_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "pyspark", "4.3.0")
    install(tmp_path, "pyspark_client", "4.2.0")
    (tmp_path / "pyspark/jars").mkdir(parents=True)
    (tmp_path / "pyspark/version.py").write_text("of another package\n")
    monkeypatch.syspath_prepend(tmp_path)

    overwritten = "files of pyspark 4.3.0 are those of pyspark-client 4.2.0"
    remedy = "pip install --force-reinstall --no-deps pyspark==4.3.0"
    assert lines(tmp_path, "spark") == [f"fail  spark        {overwritten}; {remedy}"]

    (tmp_path / "pyspark/python/lib").mkdir(parents=True)
    (tmp_path / "pyspark/python/lib/pyspark.zip").touch()
    used = "backstream uses the archive of pyspark, your own scripts do not"
    assert lines(tmp_path, "spark") == [f"warn  spark        {overwritten}; {used}; {remedy}"]


def test_doctor_warns_of_a_spark_that_runs_only_native_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/spark-core_2.12-3.5.9.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert lines(tmp_path, "spark") == [
        "warn  spark        3.5.9 only runs tasks of the native engine; pip install 'pyspark>=4.0,<4.4'"
    ]


def test_doctor_reports_an_invalid_definition(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name =")
    assert lines(tmp_path, "definitions") == [
        "ok    definitions  2 in <folder>",
        "fail  definitions  definition is not TOML: Invalid value (at end of document) (<folder>/bad.toml)",
    ]


def test_doctor_warns_of_a_misspelled_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_HOEM", "a")
    assert lines(tmp_path, "settings")[1:] == [
        "warn  settings     BACKSTREAM_HOEM is not a setting and has no effect; did you mean BACKSTREAM_HOME?"
    ]


def test_doctor_reports_a_home_folder_without_write_permission() -> None:
    found = [str(each) for each in check_installation(Home(Path("/proc/home"))) if each.part == "home"]
    assert found == [
        (
            "fail  home         cannot write to /proc: No such file or directory; "
            "set BACKSTREAM_HOME to another folder"
        )
    ]


def test_doctor_reports_an_unreachable_catalog_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, "postgresql+psycopg2://me:secret@127.0.0.1:9/lake")
    (line,) = lines(tmp_path, "catalog")
    start = (
        "fail  catalog      cannot open the catalog postgresql+psycopg2://me:***@127.0.0.1:9/lake: connection to "
    )
    assert line.startswith(start)
    assert "Connection refused" in line


def test_a_warehouse_in_a_store_is_written_to_and_left_as_it_was(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = s3.new_warehouse()
    place = warehouse.partition("@")[2].partition("?")[0]
    monkeypatch.setenv(WAREHOUSE_VARIABLE, warehouse)

    assert lines(tmp_path, "warehouse") == [f"ok    warehouse    s3://{place}"]
    assert s3.keys(place) == set()


def test_doctor_reports_access_keys_that_the_store_rejects(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.address("lake/a", "wrong"))
    (line,) = lines(tmp_path, "warehouse")
    assert line.startswith("fail  warehouse    cannot use the warehouse s3://lake/a: ")
    assert "wrong" not in line


def test_doctor_reports_a_catalog_without_write_permission(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres.new_database()
    monkeypatch.setenv(CATALOG_VARIABLE, database)
    with open_catalog_for_writing(Home(tmp_path / "home")):
        pass
    (line,) = lines(tmp_path, "catalog")
    assert line.startswith("ok    catalog      postgresql+psycopg2://")
    assert not list(tmp_path.rglob("*doctor*"))
    with create_engine(database, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("CREATE ROLE reader LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))

    monkeypatch.setenv(CATALOG_VARIABLE, database.replace(f"{USER}@", "reader@"))

    (line,) = lines(tmp_path, "catalog")
    assert line.startswith("fail  catalog      ")
    assert "permission denied for table iceberg_tables" in line
