"""Measure the dense job on a Spark standalone cluster of one worker and of two, with one core each.

.venv/bin/python -m benchmarks.two_workers [--rows 25000000] [--rounds 3] [--worker-cores 0.5]

The driver, the master, and the workers run on this machine, so it needs three free cores to show the whole gain.
On fewer cores, `--worker-cores` limits each worker with its executor to a part of one core (Linux, as root).
A job is timed from the start of `spark-submit` to its exit, and its plan exists before. The time of the stages, in
which tasks run, excludes the start of the driver and of the executors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
from demo.processes import Service
from demo.settings import CHECKOUT, free_ports

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.workflow import plan_run
from backstream.workflow.plan.plan_request import PlanRequest
from benchmarks import shapes
from benchmarks.data import FIRST_DAY_MS
from benchmarks.kinds import in_processes
from benchmarks.processor_limit import processor_limit
from benchmarks.session import session

_SHAPE = "dense"
_BIN = Path(sys.executable).parent
_WORKERS = (1, 2)
_START_LIMIT_S = 60
_MEMORY = {"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "2g"}


def main() -> None:
    """Write the input, take turns, and print the seconds of each round and the ratio as lines of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=shapes.ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(".backstream/benchmarks"))
    parser.add_argument("--worker-cores", type=float, default=0, help="the limit of each worker; by default none")
    options = parser.parse_args()
    folder = options.folder.resolve()
    list(in_processes([partial(_prepare, options.rows, folder)]))
    shape = shapes.SHAPES[_SHAPE].scaled(options.rows)
    rounds = {mode: list[dict[int, Seconds]]() for mode in Mode}
    with _cluster(folder / "cluster", options.worker_cores) as master:
        for number in range(options.rounds):
            for mode in Mode:
                seconds = {}
                for workers in _WORKERS if number % 2 else _WORKERS[::-1]:
                    plan = _plan(shape.definition(shape.folder(folder), "native"), folder / "cluster", mode)
                    seconds[workers] = _submit(master, plan, workers, folder / "cluster")
                rounds[mode].append(seconds)
                by_workers = {workers: each._asdict() for workers, each in seconds.items()}
                print(
                    json.dumps({"mode": mode, "round": number + 1, "seconds by workers": by_workers}), flush=True
                )
    for part in Seconds._fields:
        ratios = {
            mode: round(statistics.median(getattr(each[2], part) / getattr(each[1], part) for each in measured), 2)
            for mode, measured in rounds.items()
        }
        print(json.dumps({f"two workers against one, {part}, median": ratios}))


class Seconds(NamedTuple):
    """The seconds of a job from start to exit, and those in which a stage ran."""

    job: float
    stages: float


def _prepare(rows: int, folder: Path) -> None:
    spark = session("6g", folder / "spark")
    shapes.prepare(spark, [_SHAPE], rows, folder)
    spark.stop()


def _plan(definition: str, folder: Path, mode: Mode) -> Plan:
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    file = home / "jobs.toml"
    file.write_text(definition)
    day = Interval(FIRST_DAY_MS, FIRST_DAY_MS + DAY_MS)
    return plan_run(PlanRequest(file, day, mode=mode, trigger="benchmark", home=Home(home)))


@contextmanager
def _cluster(folder: Path, worker_cores: float) -> Iterator[str]:
    """Start a master and the workers, and yield the address of the master."""
    port, *web_ports = free_ports(2 + len(_WORKERS))
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = ["-h", "127.0.0.1", "-p", str(port)]
        stack.callback(_stop, _start("master", words, web_ports[0], folder))
        for number, web_port in enumerate(web_ports[1:], start=1):
            limit = stack.enter_context(processor_limit(f"backstream-worker-{number}", worker_cores))
            words = ["-c", "1", "-m", "4g", "-h", "127.0.0.1", master]
            stack.callback(_stop, _start(f"worker-{number}", words, web_port, folder, limit))
        _wait_for_workers(f"http://127.0.0.1:{web_ports[0]}/json/")
        yield master


def _wait_for_workers(page: str) -> None:
    """Wait until the page of the master shows all workers, so that no job pays for their start."""
    for _ in range(_START_LIMIT_S):
        with suppress(httpx.ConnectError):
            if httpx.get(page, trust_env=False, follow_redirects=True).json()["aliveworkers"] == len(_WORKERS):
                return
        time.sleep(1)
    msg = f"the cluster did not start in {_START_LIMIT_S} s ({page})"
    raise RuntimeError(msg)


def _start(name: str, words: Sequence[str], web_port: int, folder: Path, limit: Sequence[str] = ()) -> Service:
    kind = name.partition("-")[0]
    program = f"org.apache.spark.deploy.{kind}.{kind.title()}"
    command = [*limit, str(_BIN / "spark-class"), program, "--webui-port", str(web_port), *words]
    return Service.started(name, command, folder, _environment(folder))


def _stop(service: Service) -> None:
    service.process.terminate()
    service.process.wait(30)


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(CHECKOUT / "pipelines"),
    }


def _submit(master: str, plan: Plan, workers: int, folder: Path) -> Seconds:
    """Return the seconds of a job on so many cores, each of another worker."""
    events = folder / "events"
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir(parents=True)
    settings = _MEMORY | {"spark.executor.cores": "1", "spark.cores.max": str(workers)}
    settings |= {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(events),
    }
    command = [str(_BIN / "spark-submit"), "--master", master]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += [str(CHECKOUT / "pipelines" / "backstream" / "jobs" / "replay.py"), "--plan", str(plan.folder.plan)]
    command += [word for chunk in plan.chunks for word in ("--chunk", chunk.chunk_id)]
    begin = time.monotonic()
    done = subprocess.run(command, env=_environment(folder), check=False, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode:
        msg = f"the job ended with status {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
        raise RuntimeError(msg)
    return Seconds(round(seconds, 1), round(_stages_s(events), 1))


def _stages_s(events: Path) -> float:
    """Return the seconds in which a stage ran, from Spark's own log; the stages run one after the other."""
    total_ms = 0
    for file in events.rglob("events_*"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageCompleted":
                total_ms += event["Stage Info"]["Completion Time"] - event["Stage Info"]["Submission Time"]
    return total_ms / 1000


if __name__ == "__main__":
    main()
