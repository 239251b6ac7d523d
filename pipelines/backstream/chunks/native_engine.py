"""Compute and stage the output files of a chunk group in native tasks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple, Protocol

from backstream.chunks.attempt import Attempt
from backstream.chunks.engine_choice import REFUSALS, can_fall_back, task_error_text
from backstream.chunks.group import ChunkGroup
from backstream.chunks.lateness import ReplayLateness, resolve_lateness
from backstream.chunks.outputs import make_scratch, remove_scratch, stage_metrics
from backstream.chunks.sessions import SessionBasis, compute_sessions
from backstream.chunks.staged import Staged, upload_staged_files
from backstream.chunks.staged_counts import require_all_read, require_all_records
from backstream.chunks.stream_reader import NativeReader
from backstream.chunks.tasks import Tasks
from backstream.chunks.windows import compute_windows
from backstream.errors import BackstreamError, JobError, StorageError
from backstream.eventtime.windows import Session
from backstream.native.fate_counts import ChunkCounts
from backstream.native.task_runner import FAILED
from backstream.runs.manifest import Manifest
from backstream.runs.table_schemas import METRICS, PANES, WINDOWS
from backstream.storage.stores import Stores
from backstream.storage.traces import keep_trace
from backstream.text import text_logger
from backstream.watermarks.streams import StreamReader

log = text_logger(__name__)


@dataclass(slots=True)
class Stopwatch:
    """Seconds per stage for the manifest; `on_stage` is called when a stage begins."""

    on_stage: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        self.on_stage(name)
        begin = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begin, 3)


def new_attempt(group: ChunkGroup) -> Attempt:
    """Return an attempt with a new random name."""
    return Attempt(group.plan, group.chunks, uuid.uuid4().hex[:8], stores=Stores.from_environment())


class ChunkOutputs(NamedTuple):
    """The outputs of a chunk group, by chunk number.

    `events_read` is counted separately from the fates, so that the sum of fates can be checked against it.
    """

    attempt: Attempt
    events_read: dict[int, int]
    counts: ChunkCounts
    files: dict[str, Staged]

    def manifest(self, number: int, seconds: dict[str, float], finished_at: str) -> Manifest:
        """Return the manifest of one chunk, with its share of the group's seconds per stage."""
        attempt = self.attempt
        share = 1 / len(attempt.chunks)
        return Manifest(
            run_id=attempt.plan.run_id,
            chunk_id=attempt.chunks[number].chunk_id,
            attempt=attempt.attempt,
            events_read=self.events_read.get(number, 0),
            fates=self.counts.fates.get(number, {}),
            gaps=self.counts.gaps.get(number, {}),
            files={suffix: self.files.get(suffix, {}).get(number, ()) for suffix in attempt.plan.tables},
            timings_s={stage: round(total_s * share, 3) for stage, total_s in seconds.items()},
            finished_at=finished_at,
        )


class Engine(Protocol):
    """A way to compute the outputs of chunk groups. Threads share it."""

    def compute(self, group: ChunkGroup, attempt: Attempt, watch: Stopwatch) -> ChunkOutputs:
        """Compute and stage the outputs of a group."""

    def explain_errors(self, group: ChunkGroup, attempt: Attempt) -> AbstractContextManager[None]:
        """Raise readable errors while a group runs."""

    def cancel(self) -> None:
        """End all jobs and tasks that run."""


class SparkSteps(Protocol):
    """The part of Spark after native tasks, for definitions that need it."""

    def finish_rows(self, unfinished: Attempt, computed: Mapping[str, Staged]) -> dict[str, Staged]:
        """Stage rows of native tasks with derived columns, and without those that are not published."""

    def stage_more_tables(self) -> dict[str, Staged]:
        """Stage further tables of single windows."""


@dataclass(frozen=True, slots=True)
class NativeEngine:
    """An `Engine` that needs no Spark."""

    tasks: Tasks

    def compute(self, group: ChunkGroup, attempt: Attempt, watch: Stopwatch) -> ChunkOutputs:
        """Compute and stage the outputs of a group in native tasks."""
        reader = NativeReader(self.tasks, group.definition, group.plan.columns)
        return compute_natively(group, self.tasks, reader, attempt, watch)

    @contextmanager
    def explain_errors(self, group: ChunkGroup, attempt: Attempt) -> Iterator[None]:
        """Raise a sentence if the disk refuses what a task writes, or a task fails."""
        try:
            with _explain_refusals(attempt):
                yield
        except BackstreamError:
            raise
        except Exception as error:
            if FAILED not in str(error):
                raise
            trace = keep_trace(error, lambda: group.plan.folder.errors)
            msg = (
                f"{task_error_text(error)} ({group.plan.definition_path}, source.path)\n  {trace}\n\n"
                "hint: if a file is damaged, restore it or move it away; else use another expression, or"
                " `--runner spark`"
            )
            raise JobError(msg) from error

    def cancel(self) -> None:
        """End all tasks."""
        self.tasks.cancel()


@dataclass
class NativeFirst:
    """An `Engine` that needs Spark only for chunks of which native tasks fail."""

    native: NativeEngine
    start_spark: Callable[[], Engine]
    _spark: Engine | None = None
    _lock: Lock = field(default_factory=Lock)

    def compute(self, group: ChunkGroup, attempt: Attempt, watch: Stopwatch) -> ChunkOutputs:
        """Compute and stage the outputs of a group; after an error of a native task, with Spark."""
        try:
            with _explain_refusals(attempt):
                return self.native.compute(group, attempt, watch)
        except Exception as error:
            if not can_fall_back(group.definition, error):
                raise
            log.warning("%s; Spark computes %s instead", task_error_text(error), attempt)
        with self._lock:
            spark = self._spark = self._spark or self.start_spark()
        backfill = group.definition.backfill.model_copy(update={"engine": "spark"})
        in_spark = replace(group, definition=group.definition.model_copy(update={"backfill": backfill}))
        attempt = new_attempt(in_spark)  # tasks have left files
        with spark.explain_errors(in_spark, attempt):
            return spark.compute(in_spark, attempt, watch)

    def explain_errors(self, group: ChunkGroup, attempt: Attempt) -> AbstractContextManager[None]:
        """Do nothing: `compute` explains its errors."""
        return nullcontext()

    def cancel(self) -> None:
        """End all jobs and tasks."""
        self.native.cancel()
        if self._spark is not None:
            self._spark.cancel()


@contextmanager
def _explain_refusals(attempt: Attempt) -> Iterator[None]:
    """Raise a `StorageError` if the disk refuses what a task writes."""
    try:
        yield
    except Exception as error:
        if refusal := find_refusal(error):
            raise refused_write_error(attempt, refusal) from error
        raise


def find_refusal(error: Exception) -> str | None:
    """Return the message of an operating system that denied a write; None for other errors."""
    return next((reason for reason in REFUSALS if reason in str(error)), None)


def refused_write_error(attempt: Attempt, refusal: str, scratch: str = "") -> StorageError:
    """Return the error for a disk that is full or read-only; `scratch` has a line about temporary files."""
    return StorageError(
        f"could not run {attempt}: {refusal}\n"
        f"  it stages files in {attempt.plan.staging(WINDOWS)}, and in folders beside it\n{scratch}\n"
        "hint: free disk space, and run the same command again; finished chunks are kept"
    )


def compute_natively(
    group: ChunkGroup,
    tasks: Tasks,
    reader: StreamReader,
    attempt: Attempt,
    watch: Stopwatch,
    steps: SparkSteps | None = None,
) -> ChunkOutputs:
    """Compute windows, single records, and counts in native tasks, and stage them.

    Args:
        group: the chunks.
        tasks: runs the tasks.
        reader: reads the stream for its watermarks.
        attempt: the attempt to stage the files of.
        watch: measures the stages.
        steps: what Spark adds; None without Spark, for definitions that need nothing more.
    """
    with watch.stage("watermarks"):
        basis = _find_basis(group, tasks, reader)
    make_scratch(attempt)
    try:
        is_unfinished = bool(group.definition.derive_after or group.definition.withholds_rows)
        target = replace(attempt, is_unfinished=is_unfinished)
        with watch.stage(PANES if group.is_replay else "windows"):
            if isinstance(basis, SessionBasis):
                computed = compute_sessions(group, basis, tasks, target)
            else:
                computed = compute_windows(group, basis, tasks, target)
        counts, files = computed.counts, dict(computed.files)
        if is_unfinished and steps:
            files |= steps.finish_rows(target, files)
        with watch.stage("fates"):
            counted = counts.by_chunk()
            require_all_read(attempt, computed.rows_by_footer, computed.scanned)
        with watch.stage(METRICS):
            files[METRICS] = stage_metrics(group, counts, attempt)
        files |= steps.stage_more_tables() if steps else {}
        require_all_records(attempt, computed.records_in_windows, files, group.definition.backfill.publish)
        return ChunkOutputs(attempt, counts.read(), counted, upload_staged_files(attempt, files))
    finally:
        remove_scratch(attempt)


def _find_basis(group: ChunkGroup, tasks: Tasks, reader: StreamReader) -> SessionBasis | ReplayLateness | None:
    window = group.definition.window_spec
    if isinstance(window, Session):
        return SessionBasis.from_group(group, window, tasks, reader)
    return resolve_lateness(group, window, reader)
