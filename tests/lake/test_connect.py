"""What is pasted into another engine has no password."""

from __future__ import annotations

import pytest

from backstream.lake.catalog_address import CATALOG_NAME, CatalogAddress
from backstream.lake.connect import TablePlace, engine_text
from backstream.text import ReadingEngine

PASSWORD = "hunter2"  # noqa: S105 - of no service
URIS = {
    "rest": f"https://me:{PASSWORD}@lake.example.com/api",
    "hive": f"thrift://me:{PASSWORD}@lake.example.com:9083",
    "sql": f"postgresql+psycopg2://me:{PASSWORD}@lake.example.com/catalog",
}


@pytest.mark.parametrize("name", [CATALOG_NAME, "lake"])
@pytest.mark.parametrize("kind", URIS)
@pytest.mark.parametrize("engine", ReadingEngine)
def test_no_text_has_a_password(name: str, kind: str, engine: ReadingEngine) -> None:
    properties = {"uri": URIS[kind], "s3.secret-access-key": PASSWORD, "credential": f"me:{PASSWORD}"}
    address = CatalogAddress(name, kind, properties)
    location = "s3://lake/orders"
    place = TablePlace(address, "s3://lake", ("backstream", "orders"), location, f"{location}/metadata/1.json", {})

    text = engine_text(place, engine)

    assert PASSWORD not in text
    assert "orders" in text
