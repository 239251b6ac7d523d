"""Planning rejects what needs Spark's readers and writers, if executors share only an object store."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from tests.lake.store import BUCKET, Store
from tests.spark.histories import days
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.errors import SpecError
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.variables import CACHE_VARIABLE, SHARED_HOME_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.runners import SparkRunner

SOURCE = f"s3://{BUCKET}/clicks"
IN_STORE = CLICKS.replace("{folder}/data", SOURCE)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a history into the store; executors share nothing else."""
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    with s3.filesystem.open_output_stream(f"{SOURCE.removeprefix('s3://')}/a.parquet") as stream:
        stream.write((tmp_path / "data/a.parquet").read_bytes())
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    monkeypatch.setenv(SHARED_HOME_VARIABLE, "no")


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        (CLICKS, Mode.RECOMPUTE, "source.path is on a disk: FOLDER/data"),
        (
            IN_STORE.replace('path = "s3', 'where = "true"\npath = "s3'),
            Mode.RECOMPUTE,
            "source.where is set, and the home is on a disk",
        ),
        (IN_STORE + '[backfill]\nengine = "spark"\n', Mode.RECOMPUTE, 'backfill.engine is "spark"'),
        (
            IN_STORE + 'pages = "count(distinct page)"\n',
            Mode.RECOMPUTE,
            "aggregates.pages is count(distinct page)",
        ),
        (
            IN_STORE.replace('"tumbling"', '"session"').replace("size =", "gap ="),
            Mode.RECOMPUTE,
            "tasks exchange parts of sessions on a disk",
        ),
        (IN_STORE + '[derive_after]\ntwice = "clicks * 2"\n', Mode.RECOMPUTE, "Spark computes [derive_after]"),
        (IN_STORE + '[having]\ncondition = "clicks > 1"\n', Mode.RECOMPUTE, "Spark evaluates [having]"),
        (
            IN_STORE + "[backfill]\nkeep_firings = true\n",
            Mode.REPLAY,
            "Spark computes the firings (backfill.keep_firings)",
        ),
        (
            IN_STORE.replace(
                'strategy = "bounded_out_of_orderness"', 'strategy = "punctuated"\nmarker = "upper(page) = \'X\'"'
            ),
            Mode.REPLAY,
            "watermark.marker is an expression of Spark: upper(page) = 'X'",
        ),
    ],
)
def test_a_part_that_needs_a_shared_home_is_named(tmp_path: Path, text: str, mode: Mode, reason: str) -> None:
    definition = write_definition(tmp_path, text)

    with pytest.raises(SpecError) as rejected:
        planned(tmp_path, definition, mode=mode)

    assert str(rejected.value).replace(str(tmp_path), "FOLDER") == (
        f"cannot run clicks on executors that do not share the home: {reason} (FOLDER/clicks.toml)\n\n"
        "hint: mount the home on the machines of all executors, and set BACKSTREAM_SHARED_HOME=yes"
    )
    assert not (tmp_path / "home" / "runs").exists()


def test_a_warehouse_on_a_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = write_definition(tmp_path, IN_STORE)
    planned(tmp_path, definition)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, str(tmp_path / "warehouse"))

    with pytest.raises(SpecError, match=r"the warehouse is not an address in S3 \(BACKSTREAM_WAREHOUSE\)"):
        planned(tmp_path, definition)
    monkeypatch.setenv(SHARED_HOME_VARIABLE, "perhaps")
    with pytest.raises(SpecError, match=r"^BACKSTREAM_SHARED_HOME must be yes or no, got 'perhaps'$"):
        planned(tmp_path, definition)


def test_a_home_in_a_store_has_the_same_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARED_HOME_VARIABLE)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    definition = write_definition(tmp_path, IN_STORE + '[backfill]\nengine = "spark"\n')
    home = Home.from_location(f"s3://{BUCKET}/limited")

    with pytest.raises(SpecError, match=r'backfill.engine is "spark"') as rejected:
        plan_run(PlanRequest(definition, days(0, 1), trigger="test", home=home))

    assert str(rejected.value).endswith("\n\nhint: set BACKSTREAM_HOME to a folder that all machines share")


def test_the_input_is_read_where_it_is(tmp_path: Path) -> None:
    definition, home = write_definition(tmp_path, IN_STORE), Home(tmp_path / "home")

    def no_session() -> NoReturn:
        pytest.fail("Spark was started")

    assert prepare_source(definition, home, SparkRunner(no_session)) is None
    plan = planned(tmp_path, definition)

    (file,) = plan.inputs
    assert (file.path, file.rows) == (f"{SOURCE}/a.parquet", 1)
    assert file.modified_ms > 0
    assert planned(tmp_path, definition).plan_hash == plan.plan_hash
