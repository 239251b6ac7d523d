"""Measure whole jobs over files in an object store beside the same files on a disk.

The store is moto, in a process on this machine. It takes processor time that a real store would not take, so the
output shows this time, too.

python -m benchmarks.object_store                     # 5,000,000 events, 3 rounds
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyarrow import fs

from backstream.eventtime.instants import DAY_MS
from benchmarks import data, shapes, whole_jobs
from benchmarks.kinds import Setting, in_processes
from benchmarks.measure import in_turn
from benchmarks.whole_jobs import Setup, WholeJob

_SHAPES = {"Parquet": "hourly", "JSON lines": "json-lines"}
_PLACES = ("disk", "store")
_BUCKET, _START_S = "archive", 60
_KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Store:
    """The process of a store, and its address."""

    process: psutil.Process
    endpoint: str

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables by which a job finds the store."""
        return {**_KEYS, "AWS_ENDPOINT_URL": self.endpoint}

    @property
    def processor_s(self) -> float:
        """The processor time of the store so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def upload(self, folder: Path, place: str) -> None:
        """Copy the files of a folder."""
        filesystem: Any = fs.S3FileSystem(
            access_key=_KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=self.endpoint,
            region=_KEYS["AWS_DEFAULT_REGION"],
            allow_bucket_creation=True,
        )
        filesystem.create_dir(_BUCKET)
        local = fs.LocalFileSystem()
        fs.copy_files(
            str(folder), f"{_BUCKET}/{place}", source_filesystem=local, destination_filesystem=filesystem
        )


@contextmanager
def running_store(log: Path) -> Iterator[Store]:
    """Run a store for the length of a block.

    Raises:
        RuntimeError: if it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _wait_for(port, log)
            yield Store(psutil.Process(process.pid), f"http://127.0.0.1:{port}")
        finally:
            process.terminate()


def _wait_for(port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    msg = f"the store did not start within {_START_S} s; its log is {log}"
    raise RuntimeError(msg)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs in turn, and print a line of JSON per run and per format. Return 1 if their rows differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.object_store", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=5_000_000, help="events; default: 5000000")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds; default: 3")
    parser.add_argument("--heap", default="6g", help="of the JVM of a job; default: 6g")
    parser.add_argument("--folder", type=Path, default=Path(".backstream/benchmarks"))
    options = parser.parse_args(arguments)
    # A shape has fewer events than the largest one, to which `rows` of a setting refers.
    scale = options.rows * shapes.ROWS // shapes.SHAPES["hourly"].stream.rows
    setting = Setting(scale, options.rounds, options.heap, options.folder.resolve())
    list(in_processes([partial(whole_jobs.prepare, setting, [*_SHAPES.values()])]))
    work = setting.folder / "object-store"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with running_store(work / "store.log") as store:
        jobs = dict(_jobs(setting, work, store))
        return _measure(jobs, options.rounds, store)


def _jobs(setting: Setting, work: Path, store: Store) -> Iterator[tuple[tuple[str, str], WholeJob]]:
    """Yield a job for each format and place."""
    for form, name in _SHAPES.items():
        shape = shapes.SHAPES[name].scaled(setting.rows)
        folder = shape.folder(setting.folder)
        store.upload(folder, name)
        for place, path in zip(_PLACES, (str(folder), f"s3://{_BUCKET}/{name}"), strict=True):
            home, definition = work / f"{name}-{place}", work / f"{name}-{place}.toml"
            definition.write_text(shape.definition(path))
            setup = Setup(
                definition, home, setting.heap, partial(shutil.rmtree, home, ignore_errors=True), store.variables
            )
            day = (data.FIRST_DAY_MS, data.FIRST_DAY_MS + DAY_MS)
            yield (form, place), setup.run(f"{form}, {place}", shape.stream.rows, day, "recompute")


def _measure(jobs: Mapping[tuple[str, str], WholeJob], rounds: int, store: Store) -> int:
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in jobs}
    of_store: dict[str, list[float]] = {form: [] for form in _SHAPES}
    names = {job.name: key for key, job in jobs.items()}
    for number in range(1, rounds + 1):
        for name in in_turn([*names], [], number):
            form, place = names[name]
            before_s = store.processor_s
            use = jobs[form, place].run()
            spent_s = store.processor_s - before_s
            seconds[form, place].append(use["seconds"])
            if place == "store":
                of_store[form].append(spent_s)
            _print({"round": number, "job": name, **_rounded(use), "store_processor_s": round(spent_s, 1)})
    status = 0
    for form in _SHAPES:
        rows = [whole_jobs.in_order(jobs[form, place].rows()) for place in _PLACES]
        is_equal = rows[0].equals(rows[1])
        status |= not is_equal
        pairs = zip(seconds[form, "store"], seconds[form, "disk"], strict=True)
        ratios = [store_s / disk_s for store_s, disk_s in pairs]
        medians = {f"{place}_s": round(statistics.median(seconds[form, place]), 1) for place in _PLACES}
        _print(
            {
                "format": form,
                **medians,
                "store_processor_s": round(statistics.median(of_store[form]), 1),
                "ratio": round(statistics.median(ratios), 2),
                "ratios": [round(each, 2) for each in ratios],
                "rows": rows[0].num_rows,
                "rows are equal": is_equal,
            }
        )
    return int(status)


def _rounded(use: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in use.items()}


def _print(facts: Mapping[str, Any]) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
