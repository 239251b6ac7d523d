"""Run the driver of a job beside its task, by `spark-submit` in the deploy mode `client`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ClassVar

from backstream.errors import JobError
from backstream.orchestration.runners.job_runner import JobPhase, JobState, SparkJob
from backstream.orchestration.runners.kubernetes_pods import (
    REASON_LINES,
    KubernetesPods,
    find_reason,
    pod_label_settings,
)
from backstream.orchestration.runners.spark_command import spark_command
from backstream.variables import ERROR_FILE_VARIABLE, TASK_VARIABLE

_END_S = 20.0
"""The time that a driver has to end its executors after a signal."""
_DRAIN_S = 5.0
_PODS_POLL_S = 5.0
_SIGNALS = {
    signal.SIGKILL: "often because the machine or the container had no memory left",
    signal.SIGTERM: "the run was canceled, or the worker was stopped",
}
_SHELL_STATUS = 128
"""A shell ends with this status plus the signal that ended its program."""


@dataclass(slots=True)
class SparkSubmit:
    """A Spark whose driver is a child of the task: on this machine, a standalone cluster, YARN, or Kubernetes.

    Attributes:
        conn_id: Airflow connection to Spark.
        binary: another program than the installed `spark-submit`.
        properties_file: file with settings, in place of the settings folder.
        master: another master than that of the connection.
        pods: the pods of the executors; None elsewhere than on Kubernetes.
    """

    is_detached: ClassVar[bool] = False
    program: ClassVar[str] = "spark-submit"

    conn_id: str
    binary: str = ""
    properties_file: str = ""
    master: str = ""
    pods: KubernetesPods | None = None
    _process: subprocess.Popen[str] | None = None
    _key: str = ""
    _command: str = ""
    _lines: SimpleQueue[str] = field(default_factory=SimpleQueue)
    _last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=REASON_LINES))
    _reader: Thread | None = None
    _pods_at_s: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the runner; the process of its job has only one parent, so nobody needs them."""
        return {"conn_id": self.conn_id}

    def submit(self, job: SparkJob, error_location: str) -> str:
        """Start the driver, and return the number of its process.

        Raises:
            JobError: when the program cannot be started, or the pods of an earlier attempt cannot be removed.
        """
        if self.pods:
            self.pods.remove(job.key, is_waiting=True)
            job = replace(job, settings={**job.settings, **pod_label_settings(job.key)})
        command, variables = self._make_command(job)
        own = {
            ERROR_FILE_VARIABLE: error_location,
            # The job inherits the variable on every cluster, and ends itself after this task process was killed.
            TASK_VARIABLE: f"{socket.gethostname()}/{os.getpid()}",
        }
        self._key, self._command = job.key, " ".join(command)
        try:
            self._process = subprocess.Popen(
                command,
                env=os.environ | variables | own,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            msg = f"cannot start {command[0]}: {error.strerror}"
            raise JobError(msg) from None
        self._reader = Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        return str(self._process.pid)

    def poll(self, job_id: str) -> JobState:
        """Return the state of the driver; on Kubernetes it has failed if no executor can start."""
        status = self._process.poll() if self._process else None
        if status is None:
            stall = self._find_stall()
            return JobState(JobPhase.FAILED, stall, is_certain=True) if stall else JobState(JobPhase.RUNNING)
        if status == 0:
            return JobState(JobPhase.SUCCEEDED, status=0)
        details = (f"{self.program} ended with status {status}: {self._command}",)
        if self.pods:
            reason, is_certain = find_reason(list(self._last_lines))
            if is_certain:
                return JobState(JobPhase.FAILED, reason, status, details, is_certain=True)
        is_certain = status in (-signal.SIGTERM, _SHELL_STATUS + signal.SIGTERM)
        return JobState(JobPhase.FAILED, describe_signal(status), status, details, is_certain=is_certain)

    def cancel(self, job_id: str) -> None:
        """End the driver, and remove the pods of its executors.

        Raises:
            JobError: when the API of Kubernetes doesn't answer.
        """
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self.pods:
            self.pods.remove(self._key)

    def read_log(self, job_id: str, position: str) -> tuple[list[str], str]:
        """Return the lines that the driver has printed since the last call."""
        if self._process and self._process.poll() is not None and self._reader:
            self._reader.join(_DRAIN_S)  # a process that outlives the driver may keep its output open
        lines = []
        with suppress(Empty):
            while True:
                lines.append(self._lines.get_nowait())
        return lines, position

    def _make_command(self, job: SparkJob) -> tuple[list[str], dict[str, str]]:
        """Return the command of the driver, and its variables."""
        return spark_command(
            job,
            self.conn_id,
            deploy_mode="client",
            binary=self.binary,
            properties_file=self.properties_file,
            master=self.master,
        )

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._lines.put(line.rstrip("\n"))
            self._last_lines.append(line.rstrip("\n"))

    def _find_stall(self) -> str:
        """Return why the executors on Kubernetes do not start; empty elsewhere, and while it is not certain."""
        if self.pods is None or time.monotonic() - self._pods_at_s < _PODS_POLL_S:
            return ""
        self._pods_at_s = time.monotonic()
        with suppress(JobError):  # the driver notices itself that the API is gone
            return self.pods.find_stall(self.pods.list_pods(self._key))
        return ""


class LocalProcess(SparkSubmit):
    """A process beside the task, which runs native tasks in processes of its own, without Spark and Java."""

    program: ClassVar[str] = "the job"

    def __init__(self) -> None:
        """Use no connection."""
        super().__init__("")

    def _make_command(self, job: SparkJob) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-m", job.module, *job.arguments], {}


def describe_signal(status: int | None) -> str:
    """Return the signal that ended a job, and its usual cause; empty for a job that ended by itself."""
    number = -status if status and status < 0 else (status or 0) - _SHELL_STATUS
    cause = _SIGNALS.get(number)  # type: ignore[call-overload]
    return f"it was ended by signal {number} ({signal.Signals(number).name}), {cause}" if cause else ""
