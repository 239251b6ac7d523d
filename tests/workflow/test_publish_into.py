"""Plan and publish a definition with the section `[publish]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, TimestamptzType
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.errors import PlanError
from backstream.lake.catalog import open_catalog_for_writing
from backstream.runs.home import Home
from backstream.workflow.history import rollback_run

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:01"), "A", 1, "help")]
SECTION = '\n[publish]\ntable = "web.clicks"\ncolumns = {window_start = "hour", run_id = "loaded_by"}\n'


def make_table(folder: Path, **types: IcebergType) -> None:
    fields = {"hour": TimestamptzType(), "page": StringType(), "clicks": LongType(), "loaded_by": StringType()}
    schema = Schema(*(NestedField(n, name, kind) for n, (name, kind) in enumerate((fields | types).items(), 1)))
    with open_catalog_for_writing(Home(folder / "home")) as catalog:
        catalog.create_namespace("web")
        catalog.create_table("web.clicks", schema)


def found(folder: Path) -> list[tuple[int, str, int, str]]:
    """Return hour, page, clicks, and run of all rows."""
    with open_catalog_for_writing(Home(folder / "home")) as catalog:
        rows = catalog.load_table("web.clicks").scan().to_arrow().to_pylist()
    return sorted((row["hour"].hour, row["page"], row["clicks"], row["loaded_by"]) for row in rows)


def test_a_run_publishes_into_the_named_table_and_a_rollback_empties_it(
    tmp_path: Path,
) -> None:
    write_clicks(tmp_path / "data/a.parquet", ROWS)
    make_table(tmp_path)
    plan = planned(tmp_path, write_definition(tmp_path, CLICKS + SECTION))

    publish_counts(plan, ROWS)

    assert found(tmp_path) == [(5, "home", 1, plan.run_id), (6, "help", 1, plan.run_id)]
    rollback_run(Home(tmp_path / "home"), plan.run_id)
    assert found(tmp_path) == []


def test_a_table_that_does_not_fit_is_refused_before_any_work(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ROWS)
    make_table(tmp_path, clicks=StringType())

    with pytest.raises(PlanError) as caught:
        planned(tmp_path, write_definition(tmp_path, CLICKS + SECTION))

    assert str(caught.value) == (
        "cannot publish into table `web.clicks`\n  clicks: a long cannot be written as string"
    )
