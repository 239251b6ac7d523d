"""Install the wheel with pip and uv beside several versions of Python, Airflow, and Spark, and publish with each.

`make matrix` prints one row per environment. A row takes minutes, so it is not part of the suite.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from demo.airflow_api import FINISHED
from demo.settings import Spark
from demo.stack import Stack
from tests.package.installed import DAG_FILE, Installed, build_wheel, run_uv
from tests.workflow.history import at, write_clicks, write_definition

PYTHONS = ("3.11", "3.12", "3.13")
AIRFLOWS = ("3.1", "3.2", "3.3")
SPARKS = ("4.3",)
"""The newest Spark; `--spark 3.5 4.0 4.1 4.2` tries the older ones."""
EXTRAS = "airflow,spark"
RANGE = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-02T00:00:00Z"}
LIMIT_S = 900.0
CASES = ("tumbling replay", "sliding recompute", "session replay")
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Cell:
    """One environment of the matrix: versions of Python, Airflow, and Spark, and the installer."""

    python: str
    airflow: str
    spark: str
    installer: str

    def install(self, wheel: Path, environment: Path, constraint: str) -> None:
        """Install the wheel, with the newest patch of Airflow and the versions that the installer selects.

        Args:
            wheel: the file of the wheel.
            environment: folder of the new environment.
            constraint: file or address of Airflow's constraints, with `{python}` and `{airflow}`; empty for none.
        """
        interpreter = run_uv("python", "find", "--no-python-downloads", "--no-project", self.python).strip()
        wanted = [f"{wheel}[{EXTRAS}]", f"apache-airflow=={self.airflow}.*", f"pyspark=={self.spark}.*"]
        if constraint:
            wanted += ["--constraint", constraint.format(python=self.python, airflow=self.airflow)]
        if self.installer == "uv":
            run_uv("venv", "--python", interpreter, environment)
            run_uv("pip", "install", "--python", environment / "bin" / "python", *wanted)
            return
        clean = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
        make_environment = [interpreter, "-m", "venv", str(environment)]
        for command in (make_environment, [str(environment / "bin" / "pip"), "install", *wanted]):
            ended = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, ended.stderr


def write_project(folder: Path) -> Path:
    """Write a folder of DAGs with a definition, its events, and one DAG file; return it."""
    dags = folder / "dags"
    definitions = dags / "definitions"
    clicks = [(at(f"1 {hour:02}:00"), at(f"1 {hour:02}:01"), "A", hour, "home") for hour in range(24)]
    write_clicks(definitions / "data" / "a.parquet", clicks)
    write_definition(definitions)
    (dags / "backfills.py").write_text(DAG_FILE)
    return dags


def run_command_line(installed: Installed) -> None:
    """Run own data by the command line, and check the published row."""
    ends = ("--since", RANGE["since"], "--until", RANGE["until"])
    installed.run("backstream", "run", "dags/definitions/clicks.toml", *ends, timeout_s=LIMIT_S)
    lines = installed.run("backstream", "show", "clicks", *ends, "--format", "json").splitlines()
    shown = [json.loads(line) for line in lines]
    assert [row["clicks"] for row in shown] == [1] * 24, shown


def ask_airflow(installed: Installed) -> None:
    """Check what `airflow dags list` and `airflow plugins` list."""
    program = Path(__file__).with_name("ask_airflow.py")
    found = json.loads(installed.run("python", program, timeout_s=LIMIT_S).splitlines()[-1])
    assert [dag["dag_id"] for dag in found["dags"]] == ["backfill_clicks", "reprocess_clicks", "restate_clicks"]
    (source,) = (each["source"] for each in found["plugins"] if each["name"] == "backstream")
    assert source.startswith("backstream=="), source


def run_dag(installed: Installed) -> None:
    """Run a DAG by a scheduler of the environment until it has published one row."""
    python = installed.environment / "bin" / "python"
    empty = installed.project / "plugins"
    empty.mkdir()
    settings = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(installed.project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(empty),
        "PYTHONPATH": "",
    }
    with Stack(installed.project / "state", Spark("local[1]", 1), settings, python=python) as stack:
        api = stack.start()
        stack.wait_until("knows the DAG", lambda: api.has_dag("reprocess_clicks", NEVER), LIMIT_S)
        run_id = api.trigger("reprocess_clicks", RANGE | {"reason": "matrix"})
        stack.wait_until("has run it", lambda: api.run_state("reprocess_clicks", run_id) in FINISHED, LIMIT_S)
        failed = [task for task in api.task_instances("reprocess_clicks", run_id) if task["state"] == "failed"]
        assert not failed, f"{failed[0]['task_id']} failed\n" + "\n".join(map(str, api.log(failed[0])))
        assert api.xcom("reprocess_clicks", run_id, "publish", "return_value") == 24


def compare_hashes(installed: Installed) -> str:
    """Publish small cases by each engine that the Spark supports; return the hash of each case."""
    (core,) = installed.environment.glob("lib/python*/site-packages/pyspark/jars/spark-core_*.jar")
    engines = ("native",) if "-3.5." in core.name else ("native", "spark")
    cases = [f"{case} {engine}" for case in CASES for engine in engines]
    folder = installed.project / "cases"
    folder.mkdir()
    program = Path(__file__).with_name("publish_cases.py")
    hashes = json.loads(installed.run("python", program, folder, *cases, timeout_s=LIMIT_S).splitlines()[-1])[
        "hashes"
    ]
    by_case: dict[str, set[str]] = {}
    for case, value in hashes.items():
        by_case.setdefault(case.rpartition(" ")[0], set()).add(value)
    different = [case for case, values in by_case.items() if len(values) > 1]
    assert not different, f"the engines publish other rows: {', '.join(different)}"
    return " ".join(value for (value,) in by_case.values())


STEPS: dict[str, Callable[[Installed], str | None]] = {
    "command line": run_command_line,
    "lists": ask_airflow,
    "DAG run": run_dag,
    "hashes": compare_hashes,
}


def try_cell(cell: Cell, wheel: Path, folder: Path, constraint: str) -> Iterator[str]:
    """Yield the columns of a row: the installed versions, then the result of each step, and the seconds."""
    began_s = time.monotonic()
    installed = Installed(folder / "environment", folder / "project")
    installed.project.mkdir()
    try:
        cell.install(wheel, installed.environment, constraint)
    except (AssertionError, OSError) as error:
        yield f"not installed: {_sentence(error)}"
        return
    yield installed.run("python", "-c", _VERSIONS).strip()
    dags = write_project(installed.project)
    (installed.project / "airflow").mkdir()
    (installed.project / "airflow" / "dags").symlink_to(dags)
    for name, step in STEPS.items():
        try:
            found = step(installed)
        except Exception as error:  # noqa: BLE001 - one environment must not hide the others
            yield f"{name}: {_sentence(error)}"
        else:
            yield found or "yes"
    yield f"{time.monotonic() - began_s:.0f} s"


_VERSIONS = """
from importlib.metadata import distributions
found = {each.name: each.version for each in distributions()}
names = ["apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "pyspark-client"]
print(", ".join(found.get(name, "none") for name in names))
"""


def _sentence(error: BaseException) -> str:
    """Return the line of an output that names the error; the whole output goes to the standard error."""
    print(error, file=sys.stderr, flush=True)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if line.startswith("error")), lines[-1])[:200]


def main(arguments: Sequence[str] | None = None) -> None:
    """Try each environment that was selected, and print a table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the context managers end Airflow
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__)
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions of Python, such as 3.12")
    parser.add_argument("--airflow", nargs="+", default=AIRFLOWS, help="versions of Airflow, such as 3.2")
    parser.add_argument("--spark", nargs="+", default=SPARKS, help="versions of Spark, such as 4.0")
    parser.add_argument("--installer", nargs="+", default=("pip", "uv"), choices=("pip", "uv"))
    parser.add_argument("--constraint", default="", help="constraints with {python} and {airflow} in the address")
    chosen = parser.parse_args(arguments)
    heads = (
        "Python",
        "Airflow",
        "Spark",
        "installer",
        "Airflow, Spark provider, pyspark, pyspark-client",
        *STEPS,
        "time",
    )
    print("|".join(["", *heads, ""]))
    print("|".join(["", *["---"] * len(heads), ""]), flush=True)
    with TemporaryDirectory(prefix="backstream-matrix-") as name:
        wheel = build_wheel(Path(name))
        for words in product(chosen.python, chosen.airflow, chosen.spark, chosen.installer):
            cell, folder = Cell(*words), Path(name) / "-".join(words)
            folder.mkdir()
            print("|".join(["", *words, *try_cell(cell, wheel, folder, chosen.constraint), ""]), flush=True)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
