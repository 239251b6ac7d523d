"""Define the operator that submits a job to Spark, and that explains how the job ended."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from backstream.errors import BackstreamError, JobError, SetupError, SpecError
from backstream.orchestration.airflow_versions import AirflowNotFoundException
from backstream.orchestration.connections import provide_environment
from backstream.orchestration.dag_options import CONNECTION_ID
from backstream.orchestration.tasks import fail_without_retry
from backstream.runs.home import Home
from backstream.spark.heap import CONF_VARIABLE, OUT_OF_MEMORY_STATUS, SETTING
from backstream.spark.installation import find_scripts_folder
from backstream.spark.java import set_java_options, settings_beside_class_path
from backstream.storage.files import write_text
from backstream.text import text_logger, visible_text
from backstream.variables import ERROR_FILE_VARIABLE, TASK_VARIABLE

_CLIENT = "client"
_FRAME = re.compile(r"\s*(at [\w.$/<>]+\(.*\)|Caused by: .*|Suppressed: .*|\.\.\. \d+ more)\s*$")
_MAX_LINES = 20_000

log = text_logger(__name__)


class JobOperator(SparkSubmitOperator):
    """Operator that submits a job of backstream.

    The operator passes the paths of Spark, Python, and the job, so the search path and the working folder of a
    worker don't matter. It requires the Airflow connection, because its base class would silently use YARN without
    one.
    """

    job_module = ""

    def __init__(self, *, definition_path: str, **kwargs: Any) -> None:
        """Set the arguments that are the same for each job; the project of the definition has the settings."""
        spark_home = _spark_home()
        defaults: dict[str, Any] = {
            "conn_id": CONNECTION_ID,
            "application": str(_find_module_file(self.job_module)),
            "spark_binary": str(spark_home / "bin" / "spark-submit"),
            "env_vars": {
                "SPARK_HOME": str(spark_home),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            # For Kubernetes and YARN, the hook passes `env_vars` to a driver in the cluster; this driver is local.
            "conf": {"spark.pyspark.driver.python": sys.executable},
        }
        super().__init__(**(defaults | kwargs))
        self.definition_path = definition_path

    def execute(self, context: Any) -> None:
        """Run the job, and check its result.

        Raises:
            AirflowFailException: when the connection to Spark does not exist, or a retry cannot fix the error.
            JobError: when Spark failed in another way.
            LedgerError: when a result is missing.
        """
        with fail_without_retry():
            self._require_connection()
            provide_environment(Path(self.definition_path))  # the job inherits these environment variables
            self._run_job(context)
            self._check_result()

    def _run_job(self, context: Any) -> None:
        set_java_options(self._input_bytes())  # sets environment variables, which the driver inherits
        if self._is_local:
            self._use_class_archive()
        log.info("starting the job %s", self.name)
        # The job inherits the variable on every cluster, and ends itself after this task process was killed.
        os.environ[TASK_VARIABLE] = f"{socket.gethostname()}/{os.getpid()}"
        with NamedTemporaryFile("r", encoding="utf-8", prefix="backstream-error-") as error_file:
            os.environ[ERROR_FILE_VARIABLE] = error_file.name
            try:
                super().execute(context)
            except (AirflowException, RuntimeError, OSError) as error:
                raise self._job_error(error, error_file.read().strip()) from None

    def _get_hook(self) -> SparkSubmitHook:
        """Return the hook, whose log leaves the traces of Java to a file."""
        hook, traces = super()._get_hook(), _JavaTraces(self._trace_folder())
        log_lines = hook._process_spark_submit_log  # noqa: SLF001 - the only place between Spark and the log
        hook._process_spark_submit_log = lambda itr: log_lines(map(visible_text, traces.remove(itr)))  # type: ignore[method-assign] # noqa: SLF001 - as above
        return hook

    def _trace_folder(self) -> Path:
        """Return the folder for the traces of Java."""
        return Home.from_environment().errors

    def _job_error(self, error: Exception, sentence: str) -> JobError:
        """Return the error of a failed job, with its cause first and last: the job's own sentence, or a signal.

        Without a cause, Airflow's text follows, which ends with the last lines of Spark's log.
        """
        status = self._exit_status()
        cause = sentence or _describe_signal(status)
        command, _, output = str(error).partition("\n")
        parts = (
            [f"job {self.name} failed: {cause}", command, cause]
            if cause
            else [f"job {self.name} failed", command, output]
        )
        msg = "\n".join(part for part in parts if part)
        if status == OUT_OF_MEMORY_STATUS:
            msg += f"\n\nhint: Spark's Java ran out of memory; increase {SETTING} in spark-defaults.conf"
        return JobError(msg, status)

    def _check_result(self) -> None:
        """Check the result of the job, and log it."""

    def _input_bytes(self) -> int | None:
        """Return the size of the files that the job reads; None if it is unknown."""
        return None

    @property
    def _is_local(self) -> bool:
        """Return whether Spark runs in one process; a cluster can need other files of the settings folder."""
        return (BaseHook.get_connection(self._conn_id).host or "").startswith("local")

    def _use_class_archive(self) -> None:
        """Pass the settings file instead of the settings folder, with which Java cannot use its class archive."""
        file = settings_beside_class_path(_spark_home())
        if file and not self.properties_file:
            self.properties_file = str(file)
            os.environ.pop(CONF_VARIABLE)

    def _exit_status(self) -> int | None:
        """Return the exit status of spark-submit; None if it has not started."""
        process = self._hook._submit_sp if self._hook else None  # noqa: SLF001 - no public attribute has it
        return process.returncode if process else None

    def _require_connection(self) -> None:
        """Check the connection to Spark.

        Raises:
            SpecError: when there is no connection, or Spark cannot be reached with it.
        """
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException:
            msg = (
                f"no Airflow connection {self._conn_id!r}; it defines the Spark that runs the chunks\n\n"
                f"hint: airflow connections add {self._conn_id} --conn-type spark --conn-host 'local[*]'"
            )
            raise SpecError(msg) from None
        if (connection.host or "").startswith("k8s://") and not _is_installed("airflow.providers.cncf.kubernetes"):
            msg = (
                f"Spark on Kubernetes needs a package that is not installed (connection {self._conn_id!r})\n\n"
                "hint: pip install apache-airflow-providers-cncf-kubernetes"
            )
            raise SpecError(msg)
        self._require_deploy_mode(connection)

    def _require_deploy_mode(self, connection: Any) -> None:
        """Check where the driver runs: with the task, or on a standalone cluster."""
        mode = connection.extra_dejson.get("deploy-mode") or _CLIENT
        is_standalone = (connection.host or "").startswith("spark://")
        if mode == _CLIENT or (mode == "cluster" and is_standalone):
            # `spark-submit` on a worker of the cluster starts the driver in its own process.
            self._deploy_mode = _CLIENT if is_standalone and mode != _CLIENT else None
            return
        msg = (
            f"connection {self._conn_id!r} must have the deploy-mode client, got {mode!r}\n"
            "  only a standalone cluster can run the driver, by the deploy-mode cluster\n\n"
            'hint: its extra should be {"deploy-mode": "client"}'
        )
        raise SpecError(msg)


_SIGNALS = {
    signal.SIGKILL: "often because the machine or the container had no memory left",
    signal.SIGTERM: "the run was canceled, or the worker was stopped",
}
_SHELL_STATUS = 128
"""A shell ends with this status plus the signal that ended its program."""


def _describe_signal(status: int | None) -> str:
    """Return the signal that ended a job, and its usual cause; empty for a job that ended by itself."""
    number = -status if status and status < 0 else (status or 0) - _SHELL_STATUS
    cause = _SIGNALS.get(number)  # type: ignore[call-overload]
    return f"it was ended by signal {number} ({signal.Signals(number).name}), {cause}" if cause else ""


def _spark_home() -> Path:
    """Return the folder of the installed PySpark, without importing it."""
    return find_scripts_folder(_find_module_file("pyspark"))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def _find_module_file(module: str) -> Path:
    """Return the file of a module, without importing it.

    Raises:
        SetupError: when the module is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        msg = f"no module {module} in this environment ({sys.executable})\n\nhint: pip install 'backstream[spark]'"
        raise SetupError(msg)
    return Path(spec.origin)


@dataclass(slots=True)
class _JavaTraces:
    """The lines of Java's traces in the output of one job.

    Attributes:
        folder: folder of the file with the traces.
    """

    folder: Path
    lines: list[str] = field(default_factory=list)

    def remove(self, output: Iterable[str]) -> Iterator[str]:
        """Yield the output of a job without the frames of traces, and at its end the file that has them."""
        head = ""
        for line in output:
            if not _FRAME.match(line):
                head = line.rstrip()
                yield line
                continue
            if head:
                self._keep(head)
                head = ""
            self._keep(line.rstrip())
        if self.lines:
            yield f"{len(self.lines):,} lines of Java traces are in {self._write()}"

    def _keep(self, line: str) -> None:
        if len(self.lines) < _MAX_LINES:
            self.lines.append(line)

    def _write(self) -> Path | str:
        """Write the traces and return the file; on a full disk, use the temporary folder of the system."""
        text, name = "\n".join(self.lines) + "\n", f"java-{uuid.uuid4().hex[:8]}.txt"
        for folder in (self.folder, Path(tempfile.gettempdir())):
            try:
                write_text(folder / name, text)
            except (BackstreamError, OSError):
                continue
            return folder / name
        return "no file, because no folder can be written"
