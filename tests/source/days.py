"""Sources of a file per day, and the errors of plans over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.errors import BackstreamError
from backstream.runs.plan import Mode, Plan

SKIP = CLICKS.replace("[source]\n", '[source]\ncorrupt_files = "skip"\n')
BAD_PAGE = "Couldn't deserialize thrift: don't know what type: ?"
HINT = '\n\nhint: restore the file, move it away, or set source.corrupt_files = "skip"'
MAGIC = "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file"


def write_days(folder: Path, *days: int) -> None:
    """Write a file per day of March with one click at 05:00."""
    for day in days:
        write_clicks(folder / f"data/{day}.parquet", [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home")])


def damage_pages(file: Path) -> None:
    """Change all bytes between the magic word and the footer."""
    content = bytearray(file.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for number in range(4, len(content) - footer):
        content[number] ^= 0x5A
    file.write_bytes(content)


def refusal(folder: Path, error: type[BackstreamError], text: str = CLICKS, **options: str) -> str:
    """Return the message of a failed plan, with FOLDER for the path of the folder."""
    mode = Mode(options.pop("mode", "recompute"))
    with pytest.raises(error) as refused:
        planned(folder, write_definition(folder, text), mode=mode, **options)
    return str(refused.value).replace(str(folder), "FOLDER")


def names(plan: Plan) -> list[str]:
    return [Path(file.path).name for file in plan.inputs]
