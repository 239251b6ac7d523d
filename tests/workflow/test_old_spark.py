"""Planning and checks name what Spark 3.5 cannot do, beside the tasks of the native engine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.spark.histories import days
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.errors import SpecError
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.workflow.advise import prepare_advice
from backstream.workflow.checks.check_definition import check_definition

HINT = "hint: before version 4.0, Spark can only run tasks of the native engine: pip install 'pyspark>=4.0,<4.4'"


@pytest.fixture(autouse=True)
def spark_3_5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a history, and make an installation of Spark 3.5."""
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    install(tmp_path / "spark", "2.12-3.5.6-amzn-2", monkeypatch)


def install(home: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an installation of Spark that has only the jar of its version."""
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_{version}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))


INSTANT_IN_ORC = "timestamp with local time zone"

REFUSED = [
    (CLICKS + '[backfill]\nengine = "spark"\n', Mode.RECOMPUTE, 'backfill.engine is "spark"'),
    (CLICKS + 'pages = "count(distinct page)"\n', Mode.RECOMPUTE, "aggregates.pages is count(distinct page)"),
    (CLICKS + '[derive_after]\ntwice = "clicks * 2"\n', Mode.RECOMPUTE, "Spark computes [derive_after]"),
    (CLICKS + '[having]\ncondition = "clicks > 1"\n', Mode.RECOMPUTE, "Spark evaluates [having]"),
    (CLICKS + '[top]\nn = 1\nby = "clicks desc"\n', Mode.RECOMPUTE, "Spark ranks the rows of [top]"),
    (
        CLICKS.replace(
            'strategy = "bounded_out_of_orderness"', 'strategy = "punctuated"\nmarker = "upper(page) = \'X\'"'
        )
        + '[backfill]\nmode = "replay"\n',
        Mode.REPLAY,
        "watermark.marker is an expression of Spark: upper(page) = 'X'",
    ),
]


@pytest.mark.parametrize(("text", "mode", "reason"), REFUSED)
def test_a_plan_names_what_only_a_newer_spark_can_compute(
    tmp_path: Path, text: str, mode: Mode, reason: str
) -> None:
    definition = write_definition(tmp_path, text)

    with pytest.raises(SpecError) as refused:
        planned(tmp_path, definition, mode=mode)

    assert str(refused.value).replace(str(tmp_path), "FOLDER") == (
        f"Spark 3.5.6-amzn-2 cannot run clicks: {reason} (FOLDER/clicks.toml)\n\n{HINT}"
    )
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.parametrize(("text", "reason"), [(text, reason) for text, _, reason in REFUSED])
def test_a_check_names_what_only_a_newer_spark_can_compute(tmp_path: Path, text: str, reason: str) -> None:
    checked = check_definition(write_definition(tmp_path, text), Home(tmp_path / "home"))

    (problem,) = checked.problems
    assert str(problem).replace(str(tmp_path), "FOLDER") == (
        f"Spark 3.5.6-amzn-2 cannot run clicks: {reason} (FOLDER/clicks.toml)\n\n{HINT}"
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            'format = "csv"\noptions = { comment = "#" }\ncolumns = { happened_at = "string" }',
            "source.options.comment is set",
        ),
        ('where = "seq > 0"', "source.where is set"),
        ('format = "json"\nwhere = "seq > 0"\ncolumns = { seq = "int" }', "source.where is set"),
    ],
)
def test_a_check_names_the_files_that_only_a_newer_spark_can_prepare(
    tmp_path: Path, settings: str, reason: str
) -> None:
    for suffix in ("csv", "json"):
        (tmp_path / f"data/a.{suffix}").write_text('{"seq": 1}\n')
    text = CLICKS.replace("path =", f"{settings}\npath =")
    checked = check_definition(write_definition(tmp_path, text), Home(tmp_path / "home"))

    (problem,) = checked.problems
    assert str(problem).replace(str(tmp_path), "FOLDER") == (
        f"Spark 3.5.6-amzn-2 cannot prepare the files of clicks: {reason} (FOLDER/clicks.toml)\n\n{HINT}"
    )


def test_advice_needs_a_newer_spark(tmp_path: Path) -> None:
    definition = write_definition(tmp_path)

    with pytest.raises(SpecError) as refused:
        prepare_advice(definition, days(1, 2).start_ms, days(1, 2).end_ms, 0.99, Home(tmp_path / "home"))

    assert str(refused.value) == f"Spark 3.5.6-amzn-2 cannot advise on clicks ({definition})\n\n{HINT}"


@pytest.mark.parametrize(
    ("version", "settings", "since", "problem"),
    [
        (
            "4.0.5",
            'format = "csv"\noptions = { comment = "#" }\ncolumns = { happened_at = "timestamp" }',
            "4.1",
            "Spark 4.0.5 cannot read text with the suffix .zst, such as FOLDER/data/b.csv.zst",
        ),
        (
            "4.1.4",
            'format = "orc"',
            "4.2",
            f"Spark 4.1.4 cannot read the column happened_at of FOLDER/data/c.orc: its type is {INSTANT_IN_ORC}",
        ),
        (
            "4.1.4",
            'format = "csv"\noptions = { comment = "#" }\ncolumns = { happened_at = "timestamp" }',
            "",
            None,
        ),
        ("4.0.5", 'format = "csv"\ncolumns = { happened_at = "timestamp" }', "", None),
        ("4.2.1", 'format = "orc"', "", None),
        ("4.0.5", 'format = "json"\ncolumns = { happened_at = "string" }', "", None),
    ],
)
def test_a_check_names_the_files_that_only_a_newer_spark_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, settings: str, since: str, problem: str | None
) -> None:
    install(tmp_path / "newer", f"2.13-{version}", monkeypatch)
    orc.write_table(pq.read_table(tmp_path / "data/a.parquet"), tmp_path / "data/c.orc")
    for name, line in (("b.csv.zst", b"happened_at\n2024-03-01\n"), ("d.json.zst", b'{"happened_at": "2024"}\n')):
        (tmp_path / "data" / name).write_bytes(pa.compress(line, "zstd", asbytes=True))
    text = CLICKS.replace("path =", f"{settings}\npath =")
    checked = check_definition(write_definition(tmp_path, text), Home(tmp_path / "home"))

    first = next((str(each).replace(str(tmp_path), "FOLDER") for each in checked.problems), "")
    hint = f"hint: install Spark {since} or newer, or write other files"
    if problem:
        assert first == f"{problem} (FOLDER/clicks.toml)\n\n{hint}"
    else:
        assert not first.startswith("Spark")


def test_native_windows_are_planned_and_so_is_everything_on_a_newer_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode in Mode:
        planned(tmp_path, write_definition(tmp_path), mode=mode)

    install(tmp_path / "newer", "2.13-4.0.1", monkeypatch)
    for text, mode, _ in REFUSED:
        planned(tmp_path, write_definition(tmp_path, text), mode=mode)
