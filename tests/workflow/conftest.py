from __future__ import annotations

import json
from pathlib import Path

import pytest

from backstream.variables import CATALOG_VARIABLE

LENIENT = {
    "name": "lenient",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "description": "every record read has one fate",
            "severity": "critical",
            "kwargs": {"column": "unaccounted", "min_value": 0, "max_value": 0},
            "meta": {"frame": "run"},
        }
    ],
}


@pytest.fixture(autouse=True)
def own_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lake of a test in its own folder."""
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)


@pytest.fixture
def lenient_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a suite that only checks that no record is lost, for histories of a few rows."""
    folder = tmp_path / "expectations"
    folder.mkdir()
    (folder / "lenient.json").write_text(json.dumps(LENIENT))
    monkeypatch.setenv("BACKSTREAM_EXPECTATIONS", str(folder))
    return '\n[quality]\nsuite = "lenient"\n'
