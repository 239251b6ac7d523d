"""Define the operator that runs a job in the place of a connection, and that explains how the job ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, ClassVar

from airflow.sdk import BaseHook, BaseOperator

from backstream import errors
from backstream.definition.loader import load_definition
from backstream.errors import NO_RETRY_STATUS, BackstreamError, JobError, SpecError
from backstream.orchestration.airflow_versions import AirflowNotFoundException
from backstream.orchestration.connections import provide_environment
from backstream.orchestration.dag_options import CONNECTION_ID
from backstream.orchestration.java_traces import JavaTraces
from backstream.orchestration.runners.job_runner import JobFollower, JobPhase, JobState, SparkJob
from backstream.orchestration.runners.selection import find_client, spark_master
from backstream.orchestration.runners.spark_command import find_spark_home
from backstream.orchestration.runners.spark_submit import LocalProcess, SparkSubmit
from backstream.orchestration.tasks import fail_without_retry
from backstream.runs.home import Home
from backstream.spark.heap import CONF_VARIABLE, OUT_OF_MEMORY_STATUS, SETTING
from backstream.spark.java import set_java_options, settings_beside_class_path
from backstream.text import text_logger
from backstream.variables import HOME_VARIABLE

_POLL_S = 0.2

log = text_logger(__name__)


class JobOperator(BaseOperator):
    """Operator that runs a job of backstream, and prints the log of its driver.

    The operator requires the Airflow connection, because the hook for Spark would silently use YARN without one.
    """

    job_module: ClassVar[str] = ""
    template_fields: Sequence[str] = ("name", "application_args")

    def __init__(
        self,
        *,
        definition_path: str,
        name: str = "",
        application_args: Sequence[str] = (),
        conn_id: str = CONNECTION_ID,
        spark_binary: str = "",
        **kwargs: Any,
    ) -> None:
        """Set the job; the project of the definition has the settings.

        Args:
            definition_path: TOML file of the definition.
            name: name of the job for people.
            application_args: arguments of the job.
            conn_id: Airflow connection to Spark.
            spark_binary: another program than the installed `spark-submit`.
            **kwargs: arguments of Airflow's own.
        """
        super().__init__(**kwargs)
        self.definition_path = definition_path
        self.name = name
        self.application_args = application_args
        self.conn_id = conn_id
        self.spark_binary = spark_binary
        self._follower: JobFollower | None = None

    def execute(self, context: Any) -> None:
        """Run the job, and check its result.

        Raises:
            AirflowFailException: when the connection to Spark does not exist, or a retry cannot fix the error.
            JobError: when Spark failed in another way.
            LedgerError: when a result is missing.
        """
        with fail_without_retry():
            provide_environment(Path(self.definition_path))  # the job inherits these environment variables
            self._run_job(context, None if self._is_local() else self._load_connection())
            self._check_result()

    def _run_job(self, context: Any, connection: Any) -> None:
        """Run the job beside this task; without a connection, it runs without Spark."""
        self._follow_client(connection, context)

    def _is_local(self) -> bool:
        """Return whether the definition has the runner that needs no Spark; False if it is unreadable."""
        try:
            return load_definition(Path(self.definition_path)).backfill.runner == "local"
        except BackstreamError:
            return False  # the job explains it

    def _follow_client(self, connection: Any, context: Any) -> None:
        if connection is None:
            self._follow(LocalProcess(), context, is_local=False)
        else:
            self._follow(find_client(connection), context, is_local=spark_master(connection).startswith("local"))

    def _follow(self, runner: SparkSubmit, context: Any, *, is_local: bool) -> None:
        """Run the job to its end in this process.

        Raises:
            JobError: when the job failed.
        """
        set_java_options(self._input_bytes())  # sets environment variables, which the driver inherits
        if is_local:
            self._use_class_archive(runner)
        runner.binary = self.spark_binary
        log.info("starting the job %s", self.name)
        traces = JavaTraces(self._trace_folder())

        def show(lines: Iterable[str]) -> None:
            for line in traces.remove(lines):
                log.info("%s", line)

        with NamedTemporaryFile("r", encoding="utf-8", prefix="backstream-error-") as error_file:
            job_id = runner.submit(self._job(context), error_file.name)
            self._follower = JobFollower(runner, job_id, show=show)
            while (state := self._follower.look()) is None:
                time.sleep(_POLL_S)
            if file := traces.describe_file():
                log.info("%s", file)
            if state.phase is not JobPhase.SUCCEEDED:
                raise self._job_error(state, error_file.read().strip())

    def on_kill(self) -> None:
        """End a job that runs beside this task."""
        if self._follower:
            self._follower.cancel()

    def _job(self, context: Any) -> SparkJob:
        """Return the job of this task."""
        return SparkJob(
            str(self.name),
            self.job_module,
            tuple(map(str, self.application_args)),
            Home.from_location(os.environ.get(HOME_VARIABLE) or ".backstream"),
            self._trace_folder(),
            _lineage_settings(context),
        )

    def _trace_folder(self) -> Path:
        """Return the folder for the traces of Java."""
        return Home.from_environment().errors

    def _job_error(self, state: JobState, sentence: str) -> JobError:
        """Return the error of a failed job, with its cause first and last: the job's own sentence, or its place's.

        Without a cause, the last lines of the log follow.
        """
        sentence = "" if state.is_certain else sentence
        cause = sentence or state.cause
        parts = [f"job {self.name} failed: {cause}" if cause else f"job {self.name} failed", *state.details]
        msg = "\n".join([*parts, cause] if cause else [*parts, *state.tail])
        if state.status == OUT_OF_MEMORY_STATUS:
            msg += f"\n\nhint: Spark's Java ran out of memory; increase {SETTING} in spark-defaults.conf"
        return JobError(msg, _retry_status(sentence) or state.status)

    def _check_result(self) -> None:
        """Check the result of the job, and log it."""

    def _input_bytes(self) -> int | None:
        """Return the size of the files that the job reads; None if it is unknown."""
        return None

    def _use_class_archive(self, runner: SparkSubmit) -> None:
        """Pass the settings file instead of the settings folder, with which Java cannot use its class archive."""
        if file := settings_beside_class_path(find_spark_home()):
            runner.properties_file = str(file)
            os.environ.pop(CONF_VARIABLE)

    def _load_connection(self) -> Any:
        """Return the connection to Spark.

        Raises:
            SpecError: when there is none.
        """
        try:
            return BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException:
            msg = (
                f"no Airflow connection {self.conn_id!r}; it defines the Spark that runs the chunks\n\n"
                f"hint: airflow connections add {self.conn_id} --conn-type spark --conn-host 'local[*]'"
            )
            raise SpecError(msg) from None


def _retry_status(sentence: str) -> int | None:
    """Return the exit status that belongs to a sentence, which begins with the class of the error."""
    kind = getattr(errors, sentence.partition(":")[0], None)
    is_final = isinstance(kind, type) and issubclass(kind, BackstreamError) and not kind.is_retryable
    return NO_RETRY_STATUS if is_final else None


def _lineage_settings(context: Any) -> dict[str, str]:
    """Return the settings with which OpenLineage in Spark names this task, if Airflow's configuration asks."""
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_parent_job_information_into_spark_properties,
        inject_transport_information_into_spark_properties,
    )
    from airflow.providers.common.compat.sdk import conf

    settings: dict[str, str] = {}
    if conf.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False):
        settings = inject_parent_job_information_into_spark_properties(settings, context)
    if conf.getboolean("openlineage", "spark_inject_transport_info", fallback=False):
        settings = inject_transport_information_into_spark_properties(settings, context)
    return settings
