"""Read the records of an archive as a run of the definition reads them that `init` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from backstream.definition.loader import load_definition, resolve_paths
from backstream.runs.home import Home
from backstream.source.archive.definition_text import Settings, write_definition_text
from backstream.source.archive.evidence import Evidence
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The numbers of records, and of the readable ones the event time and the values of the key."""

    read: int
    unreadable: int
    rows: list[tuple[datetime, Any]]


def run_records(
    evidence: Evidence, folder: Path, spark: SparkSession, completed: Mapping[str, str] | None = None
) -> RunRecords:
    """Write the definition into a folder, complete its lines, and prepare its files."""
    text = write_definition_text(evidence, Settings("t"))
    for line, complete in (completed or {}).items():
        text = text.replace(line, complete)
    (folder / "t.toml").write_text(text, encoding="utf-8")
    prepared = prepare_source(folder / "t.toml", Home(folder / "home"), SparkRunner(lambda: spark))
    assert prepared is not None
    source = resolve_paths(load_definition(folder / "t.toml"), Home(folder / "home")).source
    rows = ds.dataset(source.paths[0], format="parquet").to_table()
    found = [(row[source.event_time], *(row[name] for name in source.key)) for row in rows.to_pylist()]
    readable = [row for row in found if row[0] is not None]
    return RunRecords(prepared.counts.read, prepared.counts.unreadable, readable)
