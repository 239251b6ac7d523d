"""The one task that runs Spark: a `spark-submit` of the replay job for a batch of chunks."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowSkipException

from backstream.errors import BackstreamError, JobError, QualityError, SetupError, SpecError
from backstream.orchestration.connections import provide_lake
from backstream.orchestration.run_range import data_interval, resolve_range, with_seconds
from backstream.orchestration.tasks import fail_without_retry, load_workflow
from backstream.runs.home import TASK_VARIABLE
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.progress import load_progress
from backstream.runs.results import ApprovalDecision
from backstream.spark.heap import CONF_VARIABLE, OUT_OF_MEMORY_STATUS, SETTING
from backstream.spark.java import java_options, settings_beside_class_path

CONNECTION_ID = "backstream_spark"
POOL = "spark"
JOB_MODULE = "backstream.jobs.replay"


class ReplayOperator(SparkSubmitOperator):
    """`spark-submit` of the replay job; done when the manifest of each chunk is there, whatever Spark printed.

    It says by itself where Spark, Python and the job are, so that neither the search path nor the working
    folder of a worker matters, and refuses to run without its connection: the operator it is built on would
    silently turn to YARN.
    """

    def __init__(self, **kwargs: Any) -> None:
        """Fill in what is the same for every chunk."""
        spark_home = _spark_home()
        fixed: dict[str, Any] = {
            "conn_id": CONNECTION_ID,
            "application": str(_file_of(JOB_MODULE)),
            "spark_binary": str(spark_home / "bin" / "spark-submit"),
            "env_vars": {
                "SPARK_HOME": str(spark_home),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            # For Kubernetes and YARN the hook keeps the variables for a driver in the cluster, and ours is here.
            "conf": {"spark.pyspark.driver.python": sys.executable},
        }
        super().__init__(**(fixed | kwargs))

    def execute(self, context: Any) -> None:
        """Run the job and check that it left what it owes.

        Raises:
            AirflowFailException: when the connection to Spark does not exist, or the job says that no retry helps.
            JobError: when Spark failed in another way.
            LedgerError: when it left no manifest.
        """
        with fail_without_retry():
            self._require_connection()
            provide_lake()  # the job inherits it
            self._run(context)

    def _run(self, context: Any) -> None:
        java_options(self._input_bytes())  # and this, for the driver
        if self._is_local:
            self._use_class_archive()
        self.log.info("replaying %s", self.name)
        # Known to this process only: a job ends by itself once the task that waits for it was killed.
        os.environ[TASK_VARIABLE] = f"{socket.gethostname()}/{os.getpid()}"  # inherited, on whatever cluster
        try:
            super().execute(context)
        except (AirflowException, RuntimeError, OSError) as error:
            msg = f"replay of {self.name} failed\n{error}"
            status = self._exit_status()
            if status == OUT_OF_MEMORY_STATUS:
                msg += f"\n\nhint: Spark's Java had no memory left; {SETTING} in spark-defaults.conf gives it more"
            raise JobError(msg, status) from None
        planned, done = self._manifests()
        self.log.info("replayed %s: %s", self.name, _counts(done))
        self.log.info("%s %s: %s", planned.dataset, planned.range, load_progress(planned))

    @property
    def _is_local(self) -> bool:
        """Whether Spark runs in one process; a cluster may take files from the folder of settings."""
        return (BaseHook.get_connection(CONNECTION_ID).host or "").startswith("local")

    def _use_class_archive(self) -> None:
        """Name the file of Spark's settings instead of its folder, where nothing else is lost by that."""
        file = settings_beside_class_path(_spark_home())
        if file and not self.properties_file:
            self.properties_file = str(file)
            os.environ.pop(CONF_VARIABLE)

    def _exit_status(self) -> int | None:
        """How spark-submit ended; None when it was never started."""
        submitted = self._hook._submit_sp if self._hook else None  # noqa: SLF001 - told nowhere else
        return submitted.returncode if submitted else None

    def _require_connection(self) -> None:
        """Check the connection to Spark.

        Raises:
            SpecError: when there is none, or Spark cannot be reached by it.
        """
        try:
            connection = BaseHook.get_connection(CONNECTION_ID)
        except AirflowNotFoundException:
            msg = (
                f"no Airflow connection {CONNECTION_ID!r}: it says which Spark runs the chunks\n\n"
                f"hint: airflow connections add {CONNECTION_ID} --conn-type spark --conn-host 'local[*]'"
            )
            raise SpecError(msg) from None
        if (connection.host or "").startswith("k8s://") and not _is_installed("airflow.providers.cncf.kubernetes"):
            msg = (
                f"Spark on Kubernetes needs a package that is not installed (connection {CONNECTION_ID!r})\n\n"
                "hint: pip install apache-airflow-providers-cncf-kubernetes"
            )
            raise SpecError(msg)
        if (mode := connection.extra_dejson.get("deploy-mode") or "client") != "client":
            msg = (
                f"connection {CONNECTION_ID!r} must have the deploy-mode client, got {mode!r}\n"
                "  the driver reads the plan and the addresses of the lake where the task runs\n\n"
                'hint: its extra should be {"deploy-mode": "client"}'
            )
            raise SpecError(msg)

    def _input_bytes(self) -> int | None:
        """The size of the files that the chunks read. Without a readable plan it is None: the job says why."""
        try:
            planned, chunk_ids = self._planned()
        except BackstreamError:
            return None
        files = {file for chunk in planned.chunks if chunk.chunk_id in chunk_ids for file in chunk.files}
        return sum(planned.inputs[file].size_bytes for file in files)

    def _manifests(self) -> tuple[Plan, list[Manifest]]:
        """The plan, and what the job left: a manifest per chunk.

        Raises:
            LedgerError: when it left none of a chunk.
        """
        planned, chunk_ids = self._planned()
        return planned, [Manifest.read(planned.folder.manifest(chunk_id)) for chunk_id in chunk_ids]

    def _planned(self) -> tuple[Plan, list[str]]:
        """The plan, and which of its chunks are this task's."""
        arguments = [str(each) for each in self.application_args or []]
        options = list(zip(arguments[::2], arguments[1::2], strict=True))
        chunk_ids = [value for name, value in options if name == "--chunk"]
        return Plan.read(Path(dict(options)["--plan"])), chunk_ids


def _counts(done: Sequence[Manifest]) -> str:
    """Events read, and how many met which fate."""
    fates: dict[str, int] = {}
    for counts in (each for manifest in done for each in manifest.fates.values()):
        for fate, count in counts.items():
            fates[fate] = fates.get(fate, 0) + count
    met = ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if count)
    return f"{sum(each.events_read for each in done):,} events read" + (f" ({met})" if met else "")


def _spark_home() -> Path:
    """The folder of the installed PySpark, found without importing it."""
    return _file_of("pyspark").parent


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the one that it is in
        return False


def _file_of(module: str) -> Path:
    """The file of a module, found without importing it.

    Raises:
        SetupError: when it is not installed.
    """
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        msg = f"no module {module} in this environment ({sys.executable})\n\nhint: uv sync --locked --all-extras"
        raise SetupError(msg)
    return Path(found.origin)


class ApproveOperator(ApprovalOperator):
    """Waits for a person when the definition or the form says so, and takes no slot while it does.

    The question has the verdict and what would change. No answer in time is a no; a no fails the run, publishes
    nothing, and leaves what was staged.
    """

    template_fields = (*ApprovalOperator.template_fields, "plan_path")

    def __init__(self, *, plan_path: str, **kwargs: Any) -> None:
        super().__init__(subject="Publish?", defaults=ApprovalOperator.REJECT, **kwargs)
        self.plan_path = plan_path

    def execute(self, context: Any) -> None:
        """Ask, unless nobody has to be."""
        with fail_without_retry():
            plan = Plan.read(Path(self.plan_path))
            body = load_workflow().request_approval(plan)
        if body is None:
            self.log.info("%s %s: nobody has to approve", plan.dataset, plan.range)
            return
        self.subject = f"Publish {plan.dataset}, {plan.range}?"
        self.body = body
        self.log.info("%s waits for approval, %s at most", plan.run_id, self.response_timeout)
        super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Keep the answer with the run.

        Raises:
            AirflowFailException: when it was a no, or there was none in time.
        """
        decision = parse_decision(event)
        with fail_without_retry():
            plan = Plan.read(Path(self.plan_path))
            load_workflow().record_approval(plan, decision)
            if not decision.is_approved:
                msg = f"{plan.run_id} was {decision}: nothing was published, and what was staged is kept"
                raise QualityError(msg)
        self.log.info("%s was %s", plan.run_id, decision)


def parse_decision(event: Mapping[str, Any]) -> ApprovalDecision:
    """What Airflow says of the answer; whatever is not an approval by someone is a no."""
    by = event.get("responded_by_user") or {}
    is_approved = not event.get("error") and event.get("chosen_options") == [ApprovalOperator.APPROVE]
    name = str(by.get("name") or by.get("id") or "")
    at = event.get("responded_at") or datetime.now(UTC)
    at_text = at if isinstance(at, str) else at.isoformat(timespec="seconds")
    return ApprovalDecision(is_approved and bool(name), name, at_text)


SCHEDULED = "scheduled"
"""The type of a run that the schedule has started, in Airflow's words."""

WAITING: dict[str, Any] = {
    "logical_date": None,
    "wait_for_completion": True,
    "poke_interval": 5,
    # Who clears the task wants the other run again; an attempt of its own accord would do it after each failure.
    "reset_dag_run": True,
    "retries": 0,
}
"""How a task starts a run of another DAG, and ends as that run ends."""


class RestateOperator(TriggerDagRunOperator):
    """Starts a run of `restate_<name>` for the time before the data interval of a scheduled run.

    A run by hand, or of a Backfill, is skipped: it was asked for its own range only. So is a scheduled one while
    the other DAG is paused.
    """

    def execute(self, context: Any) -> None:
        """Start it, unless the run is no scheduled one.

        Raises:
            AirflowSkipException: when nothing is to be started.
        """
        run_id, run_type = context["run_id"], context["dag_run"].run_type
        if run_type != SCHEDULED:
            msg = f"only a scheduled run looks beyond its own range, and this one is of type {run_type.value}"
            raise AirflowSkipException(msg)
        if context["ti"].get_dag(self.trigger_dag_id).is_paused:
            msg = f"{self.trigger_dag_id} is paused: what is stale or missing stays as it is"
            raise AirflowSkipException(msg)
        with fail_without_retry():
            own = resolve_range({}, data_interval(context))
        self.trigger_run_id = f"before__{run_id}"
        self.conf = {"until": with_seconds(own.start_ms), "reason": f"found by {run_id}"}
        super().execute(context)
