"""The jobs of Airflow's tasks run without Spark if the definition has the runner `local`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode

LOCAL = CLICKS + '[backfill]\nrunner = "local"\n'
JOB = """
import sys
sys.modules |= dict.fromkeys(("pyspark", "py4j"))  # as if they were not installed
from importlib import import_module
sys.exit(import_module(sys.argv[1]).main(sys.argv[2:]))
"""


def write_history(folder: Path) -> None:
    rows = [(at(f"1 05:{minute:02}"), at(f"1 05:{minute:02}"), "A", minute, "home") for minute in range(60)]
    write_clicks(folder / "data/a.parquet", rows)


def test_a_replay_job_writes_its_manifests_without_pyspark(tmp_path: Path) -> None:
    write_history(tmp_path)
    plan = planned(tmp_path, write_definition(tmp_path, LOCAL), mode=Mode.REPLAY)
    job = ["backstream.jobs.replay", "--plan", str(plan.folder.plan), "--chunk", plan.chunks[0].chunk_id]

    ended = subprocess.run([sys.executable, "-c", JOB, *job], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert [manifest.events_read for manifest in load_manifests(plan)] == [60]


@pytest.mark.parametrize("text_format", ["json", "csv"])
def test_a_prepare_job_reads_text_without_pyspark(text_format: str, tmp_path: Path) -> None:
    times = [f"2024-03-01T05:{minute:02}:00Z" for minute in range(60)]
    lines = [{"happened_at": each, "arrived_at": each, "origin": "A", "seq": 1, "page": "home"} for each in times]
    (tmp_path / "data").mkdir()
    if text_format == "json":
        (tmp_path / "data/a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    else:
        rows = [",".join(lines[0]), *(",".join(map(str, line.values())) for line in lines)]
        (tmp_path / "data/a.csv").write_text("\n".join(rows))
    columns = ", ".join(f'{name} = "string"' for name in ("happened_at", "arrived_at", "origin", "page"))
    options = 'options = { header = "true" }\n' if text_format == "csv" else ""
    source = f'format = "{text_format}"\ncolumns = {{ {columns}, seq = "bigint" }}\n{options}'
    definition = write_definition(tmp_path, LOCAL.replace("[source]\n", f"[source]\n{source}"))
    job = ["backstream.jobs.prepare", "--definition", str(definition)]

    ended = subprocess.run(
        [sys.executable, "-c", JOB, *job],
        env={"BACKSTREAM_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "60 records; natively 1" in ended.stdout


TASK = """
import sys
from pathlib import Path
from backstream.orchestration.runners.job_runner import JobFollower, SparkJob
from backstream.orchestration.runners.spark_submit import LocalProcess
from backstream.runs.home import Home
home, error, *arguments = sys.argv[1:]
runner = LocalProcess()
job = SparkJob("clicks", "backstream.jobs.replay", tuple(arguments), Home(Path(home)), Path(home))
follower = JobFollower(runner, runner.submit(job, error), show=lambda lines: print(*lines, sep=chr(10)))
while (state := follower.look()) is None:
    pass
print(state.phase, state.status)
"""


def test_a_task_of_airflow_runs_the_job_as_its_child(tmp_path: Path) -> None:
    write_history(tmp_path)
    plan = planned(tmp_path, write_definition(tmp_path, LOCAL))
    arguments = ("--plan", str(plan.folder.plan), "--chunk", plan.chunks[0].chunk_id)
    task = [sys.executable, "-c", TASK, str(tmp_path / "home"), str(tmp_path / "error"), *arguments]

    ended = subprocess.run(task, capture_output=True, text=True, check=False)

    assert ended.stdout.splitlines()[-1] == "succeeded 0", ended.stderr
    assert "60 events read" in ended.stdout
