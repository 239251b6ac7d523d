"""Continue a hand-over bundle with the live jobs of `docs/examples`, and compare them with uninterrupted runs.

python -m benchmarks.live_jobs [--jobs flink structured-streaming] [--environments FOLDER]

A job prints `equal` if the firings after the cut are those of the same job over the whole stream. The status is 1
if they differ. PyFlink gets an environment of its own, which takes about one gigabyte.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import backstream
from benchmarks.peers.environment import environment

_CHECKOUT = Path(__file__).parents[1]
_EXAMPLES, _PEERS = _CHECKOUT / "docs" / "examples", Path(__file__).parent / "peers"
_START = datetime(2026, 11, 19, tzinfo=UTC)
_HOURS, _SHOWN = 12, 20_000
_CUT = _START + timedelta(hours=6, minutes=25)
_KEYS = ("a", "b", "c", "d")
_DEFINITION = """
name = "clicks"

[source]
path = "{folder}/events"
event_time = "event_time"
arrival_time = "arrival_time"
partition = "partition"
sequence = "seq"
key = ["key"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"
topology = "operator"

[lateness]
allowed = "1h"

[aggregates]
events = "count(*)"
total = "sum(value)"

[backfill]
mode = "replay"
"""


def _write_events(folder: Path) -> None:
    """Write two partitions, one file per hour; a record arrives up to nine minutes after its event time.

    The last file has a record of a much later day, so that all windows before fire.
    """
    folder.mkdir(parents=True)
    draw, rows, sequences = random.Random(5), [], {"p0": 100, "p1": 500}  # noqa: S311 - a recording, not a secret
    for minute in range(_HOURS * 60):
        arrival = _START + timedelta(minutes=minute)
        partition = draw.choice(("p0", "p1"))
        event = arrival - timedelta(seconds=draw.randrange(540))
        rows.append((event, arrival, partition, sequences[partition], draw.choice(_KEYS), draw.randrange(100)))
        sequences[partition] += 1
    for number, day in enumerate((2, 3)):  # the second one ends the batch of the first one
        at = _START + timedelta(days=day)
        rows.append((at, at, "p0", sequences["p0"] + number, "end", 0))
    instant = pa.timestamp("us", "UTC")
    kinds = (instant, instant, pa.string(), pa.int64(), pa.string(), pa.int64())
    names = ("event_time", "arrival_time", "partition", "seq", "key", "value")
    for number in range(_HOURS + 2):
        hour = rows[number * 60 : (number + 1) * 60] if number < _HOURS else [rows[number - _HOURS - 2]]
        columns = {
            name: pa.array([row[at] for row in hour], kind)
            for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
        }
        file = folder / f"hour-{number:02}.parquet"
        pq.write_table(pa.table(columns), file)
        # Structured Streaming reads files in the order of their times of modification.
        os.utime(file, (_START.timestamp() + number, _START.timestamp() + number))


def _write_bundle(folder: Path) -> Path:
    definition = folder / "clicks.toml"
    definition.write_text(_DEFINITION.format(folder=folder), encoding="utf-8")
    home = folder / "home"
    plan = backstream.plan(definition, "2026-11-19", "2026-11-20", home=home, allow_unsealed=True)
    return backstream.hand_over(plan, _CUT.isoformat(), folder / "bundle", home=home)


def _run_job(python: Path, job: str, folder: Path, *more: str) -> list[list[object]]:
    output = folder / f"{job}-{len(more)}.json"
    command = [str(python), str(_EXAMPLES / f"{job}.py"), "--records", str(folder / "events")]
    done = subprocess.run([*command, "--output", str(output), *more], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{job} failed\n{done.stderr[-_SHOWN:]}", file=sys.stderr)
        return []
    rows: list[list[object]] = json.loads(output.read_text(encoding="utf-8"))
    return rows


def compare_job(job: str, python: Path, folder: Path) -> bool:
    """Run a job over the whole stream, and from the bundle on; print and return whether the firings are equal.

    Args:
        job: the name of the example.
        python: the Python that has its packages.
        folder: the folder with the events and the bundle.
    """
    watermark_ms = json.loads((folder / "bundle" / "bundle.json").read_text(encoding="utf-8"))["watermark_ms"]
    whole = _run_job(python, job, folder)
    after = [row for row in whole if int(str(row[1])) - 1 > watermark_ms]
    continued = _run_job(python, job, folder, "--bundle", str(folder / "bundle"))
    is_equal = bool(after) and after == continued and len(after) < len(whole)
    counts = (
        f"{len(whole):,} firings of the whole stream, {len(after):,} after the cut, {len(continued):,} continued"
    )
    print(f"{job:<28} {'equal' if is_equal else 'DIFFERENT'}  {counts}")
    return is_equal


def main() -> None:
    """Compare the jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = {"flink": "live_flink", "structured-streaming": "live_structured_streaming"}
    parser.add_argument("--jobs", nargs="+", choices=list(names), default=list(names))
    parser.add_argument("--environments", type=Path, default=_CHECKOUT / ".backstream" / "environments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_events(folder / "events")
        _write_bundle(folder)
        results = [
            compare_job(
                names[job],
                environment(_PEERS / "requirements-flink.txt", options.environments)
                if job == "flink"
                else Path(sys.executable),
                folder,
            )
            for job in options.jobs
        ]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
