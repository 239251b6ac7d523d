"""A dataset whose events, tables, and home are in an object store; its definition is on each machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chain.job import KINDS, LENIENT
from tests.lake.store import BUCKET, Store
from tests.spark.histories import definition_of, random_history, write_history
from tests.spark.runs import toml_value

from backstream.eventtime.instants import instant_text
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE

HISTORY = random_history(seed=7, rows=900, days=4)


def write_dataset(folder: Path, s3: Store, place: str) -> Path:
    """Write the events into the store below a place, and return the definition of `events` in a folder."""
    write_history(folder / "history", HISTORY)
    for file in (folder / "history").rglob("*.parquet"):
        _write_object(s3, f"{place}/events/{file.relative_to(folder / 'history')}", file.read_bytes())
    return _write_definition(folder, {"path": f"s3://{BUCKET}/{place}/events"})


def write_json_lines(folder: Path, s3: Store, place: str) -> Path:
    """Write the events as JSON lines, with a line that is cut; see `write_dataset`."""
    names = ("happened_at", "arrived_at", "origin", "seq", "key", "value")
    rows = [(instant_text(event), instant_text(arrival), *others) for event, arrival, *others in HISTORY]
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    half = len(lines) // 2
    for number, part in enumerate((lines[:half], [*lines[half:], '{"cut'])):
        _write_object(s3, f"{place}/events/{number}.json", "\n".join(part).encode())
    columns = {name: "long" if name in {"seq", "value"} else "string" for name in names}
    return _write_definition(
        folder, {"path": f"s3://{BUCKET}/{place}/events", "format": "json", "columns": columns}
    )


def _write_object(s3: Store, key: str, content: bytes) -> None:
    with s3.filesystem.open_output_stream(f"{BUCKET}/{key}") as stream:
        stream.write(content)


def _write_definition(folder: Path, source: Mapping[str, Any]) -> Path:
    content = definition_of(
        folder,
        window=KINDS["sliding"],
        quality=LENIENT | {"verify": 1_000, "quarantined_ratio": {"warn": 1.0, "fail": 1.0}},
        backfill={"engine": "auto", "chunk": "1d"},
    )
    content |= {"name": "events", "source": {**content["source"], **source}}
    path = folder / "events.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    return path


def settings(folder: Path, s3: Store, place: str) -> dict[str, str]:
    """Return the variables of an installation that has only its catalog on a disk."""
    return {
        "AWS_ACCESS_KEY_ID": s3.key_id,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "AWS_ENDPOINT_URL": s3.endpoint,
        HOME_VARIABLE: home_address(place),
        WAREHOUSE_VARIABLE: f"s3://{BUCKET}/{place}/tables",
        CATALOG_VARIABLE: f"sqlite:///{folder / 'catalog.db'}?timeout=60",
    }


def home_address(place: str) -> str:
    return f"s3://{BUCKET}/{place}/home"
