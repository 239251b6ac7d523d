"""Spark computes a definition if DuckDB is not installed."""

from __future__ import annotations

import sys

import pytest
from tests.definition.clicks import SOURCE, definition

from backstream.errors import SpecError
from backstream.native.supported import describe_engine, require_engine

REASON = "DuckDB is not installed (pip install 'backstream[native]')"


@pytest.fixture(autouse=True)
def no_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without DuckDB."""
    monkeypatch.setattr(sys, "modules", {**sys.modules, "duckdb": None})


def test_without_duckdb_spark_computes_every_definition() -> None:
    assert describe_engine(definition({}), SOURCE) == f"spark, because {REASON}"


def test_a_definition_that_requires_the_native_engine_names_the_extra() -> None:
    with pytest.raises(SpecError) as caught:
        require_engine(definition({"backfill.engine": '"native"'}), SOURCE, "clicks.toml")
    assert str(caught.value).splitlines()[0] == (
        f'backfill.engine = "native" cannot run clicks: {REASON} (clicks.toml)'
    )
