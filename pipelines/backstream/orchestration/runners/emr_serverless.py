"""Run the driver of a job on EMR Serverless, by its API.

The driver gets no keys: it uses the execution role. Its settings are those in `spark-defaults.conf` of the task.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

from backstream.errors import JobError, SpecError, StorageError
from backstream.orchestration.runners.job_runner import JobPhase, JobState, SparkJob
from backstream.orchestration.runners.stored_driver import (
    require_home_in_store,
    stored_environment,
    upload_launcher,
)
from backstream.spark.heap import load_defaults
from backstream.storage.stores import Stores

_ENDS = {"SUCCESS": JobPhase.SUCCEEDED, "FAILED": JobPhase.FAILED, "CANCELLED": JobPhase.FAILED}
_OTHERS = ("spark.master", "spark.submit.deployMode", "spark.driver.host")
"""The settings of the task's Spark that the service defines itself."""
_GONE_LIMIT_S, _POLL_S = 180.0, 2.0
_LOGS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class EmrServerless:
    """An application of EMR Serverless.

    Attributes:
        application_id: id of the application.
        role: address (ARN) of the execution role.
        log_address: address in S3 for the logs; empty without logs.
        region: region of the application; by default that of the environment.
    """

    is_detached: ClassVar[bool] = True

    application_id: str
    role: str
    log_address: str = ""
    region: str = ""

    @classmethod
    def from_connection(cls, connection: Any) -> EmrServerless:
        """Return the application of an Airflow connection.

        Its extra has `execution-role`, and may have `log-uri` and `region`.

        Raises:
            SpecError: when the role is missing.
        """
        extra = connection.extra_dejson
        if not (role := extra.get("execution-role")):
            msg = (
                f"execution-role is missing in the extra of connection {connection.conn_id!r}\n\n"
                'hint: {"execution-role": "arn:aws:iam::123456789012:role/backstream"}'
            )
            raise SpecError(msg)
        application_id = (connection.host or "").removeprefix("emr-serverless://").strip("/")
        return cls(application_id, role, extra.get("log-uri", "").rstrip("/"), extra.get("region", ""))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the runner."""
        return asdict(self)

    @property
    def _client(self) -> Any:
        return _open_client(self.region)

    def submit(self, job: SparkJob, error_location: str) -> str:
        """Start a job run, after the end of an earlier attempt, and return its id.

        Raises:
            JobError: when the service refuses, or an earlier attempt doesn't end.
            SpecError: when the home is a folder.
        """
        require_home_in_store(job, "on EMR Serverless")
        self._end_earlier_attempts(job.key)
        variables = stored_environment(job, error_location, has_keys=False)
        defaults = {name: value for name, value in load_defaults().items() if name not in _OTHERS}
        environment = {f"spark.emr-serverless.driverEnv.{name}": value for name, value in variables.items()}
        properties = {**defaults, **job.settings, **environment}
        overrides: dict[str, Any] = {
            "applicationConfiguration": [{"classification": "spark-defaults", "properties": properties}]
        }
        if self.log_address:
            monitoring = {"s3MonitoringConfiguration": {"logUri": f"{self.log_address}/"}}
            overrides["monitoringConfiguration"] = monitoring
        driver = {"entryPoint": upload_launcher(job.home), "entryPointArguments": [job.module, *job.arguments]}
        with _explain_errors("start the job"):
            started = self._client.start_job_run(
                applicationId=self.application_id,
                executionRoleArn=self.role,
                name=job.key,
                jobDriver={"sparkSubmit": driver},
                configurationOverrides=overrides,
                executionTimeoutMinutes=0,  # the default ends a job after 12 hours
            )
        return str(started["jobRunId"])

    def _end_earlier_attempts(self, key: str) -> None:
        """Cancel the job runs with a name, and wait for their end.

        Raises:
            JobError: when one does not end.
        """
        until_s = time.monotonic() + _GONE_LIMIT_S
        while active := [run_id for run_id, name in self._active_runs() if name == key]:
            for run_id in active:
                self.cancel(run_id)
            if time.monotonic() > until_s:
                msg = f"job run {active[0]} of an earlier attempt does not end (application {self.application_id})"
                raise JobError(msg)
            time.sleep(_POLL_S)

    def _active_runs(self) -> Iterator[tuple[str, str]]:
        """Yield the id and the name of each job run that has not ended."""
        with _explain_errors("list the jobs"):
            pages = self._client.get_paginator("list_job_runs").paginate(applicationId=self.application_id)
            for run in (run for page in pages for run in page["jobRuns"]):
                if run["state"] not in _ENDS:
                    yield run["id"], run.get("name", "")

    def poll(self, job_id: str) -> JobState:
        """Return the state of a job run.

        Raises:
            JobError: when the service doesn't answer.
        """
        with _explain_errors("read the state of the job"):
            run = self._client.get_job_run(applicationId=self.application_id, jobRunId=job_id)["jobRun"]
        details = (f"job run {job_id} of application {self.application_id}",)
        phase, is_canceled = _ENDS.get(run["state"], JobPhase.RUNNING), run["state"] == "CANCELLED"
        if phase is not JobPhase.FAILED:
            return JobState(phase, details=details)
        reason = (run.get("stateDetails") or "").strip().partition("\n")[0]
        cause = "it was canceled on EMR Serverless" if is_canceled else reason
        return JobState(phase, cause, details=details, is_certain=is_canceled)

    def cancel(self, job_id: str) -> None:
        """End a job run; one that has ended stays as it is.

        Raises:
            JobError: when the service doesn't answer.
        """
        if self.poll(job_id).phase is JobPhase.RUNNING:
            with _explain_errors("cancel the job"):
                self._client.cancel_job_run(applicationId=self.application_id, jobRunId=job_id)

    def read_log(self, job_id: str, position: str) -> tuple[list[str], str]:
        """Return the new lines of the driver's log, which the service uploads at times; none without an address.

        Raises:
            JobError: when the store doesn't answer.
        """
        if not self.log_address:
            return [], position
        counts, lines = [int(count) for count in position.split()] or [0] * len(_LOGS), []
        folder = f"{self.log_address}/applications/{self.application_id}/jobs/{job_id}/SPARK_DRIVER"
        for number, name in enumerate(_LOGS):
            content = _load_lines(f"{folder}/{name}.gz")
            lines += content[counts[number] :]
            counts[number] = max(counts[number], len(content))
        return lines, " ".join(map(str, counts))


@lru_cache(8)
def _open_client(region: str) -> Any:
    """Return the client of the service, which takes long to make."""
    import boto3

    return boto3.client("emr-serverless", region_name=region or None)


def _load_lines(address: str) -> list[str]:
    stores = Stores.from_environment()
    try:
        if stores.find_versions([address]) == [None]:
            return []
        with stores.open_file(address) as stream:
            return gzip.decompress(stream.read()).decode("utf-8", "replace").splitlines()
    except (StorageError, OSError, EOFError) as error:
        msg = f"cannot read the log {address}: {error}"
        raise JobError(msg) from None


@contextmanager
def _explain_errors(action: str) -> Iterator[None]:
    """Convert errors of the client of AWS.

    Raises:
        JobError: with the action, and the answer of the service.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        msg = f"EMR Serverless refused to {action}: {answer.get('Message') or answer.get('Code')}"
        raise JobError(msg) from None
    except BotoCoreError as error:
        msg = f"cannot {action}: {error}"
        raise JobError(msg) from None
