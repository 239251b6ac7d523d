"""Replay tasks on EMR Serverless: the API is moto's, and this test plays the service, which runs the jobs."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from demo.settings import CHECKOUT
from tests.chain.stored import settings
from tests.e2e.standalone import QUICK, SPARK
from tests.kubernetes.jobs import PLACE, finished_chunks, plan_days, require_published, write_events
from tests.lake.store import BUCKET, Store

from backstream.runs.plan import Plan
from backstream.variables import CACHE_VARIABLE, WAREHOUSE_VARIABLE

pytestmark = pytest.mark.e2e
REGION = "us-east-1"
ROLE = "arn:aws:iam::123456789012:role/backstream"
ENVIRONMENT = "spark.emr-serverless.driverEnv."
LOGS = f"s3://{BUCKET}/emr-logs"
LIMIT_S = 240.0


class Service:
    """The service behind the API: it runs one job after the other, with the keys of the execution role."""

    def __init__(self, s3: Store, folder: Path) -> None:
        from moto.backends import get_backend
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.emrserverless import models, responses

        vars(models)["JOB_STATUS"] = "SUBMITTED"  # moto's jobs have succeeded at once
        # moto calculates another signature than boto3 for these requests; the store still checks its own.
        setattr(responses.EMRServerlessResponse, "_authenticate_and_authorize_normal_action", lambda *_: None)  # noqa: B010 - a method
        self.backend: Any = get_backend("emr-serverless")[DEFAULT_ACCOUNT_ID][REGION]
        none: Any = None
        wanted: Any = ("events", "emr-8.0.0", "SPARK", "", *[none] * 6)
        self.application_id = str(self.backend.create_application(*wanted).id)
        self.runs: list[Any] = []
        self.backend.job_runs[self.application_id] = self.runs
        self.s3, self.folder, self.is_over = s3, folder, False
        self.asked: list[Any] = []
        self.process: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """Run the submitted jobs until the end of the test."""
        while not self.is_over:
            for run in [run for run in self.runs if run.state == "SUBMITTED"]:
                run.state = "RUNNING"
                self.run(run)
            time.sleep(0.2)

    def run(self, run: Any) -> None:
        """Run a job to its end, and upload its log."""
        driver = run.job_driver["sparkSubmit"]
        [configuration] = run.configuration_overrides["applicationConfiguration"]
        properties = dict(configuration["properties"])
        self.asked.append((driver, properties))
        variables = {name: text for name, text in properties.items() if name.startswith(ENVIRONMENT)}
        program = self.folder / "launch.py"
        program.write_bytes(self.s3.content(driver["entryPoint"].removeprefix("s3://")))
        spark = {name: text for name, text in properties.items() if name not in variables}
        words = [word for name, text in spark.items() for word in ("--conf", f"{name}={text}")]
        command = [str(SPARK / "spark-submit"), "--master", "local[2]"]
        known = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "BACKSTREAM_"))}
        role = {"AWS_ACCESS_KEY_ID": self.s3.key_id, "AWS_SECRET_ACCESS_KEY": self.s3.secret}
        driver_variables = {name.removeprefix(ENVIRONMENT): text for name, text in variables.items()}
        log = self.folder / f"{run.id}.log"
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *words, str(program), *driver["entryPointArguments"]],
                env=known | role | {"PYSPARK_PYTHON": sys.executable} | driver_variables,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while self.process.poll() is None:
                if run.state == "CANCELLED":
                    os.killpg(self.process.pid, signal.SIGKILL)
                time.sleep(0.1)
        place = f"emr-logs/applications/{self.application_id}/jobs/{run.id}/SPARK_DRIVER/stdout.gz"
        with self.s3.filesystem.open_output_stream(f"{BUCKET}/{place}", compression=None) as stream:
            stream.write(gzip.compress(log.read_bytes()))
        if run.state == "RUNNING":
            status = self.process.returncode
            run.state_details = f"Job failed, please check complete logs. ExitCode: {status}" if status else ""
            run.state = "FAILED" if status else "SUCCESS"


@pytest.fixture(scope="module")
def service(s3: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return the service, in an environment with a home in the store."""
    folder = tmp_path_factory.mktemp("emr")
    write_events(folder / "events", s3)
    variables = settings(folder, s3, PLACE) | {CACHE_VARIABLE: str(folder / "cache"), "AWS_REGION": REGION}
    variables[WAREHOUSE_VARIABLE] = s3.address(f"{BUCKET}/{PLACE}/tables")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        found = Service(s3, folder)
        thread = threading.Thread(target=found.serve, daemon=True)
        thread.start()
        yield found
        found.is_over = True
        thread.join(30)


@contextmanager
def task(
    service: Service, plan: Plan
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], tuple[str, str, str]]]]:
    """Start the replay task of a run; yields its process, and what returns its error and its log."""
    folder = service.folder / plan.dataset
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {text}\n" for name, text in QUICK.items()))
    extra = {"execution-role": ROLE, "region": REGION, "log-uri": LOGS}
    connection = {"conn_type": "spark", "host": f"emr-serverless://{service.application_id}", "extra": extra}
    variables = {
        "AIRFLOW_CONN_PLACE": json.dumps(connection),
        "AIRFLOW_HOME": str(folder),
        "PYTHONPATH": str(CHECKOUT),
        "SPARK_CONF_DIR": str(folder),
    }
    chunks = [chunk.chunk_id for chunk in plan.chunks]
    words = [str(folder / "result.json"), "place", plan.location, *chunks]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.e2e.run_task", *words],
            env=os.environ | variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def result() -> tuple[str, str, str]:
        process.wait(LIMIT_S)
        kind, message = json.loads((folder / "result.json").read_text())
        return kind, message, (folder / "log").read_text()

    try:
        yield process, result
    finally:
        process.kill()


def test_a_run_on_emr_serverless_publishes_its_rows(service: Service) -> None:
    plan = plan_days(service.folder, "served")
    with task(service, plan) as (_, result):
        kind, message, log = result()

    assert (kind, message) == ("", ""), log
    assert "chunk 0003 (2024-03-04T00:00Z to 2024-03-05T00:00Z)" in log
    require_published(plan)


def test_a_job_on_emr_serverless_gets_no_key_of_a_store(service: Service) -> None:
    asked = json.dumps(service.asked)
    assert service.s3.secret not in asked
    assert service.s3.key_id not in asked
    assert f"s3://{BUCKET}/{PLACE}/tables?endpoint=" in asked


def test_the_error_of_a_failed_job_is_the_sentence_of_its_driver(service: Service) -> None:
    plan = plan_days(service.folder, "changed")
    key = next(key for key in service.s3.keys(f"{BUCKET}/{PLACE}/events") if key.endswith(".parquet"))
    content = service.s3.content(key)
    with service.s3.filesystem.open_output_stream(key) as stream:
        stream.write(content + b"more")
    with task(service, plan) as (_, result):
        kind, message, log = result()
    with service.s3.filesystem.open_output_stream(key) as stream:
        stream.write(content)

    assert kind == "AirflowFailException", log
    assert message.startswith("job events failed: PlanError: "), message
    assert "job run " in message


@pytest.mark.long
def test_a_cancelled_task_cancels_its_job_run_and_a_retry_publishes(service: Service) -> None:
    plan = plan_days(service.folder, "cancelled")
    with task(service, plan) as (process, result):
        until_s = time.monotonic() + LIMIT_S
        while not finished_chunks(plan) and time.monotonic() < until_s:
            time.sleep(0.2)
        process.terminate()
        kind, message, _ = result()
    done = finished_chunks(plan)

    assert service.runs[-1].state == "CANCELLED"
    assert kind == "JobError"
    assert message.startswith("job events failed: it was canceled on EMR Serverless")
    assert 0 < len(done) < 4

    with task(service, plan) as (_, result):
        assert result()[:2] == ("", "")
    assert {chunk: finished_chunks(plan)[chunk] for chunk in done} == done
    require_published(plan)
