"""Define the bundle of a hand-over: a folder with the state of a stream at a cut, for a live job.

`bundle.json` describes the cut and lists the other files, which are Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from backstream.errors import LedgerError, SpecError
from backstream.eventtime.stream_state import StreamState
from backstream.storage.files import write_json

SCHEMA_VERSION = 1
_MANIFEST_NAME = "bundle.json"
PARTITIONS_FILE, WINDOWS_FILE, RECORDS_FILE = "partitions.parquet", "windows.parquet", "records.parquet"
TIMERS_FILE, STATES_FILE = "timers.parquet", "states.parquet"
"""The pending timers and the state of a process function, which has no windows."""


@dataclass(frozen=True, slots=True)
class HandoverBundle:
    """The content of `bundle.json`; times are epoch milliseconds.

    `at_ms` is the cut: records that arrived before it are in the state. `window` has the kind of the windows and
    their sizes. `aggregates` maps each result column to its expression, `partials` to the columns of its partial
    values. `holistic_aggregates` have no partial values, which need `records.parquet`. `partitions` are
    the source partitions; a number in `stream` is a position in this list. `files` maps the name of a file to its
    number of rows.
    """

    dataset: str
    run_id: str
    plan_hash: str
    at_ms: int
    watermark_ms: int
    is_idle: bool
    clock_start_ms: int
    window: Mapping[str, Any]
    allowed_lateness_ms: int
    watermark: Mapping[str, Any]
    key: tuple[str, ...]
    aggregates: Mapping[str, str]
    partials: Mapping[str, tuple[str, ...]]
    holistic_aggregates: tuple[str, ...]
    partitions: tuple[str, ...]
    stream: StreamState
    files: Mapping[str, int]
    schema_version: int = SCHEMA_VERSION

    def write(self, folder: Path) -> Path:
        """Write `bundle.json` into a folder, and return the file. It is written last: a whole bundle has it."""
        write_json(folder / _MANIFEST_NAME, asdict(self))
        return folder / _MANIFEST_NAME

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the description of a bundle.

        Raises:
            LedgerError: when the folder has no bundle.
            SpecError: when the bundle has another schema version.
        """
        path = folder / _MANIFEST_NAME
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            msg = f"no readable bundle at {path}: {error}"
            raise LedgerError(msg) from error
        version = content.get("schema_version")
        if version != SCHEMA_VERSION:
            msg = (
                f"schema version of a bundle must be {SCHEMA_VERSION}, got {version!r} ({path})\n\n"
                "hint: create the bundle again with `backstream handover`"
            )
            raise SpecError(msg)
        lists = {name: tuple(content[name]) for name in ("key", "holistic_aggregates", "partitions")}
        partials = {name: tuple(columns) for name, columns in content["partials"].items()}
        stream = StreamState.from_json(content["stream"])
        return cls(**{**content, **lists, "partials": partials, "stream": stream})
