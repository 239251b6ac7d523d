"""Define the operators that submit a job to Spark: prepare the source, and replay chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backstream.errors import BackstreamError
from backstream.eventtime.instants import instant_text
from backstream.orchestration.connections import provide_environment
from backstream.orchestration.params import parse_mode
from backstream.orchestration.requests import record_request, trigger_of
from backstream.orchestration.run_range import data_interval, resolve_range
from backstream.orchestration.runners.job_runner import JobPhase, JobRunner, JobState
from backstream.orchestration.runners.selection import find_runner
from backstream.orchestration.runners.spark_submit import SparkSubmit
from backstream.orchestration.runners.stored_driver import read_sentence
from backstream.orchestration.spark_job import JobOperator
from backstream.orchestration.tasks import fail_without_retry
from backstream.orchestration.triggers import JobTrigger
from backstream.runs.home import RunFolder
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase, begin_phase, load_progress, withdraw_phase
from backstream.text import text_logger

log = text_logger(__name__)


class PrepareOperator(JobOperator):
    """Operator that submits the job that prepares the new files of a source."""

    job_module = "backstream.jobs.prepare"
    template_fields = (*JobOperator.template_fields, "request")

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
        arguments = [*self.application_args]
        if not self.reads_range:
            return arguments
        params = context["params"] if self.request is None else self.request
        interval, mode = resolve_range(params, data_interval(context)), parse_mode(params.get("mode"))
        ends = ["--since", instant_text(interval.start_ms), "--until", instant_text(interval.end_ms)]
        return [*arguments, *ends, *(["--mode", mode.value] if mode else [])]

    def _run_job(self, context: Any, connection: Any) -> None:
        self.application_args = self.job_arguments(context)
        super()._run_job(context, connection)


class ReplayOperator(JobOperator):
    """Operator that submits the replay job for a batch of chunks, and checks that each chunk has a manifest."""

    job_module = "backstream.jobs.replay"

    def _run_job(self, context: Any, connection: Any) -> None:
        """Run the driver beside the task, or wait for one in another place without a slot.

        Raises:
            TaskDeferred: when the driver lives without this task.
        """
        runner = connection and find_runner(connection)
        begin_phase(self._folder, Phase.START_SPARK, self._chunk_ids[0])
        try:
            if runner is None or isinstance(runner, SparkSubmit):
                self._follow_client(connection, context)
            else:
                self._submit(runner, context)
        except Exception:
            withdraw_phase(self._folder, Phase.START_SPARK, self._chunk_ids[0])
            raise

    def _submit(self, runner: JobRunner, context: Any) -> None:
        """Start the driver, which gets no address of the catalog, and wait for it without a slot."""
        from backstream.workflow.publish import create_run_tables

        plan = self._load_plan()
        create_run_tables(plan)
        job = self._job(context)
        job = replace(job, arguments=(*job.arguments, "--without-catalog"))
        error_location = plan.home.location_of(job.errors / f"driver-{uuid.uuid4().hex[:8]}.txt")
        job_id, limit = runner.submit(job, error_location), self.execution_timeout
        ends_at_s = time.time() + limit.total_seconds() if limit else None
        log.info("started %s; this task waits for it without a slot", job_id)
        kind = type(runner).__name__
        trigger = JobTrigger(kind, runner.settings, job_id, error_location, ends_at_s)
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Check the result of a driver in another place.

        Raises:
            AirflowFailException: when the driver failed for a reason that a retry cannot fix.
            JobError: when it failed for another reason.
            LedgerError: when a result is missing.
        """
        with fail_without_retry():
            provide_environment(Path(self.definition_path))
            plan, state = self._load_plan(), JobState.from_json(event["state"])
            if state.phase is not JobPhase.SUCCEEDED:
                withdraw_phase(self._folder, Phase.START_SPARK, self._chunk_ids[0])
                from backstream.workflow.publish import record_failure

                with record_failure(plan):
                    raise self._job_error(state, read_sentence(event["error_location"]))
            self._check_result()

    def _check_result(self) -> None:
        plan, manifests = self._load_manifests()
        log.info("replayed %s: %s", self.name, _count_text(manifests))
        log.info("%s %s: %s", plan.dataset, plan.range, load_progress(plan))

    def _is_local(self) -> bool:
        try:
            return bool(self._load_plan().definition["backfill"]["runner"] == "local")
        except BackstreamError:
            return False  # the job explains it

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
        arguments = [str(argument) for argument in self.application_args]
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
