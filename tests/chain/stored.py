"""A dataset whose events, tables, and home are in an object store; its definition is on each machine."""

from __future__ import annotations

from pathlib import Path

from tests.chain.job import KINDS, LENIENT
from tests.lake.store import BUCKET, Store
from tests.spark.histories import definition_of, random_history, write_history
from tests.spark.runs import toml_value

from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE

HISTORY = random_history(seed=7, rows=900, days=4)


def write_dataset(folder: Path, s3: Store, place: str) -> Path:
    """Write the events into the store below a place, and return the definition of `events` in a folder."""
    write_history(folder / "history", HISTORY)
    for file in (folder / "history").rglob("*.parquet"):
        path = file.relative_to(folder / "history")
        with s3.filesystem.open_output_stream(f"{BUCKET}/{place}/events/{path}") as stream:
            stream.write(file.read_bytes())
    content = definition_of(
        folder,
        window=KINDS["sliding"],
        quality=LENIENT | {"verify": 1_000},
        backfill={"engine": "auto", "chunk": "1d"},
    )
    content |= {"name": "events", "source": content["source"] | {"path": f"s3://{BUCKET}/{place}/events"}}
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
