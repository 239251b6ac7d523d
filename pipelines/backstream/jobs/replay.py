"""Define the Spark job that replays one or more chunks: read a plan, stage results, and write manifests.

    spark-submit pipelines/backstream/jobs/replay.py --plan PLAN.json --chunk 0000 [--chunk 0001 ..]

The job skips a chunk that has a manifest. It fails before any work if an input file or the definition has changed
since planning.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

from backstream import __version__
from backstream.chunks.native_engine import Engine
from backstream.chunks.replay import replay_chunks
from backstream.jobs.job_process import end_with_task, run_job
from backstream.runs.choices import RunnerName
from backstream.runs.home import RunFolder
from backstream.runs.manifest import Manifest, list_unfinished_chunks, version_warning
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase, keep_phase, load_progress
from backstream.text import print_text
from backstream.workflow.java_end import explain_java_end
from backstream.workflow.runners import LocalRunner, require_no_spark
from backstream.workflow.unchanged_inputs import require_nothing_changed

_PROGRESS_INTERVAL_S = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the chunks on the command line.

    Returns:
        The exit status: 0 when all chunks are finished, 3 after an error that a retry cannot fix, else 1.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plan", required=True, help="path or address of the plan of the run")
    parser.add_argument("--chunk", action="append", required=True, help="chunk id, e.g., 0000; can be repeated")
    help_text = "leave the tables and the ledger to the task that waits, which knows the catalog"
    parser.add_argument("--without-catalog", action="store_true", help=help_text)
    options = parser.parse_args(arguments)
    end_with_task()
    return run_job(
        lambda: _replay_plan(options.plan, options.chunk, not options.without_catalog),
        lambda: RunFolder.from_plan(options.plan).errors,
    )


def _replay_plan(location: str, chunk_ids: Sequence[str], has_catalog: bool) -> None:
    plan = Plan.load(location)
    ended = explain_java_end(lambda: (plan.definition, plan.definition_path))
    with _record_failure(plan) if has_catalog else nullcontext(), ended:
        _replay(plan, chunk_ids, has_catalog)


def _replay(plan: Plan, chunk_ids: Sequence[str], has_catalog: bool) -> None:
    chunks, log = [plan.chunk(chunk_id) for chunk_id in chunk_ids], _ProgressLog(plan)
    is_unfinished = not set(chunk_ids).isdisjoint(list_unfinished_chunks(plan))
    if is_unfinished:
        require_nothing_changed(plan)
        if warning := version_warning(plan, __version__):
            print_text(f"warning: {warning}", file=sys.stderr)
    needs_tables = is_unfinished and has_catalog
    if plan.definition["backfill"]["runner"] == RunnerName.LOCAL:
        started = _start_local(plan, needs_tables)
    else:
        name = f"backstream {plan.dataset} {', '.join(chunk_ids)}"
        started = _start_spark(plan, name, needs_tables, is_unfinished)
    with started as engine, keep_phase(plan.folder, Phase.REPLAY, chunk_ids[0]):
        for manifest in replay_chunks(engine, plan, chunks):
            log.print_finished(manifest)


@contextmanager
def _start_local(plan: Plan, needs_tables: bool) -> Iterator[Engine]:
    """Provide the engine on this machine, without Spark; meanwhile, create the tables."""
    require_no_spark(plan)
    runner = LocalRunner.for_input(sum(file.size_bytes for file in plan.inputs))
    runner.start()
    try:
        if needs_tables:
            _create_tables(plan)
        yield runner.engine()
    finally:
        runner.stop()


@contextmanager
def _start_spark(plan: Plan, name: str, needs_tables: bool, reads_input: bool) -> Iterator[Engine]:
    """Provide the engine of Spark; meanwhile, create the tables, and check that executors find the files."""
    from backstream.spark.engine import SparkEngine
    from backstream.spark.executor_options import executor_java_options
    from backstream.spark.failures import explain_heap_errors
    from backstream.spark.session import session_in, submitted_context
    from backstream.spark.shared_folder import count_executors, require_visible_files

    executor_options = executor_java_options(plan)
    with ThreadPoolExecutor(2) as executor:
        # The imports for this take about as long as the start of a Spark session.
        tables = executor.submit(_create_tables, plan) if needs_tables else None
        context = submitted_context(name, executor_options=executor_options)
        # Its tasks start Python on the executors while the session starts.
        visible = executor.submit(require_visible_files, context, plan) if reads_input else None
        spark = session_in(context)
        if visible and visible.result() < count_executors(context):
            require_visible_files(context, plan)
        if tables:
            tables.result()
    with explain_heap_errors(spark, plan):
        yield SparkEngine(spark)


def _create_tables(plan: Plan) -> None:
    """Create the tables of the run before any file is staged; finished chunks have their tables already."""
    from backstream.workflow.publish import create_run_tables

    create_run_tables(plan)


class _ProgressLog:
    """Log with a line per finished chunk, and sometimes the progress of the run, which reads all manifests."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._progress_at_s = -math.inf

    def print_finished(self, manifest: Manifest) -> None:
        """Print the number of events of a finished chunk."""
        chunk = self._plan.chunk(manifest.chunk_id)
        line = f"chunk {chunk.chunk_id} ({chunk.interval}): {manifest.events_read:,} events read"
        if time.monotonic() - self._progress_at_s >= _PROGRESS_INTERVAL_S:
            line += f"; {load_progress(self._plan)}"
            self._progress_at_s = time.monotonic()
        print_text(line, flush=True)


@contextmanager
def _record_failure(plan: Plan) -> Iterator[None]:
    """Record a failure of the run in the ledger; only a failure imports the workflow, which is slow."""
    try:
        yield
    except Exception:
        from backstream.workflow.publish import record_failure

        with record_failure(plan):
            raise


if __name__ == "__main__":
    sys.exit(main())
