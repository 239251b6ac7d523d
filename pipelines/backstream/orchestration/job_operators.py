"""Define the operators that submit a job to Spark: prepare the source, and replay chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from backstream.errors import BackstreamError
from backstream.eventtime.instants import instant_text
from backstream.orchestration import remote_driver
from backstream.orchestration.connections import provide_environment
from backstream.orchestration.params import parse_mode
from backstream.orchestration.requests import record_request, trigger_of
from backstream.orchestration.run_range import data_interval, resolve_range
from backstream.orchestration.spark_job import JobOperator
from backstream.orchestration.tasks import fail_without_retry
from backstream.runs.home import RunFolder
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase, begin_phase, load_progress, withdraw_phase
from backstream.text import text_logger

log = text_logger(__name__)


class PrepareOperator(JobOperator):
    """Operator that submits the job that prepares the new files of a source."""

    job_module = "backstream.jobs.prepare"
    template_fields = (*SparkSubmitOperator.template_fields, "request")

    def __init__(
        self,
        *,
        dataset: str = "",
        reads_range: bool = False,
        request: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Set the dataset whose run begins with this task, and whether the job gets the range of the run.

        Without a dataset, the task belongs to no run. `request` has the parameters of the run; None for those of
        the DAG.
        """
        super().__init__(**kwargs)
        self.dataset = dataset
        self.reads_range = reads_range
        self.request = request

    def execute(self, context: Any) -> None:
        """Run the job, and record the request of the run, so that lists show the run before its plan."""
        if not self.dataset:
            super().execute(context)
            return
        with fail_without_retry():
            provide_environment(Path(self.definition_path))
        params = context["params"] if self.request is None else self.request
        with record_request(context, self.dataset, params, trigger_of(context)):
            super().execute(context)

    def job_arguments(self, context: Any) -> list[str]:
        """Return the arguments of the job: the definition, and for `reads_range` the range and mode of the run."""
        arguments = [*(self.application_args or [])]
        if not self.reads_range:
            return arguments
        params = context["params"] if self.request is None else self.request
        interval, mode = resolve_range(params, data_interval(context)), parse_mode(params.get("mode"))
        ends = ["--since", instant_text(interval.start_ms), "--until", instant_text(interval.end_ms)]
        return [*arguments, *ends, *(["--mode", mode.value] if mode else [])]

    def _run_job(self, context: Any) -> None:
        self.application_args = self.job_arguments(context)
        super()._run_job(context)


class ReplayOperator(JobOperator):
    """Operator that submits the replay job for a batch of chunks, and checks that each chunk has a manifest."""

    job_module = "backstream.jobs.replay"

    def _run_job(self, context: Any) -> None:
        """Run the driver beside the task, or wait for one on a standalone cluster without a slot.

        Raises:
            TaskDeferred: when the driver runs on the cluster.
        """
        begin_phase(self._folder, Phase.START_SPARK, self._chunk_ids[0])
        try:
            self._submit(context)
        except Exception:
            withdraw_phase(self._folder, Phase.START_SPARK, self._chunk_ids[0])
            raise

    def _submit(self, context: Any) -> None:
        if self._deploy_mode is None:
            super()._run_job(context)
            return
        from backstream.workflow.publish import create_run_tables

        plan = self._load_plan()
        create_run_tables(plan)
        driver = remote_driver.start(self, plan)
        log.info("started %s on %s; this task waits without a slot", driver.driver_id, driver.cluster.master)
        self.defer(trigger=driver, method_name="execute_complete")

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Check the result of a driver on a cluster.

        Raises:
            AirflowFailException: when the driver failed for a reason that a retry cannot fix.
            JobError: when it failed for another reason.
            LedgerError: when a result is missing.
        """
        with fail_without_retry():
            provide_environment(Path(self.definition_path))
            plan = self._load_plan()
            if error := remote_driver.find_error(str(self.name), event):
                withdraw_phase(self._folder, Phase.START_SPARK, self._chunk_ids[0])
                from backstream.workflow.publish import record_failure

                with record_failure(plan):
                    raise error
            self._check_result()

    def _check_result(self) -> None:
        plan, manifests = self._load_manifests()
        log.info("replayed %s: %s", self.name, _count_text(manifests))
        log.info("%s %s: %s", plan.dataset, plan.range, load_progress(plan))

    def _trace_folder(self) -> Path:
        return self._folder.errors

    def _input_bytes(self) -> int | None:
        """Return the size of the files that the chunks read; None if the plan is unreadable."""
        try:
            plan = self._load_plan()
        except BackstreamError:
            return None
        files = {file for chunk_id in self._chunk_ids for file in plan.chunk(chunk_id).files}
        return sum(plan.inputs[file].size_bytes for file in files)

    def _load_manifests(self) -> tuple[Plan, list[Manifest]]:
        """Return the plan, and the manifest of each chunk of this task.

        Raises:
            LedgerError: when a manifest is missing.
        """
        plan = self._load_plan()
        return plan, [Manifest.read(plan.folder.manifest(chunk_id)) for chunk_id in self._chunk_ids]

    def _load_plan(self) -> Plan:
        return Plan.read(self._folder.plan)

    @property
    def _folder(self) -> RunFolder:
        """The folder of the run."""
        return RunFolder.from_plan(dict(self._options)["--plan"])

    @property
    def _chunk_ids(self) -> list[str]:
        """The chunks of this task, in order."""
        return [value for name, value in self._options if name == "--chunk"]

    @property
    def _options(self) -> list[tuple[str, str]]:
        arguments = [str(argument) for argument in self.application_args or []]
        return list(zip(arguments[::2], arguments[1::2], strict=True))


def _count_text(manifests: Sequence[Manifest]) -> str:
    """Return the number of events read, and the number of events per fate."""
    totals: dict[str, int] = {}
    for fates in (fates for manifest in manifests for fates in manifest.fates.values()):
        for fate, count in fates.items():
            totals[fate] = totals.get(fate, 0) + count
    listed = ", ".join(f"{count:,} {fate}" for fate, count in totals.items() if count)
    events = sum(manifest.events_read for manifest in manifests)
    return f"{events:,} events read" + (f" ({listed})" if listed else "")
