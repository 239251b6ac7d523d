"""Run the driver of a job on a standalone cluster, through the REST server of its master.

`spark-submit` itself cannot start a Python driver on a standalone cluster. The request of this module starts
`spark-submit` on a worker, as Spark's documentation shows for Python programs.

The driver gets the settings of Spark and of backstream, but no address of the catalog or the warehouse, because
the REST server has no encryption: the task creates the tables before, and records a failure afterwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from backstream.errors import JobError, SpecError
from backstream.orchestration.runners.job_runner import JobPhase, JobState, SparkJob
from backstream.orchestration.runners.spark_command import spark_command
from backstream.spark.heap import load_defaults
from backstream.variables import (
    CATALOG_VARIABLE,
    ERROR_FILE_VARIABLE,
    HOME_VARIABLE,
    TASK_VARIABLE,
    WAREHOUSE_VARIABLE,
)

_FINISHED, _UNKNOWN = "FINISHED", "UNKNOWN"
_KILLED = "KILLED"
_ENDS = (_FINISHED, "FAILED", _KILLED, "ERROR")
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
_DEFAULT_PORT = 6066
_TIMEOUT_S = 10
_KEPT = ("BACKSTREAM_", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_LEFT_OUT = (CATALOG_VARIABLE, WAREHOUSE_VARIABLE, TASK_VARIABLE)


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A standalone cluster.

    Attributes:
        master: address of the master.
        url: address of the REST server of the master.
        conn_id: Airflow connection with the address.
    """

    is_detached: ClassVar[bool] = True

    master: str
    url: str
    conn_id: str = ""

    @classmethod
    def from_connection(cls, connection: Any) -> StandaloneCluster:
        """Return the cluster of an Airflow connection; its extra may have `rest-scheme` and `rest-port`.

        Raises:
            SpecError: when the address names several masters, or none.
        """
        master, extra = connection.host or "", connection.extra_dejson
        host = urlsplit(master).hostname
        if not host or "," in master:
            msg = f"a driver on a standalone cluster needs the address of one master, got {master!r}"
            raise SpecError(msg)
        url = f"{extra.get('rest-scheme', 'http')}://{host}:{extra.get('rest-port', _DEFAULT_PORT)}"
        return cls(master, url, connection.conn_id)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the runner."""
        return asdict(self)

    def submit(self, job: SparkJob, error_location: str) -> str:
        """Start a driver on a worker, and return its id.

        Raises:
            JobError: when the master cannot be reached, or doesn't start the driver.
            SpecError: when the home is in an object store.
        """
        if job.home.address:
            msg = (
                f"a driver on a standalone cluster needs a home on a shared disk, got {job.home.address}"
                f" ({HOME_VARIABLE})\n\nhint: set the deploy mode of the connection to client"
            )
            raise SpecError(msg)
        Path(error_location).parent.mkdir(parents=True, exist_ok=True)
        command, variables = spark_command(job, self.conn_id, deploy_mode="client")
        defaults = load_defaults()
        settings = [word for name, value in defaults.items() for word in ("--conf", f"{name}={value}")]
        known = os.environ | variables
        kept = {name: known[name] for name in known if name.startswith(_KEPT) and name not in _LEFT_OUT}
        environment = kept | {ERROR_FILE_VARIABLE: error_location}
        return self._start([*settings, *command[1:]], defaults | {"spark.app.name": job.name}, environment)

    def _start(self, arguments: Sequence[str], settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
        """Start a driver, and return its id.

        Args:
            arguments: words after `spark-submit`.
            settings: Spark's settings for the Java process of the driver.
            environment: variables of the driver.
        """
        answer = self._call(
            "create",
            {
                "action": "CreateSubmissionRequest",
                "appArgs": list(arguments),
                "appResource": "",
                "clientSparkVersion": "",
                "environmentVariables": dict(environment),
                "mainClass": _MAIN_CLASS,
                "sparkProperties": {"spark.jars": "", **settings, "spark.master": self.master},
            },
        )
        if not answer.get("success"):
            reason = answer.get("message", "it gave no reason")
            msg = f"the Spark master did not start the driver: {reason} ({self.url})"
            raise JobError(msg)
        return str(answer["submissionId"])

    def poll(self, job_id: str) -> JobState:
        """Return the state of a driver; the master doesn't know it after its restart.

        Raises:
            JobError: when the master cannot be reached.
        """
        state = str(self._call(f"status/{job_id}").get("driverState", _UNKNOWN))
        details = (f"driver {job_id}",)
        if state == _FINISHED:
            return JobState(JobPhase.SUCCEEDED, details=details)
        if state == _UNKNOWN:
            return JobState(JobPhase.UNKNOWN, "the Spark master no longer knows it", details=details)
        if state not in _ENDS:
            return JobState(JobPhase.RUNNING, details=details)
        is_killed = state == _KILLED
        cause = "it was ended on the cluster" if is_killed else f"its state is {state}; the log is on its worker"
        return JobState(JobPhase.FAILED, cause, details=details, is_certain=is_killed)

    def cancel(self, job_id: str) -> None:
        """End a driver; one that has ended stays as it is.

        Raises:
            JobError: when the master cannot be reached.
        """
        self._call(f"kill/{job_id}", {})

    def read_log(self, job_id: str, position: str) -> tuple[list[str], str]:
        """Return no lines: the log is on the worker, and on the pages of the master."""
        return [], position

    def _call(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = Request(  # noqa: S310 - the scheme is that of the connection
            f"{self.url}/v1/submissions/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json;charset=UTF-8"},
        )
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - as above
                answer: dict[str, Any] = json.load(response)
        except HTTPError as error:
            msg = f"the REST server of the Spark master answered {error.code} {error.reason} ({self.url})"
            raise JobError(msg) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            msg = (
                f"cannot reach the REST server of the Spark master: {reason} ({self.url})\n\n"
                "hint: set spark.master.rest.enabled = true for the master, and `rest-port` in the extra of the"
                " connection"
            )
            raise JobError(msg) from None
        return answer
