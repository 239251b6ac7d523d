"""Measure the plan of a source with very many small files, as a process from its start to its exit."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_FIRST_DAY = datetime(2024, 3, 1, tzinfo=UTC)
_FILES_PER_FOLDER = 1_000
_ROWS_PER_FILE = 4
_DEFINITION = """
name = "many_files"
[source]
path = "{folder}/data"
event_time = "at"
key = ["user"]
[window]
kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "30m"
[aggregates]
orders = "count(*)"
"""


def main() -> None:
    """Write the files, plan twice, and print seconds and memory as one line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000, help="number of Parquet files; default: 100000")
    parser.add_argument("--folder", type=Path, default=Path(".backstream/benchmarks/many-files"))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    write_files(folder / "data", arguments.files)
    definition = folder / "many_files.toml"
    definition.write_text(_DEFINITION.format(folder=folder))
    for name in ("first plan", "second plan"):
        seconds, megabytes = plan(definition, folder / "home")
        print(json.dumps({"files": arguments.files, "step": name, "seconds": seconds, "MB": megabytes}))


def write_files(folder: Path, files: int) -> None:
    """Write files of four records each, 1,000 to a folder; those that exist are kept."""
    for number in range(files):
        path = folder / f"{number // _FILES_PER_FOLDER:04}" / f"{number:06}.parquet"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        at = _FIRST_DAY + timedelta(seconds=number * 86_400 / files)
        times = pa.array([at] * _ROWS_PER_FILE, pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"at": times, "user": list("abcd")[:_ROWS_PER_FILE]}), path)


def plan(definition: Path, home: Path) -> tuple[float, int]:
    """Return the seconds of a process that plans one day, and the most memory that it used, in MB.

    Raises:
        RuntimeError: when planning fails.
    """
    command = [str(Path(sys.executable).with_name("backstream")), "plan", str(definition), "--allow-unsealed"]
    command += ["--since", "2024-03-01", "--until", "2024-03-02", "--mode", "recompute"]
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "BACKSTREAM_HOME": str(home)}
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        msg = f"planning failed with wait status {status}"
        raise RuntimeError(msg)
    return round(time.monotonic() - started, 1), usage.ru_maxrss // 1024


if __name__ == "__main__":
    main()
