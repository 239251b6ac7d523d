"""What every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

FLINK_CASES = Path(__file__).parent / "conformance" / "flink"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark for all tests that need it."""
    from backstream.spark.session import SMALL_DATA_SETTINGS, local

    session = local("tests", SMALL_DATA_SETTINGS)
    yield session
    session.stop()
