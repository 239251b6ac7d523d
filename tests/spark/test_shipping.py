"""Test that executors without this package get it, and the package of a custom generator."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest
from tests.cli.test_processes import LENIENT_ABOUT_GAPS
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.jobs import replay
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode
from backstream.spark.session import SMALL_DATA_SETTINGS

pytestmark = pytest.mark.slow

GENERATOR = """\
from company.margins import MARGIN_MS


class Late:
    def __init__(self):
        self.greatest_ms = None

    def on_event(self, record):
        self.greatest_ms = max(self.greatest_ms or 0, record.event_time_ms)

    def on_periodic_emit(self, now_ms):
        return None if self.greatest_ms is None else self.greatest_ms - MARGIN_MS - 1
"""
PROCESS = """\
from company.margins import MARGIN_MS


class Silence:
    def process_element(self, record, context):
        context.timer_service.register(context.timestamp_ms + MARGIN_MS)

    def on_timer(self, timestamp_ms, context):
        context.emit({"alert": context.key})
"""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CUSTOM = CLICKS.replace('"bounded_out_of_orderness"\ndelay = "10m"', '"custom"\nclass = "company.late:Late"')
ROWS = [
    (at("1 05:00"), at("1 05:01"), "A", 0, "home"),
    (at("1 06:40"), at("1 06:50"), "A", 1, "home"),
    (at("1 05:10"), at("1 07:00"), "A", 2, "home"),
]


@pytest.fixture
def bare_python(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a Python worker that has libraries, but not this package."""
    python = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    environment = {"PYTHONPATH": sysconfig.get_path("purelib")}
    lacking = "import pyarrow, importlib.util as u; print([u.find_spec(n) for n in ('backstream', 'company')])"
    done = subprocess.run(
        [python, "-c", lacking], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if done.stdout.strip() != "[None, None]":
        pytest.skip(f"no Python here that lacks this project but has pyarrow: {done.stdout}{done.stderr}")
    return environment | {"PYSPARK_PYTHON": python}


@pytest.mark.long
def test_a_custom_generator_runs_on_executors_without_its_package(
    tmp_path: Path, bare_python: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"__init__": "", "late": GENERATOR, "margins": "MARGIN_MS = 600_000\n"}.items():
        (tmp_path / "code/company").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"code/company/{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "code")
    write_clicks(tmp_path / "data/a.parquet", ROWS)
    plan = planned(tmp_path, write_definition(tmp_path, CUSTOM + LENIENT_ABOUT_GAPS), mode=Mode.REPLAY)

    done = _submitted(tmp_path, ["--plan", str(plan.folder.plan), "--chunk", "0000"], bare_python)

    assert done.returncode == 0, done.stderr[-3000:]
    fates = Manifest.read(plan.folder.manifest("0000")).fates
    assert {name: count for name, count in fates["A"].items() if count} == {"on_time": 2, "dropped": 1}


def test_a_process_function_runs_on_executors_that_have_nothing_of_it(
    tmp_path: Path, bare_python: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"__init__": "", "alerts": PROCESS, "margins": "MARGIN_MS = 600_000\n"}.items():
        (tmp_path / "code/company").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"code/company/{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "code")
    write_clicks(tmp_path / "data/a.parquet", ROWS)
    section = '[process]\nclass = "company.alerts:Silence"\ncolumns = { alert = "string" }\n'
    text = CLICKS.replace('[aggregates]\nclicks = "count(*)"\n', section)
    plan = planned(tmp_path, write_definition(tmp_path, text + LENIENT_ABOUT_GAPS), mode=Mode.REPLAY)

    done = _submitted(tmp_path, ["--plan", str(plan.folder.plan), "--chunk", "0000"], bare_python)

    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = Manifest.read(plan.folder.manifest("0000")).files[""]
    assert (file.rows, file.records) == (3, 3)


@pytest.mark.long
def test_sessions_that_lateness_touched_are_played_on_executors_that_have_nothing_of_it(
    tmp_path: Path, bare_python: dict[str, str]
) -> None:
    write_clicks(tmp_path / "data/a.parquet", ROWS)
    text = CLICKS.replace('kind = "tumbling"\nsize = "1h"', 'kind = "session"\ngap = "12m"')
    plan = planned(tmp_path, write_definition(tmp_path, text + LENIENT_ABOUT_GAPS), mode=Mode.REPLAY)

    done = _submitted(tmp_path, ["--plan", str(plan.folder.plan), "--chunk", "0000"], bare_python)

    assert done.returncode == 0, done.stderr[-3000:]
    fates = Manifest.read(plan.folder.manifest("0000")).fates
    assert {name: count for name, count in fates["A"].items() if count} == {"on_time": 2, "dropped": 1}


def _submitted(folder: Path, arguments: list[str], worker: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `spark-submit` on a master with one worker, whose executors are separate processes."""
    spark_home = Path(pyspark.__file__).parent
    settings = SMALL_DATA_SETTINGS | {
        "spark.master": "local-cluster[1,1,512]",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executorEnv.PYTHONPATH": worker["PYTHONPATH"],
        "spark.pyspark.python": worker["PYSPARK_PYTHON"],
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    code = os.pathsep.join([str(folder / "code"), *sys.path])
    return subprocess.run(
        [spark_home / "bin/spark-submit", *options, replay.__file__, *arguments],
        env=os.environ | {"SPARK_HOME": str(spark_home), "PYTHONPATH": code, "SPARK_LOCAL_DIRS": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
