"""The Spark job of one chunk, or of several: reads a plan, stages results, leaves manifests.

    spark-submit pipelines/backstream/jobs/replay.py --plan PLAN.json --chunk 0000 [--chunk 0001 ..]

A chunk whose manifest is there already is not run again. Nothing is begun when an input file or the definition is
not what the plan was made from.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from backstream import __version__
from backstream.definition.loader import require_unchanged_definition
from backstream.errors import HOPELESS_STATUS, BackstreamError
from backstream.runs.home import TASK_VARIABLE
from backstream.runs.manifest import Manifest, list_unfinished_chunks, require_unchanged_inputs, version_warning
from backstream.runs.plan import Plan
from backstream.runs.progress import load_progress
from backstream.spark.chunk_job import replay_chunks
from backstream.spark.failures import explain_heap_errors
from backstream.spark.session import submitted_session

_TELLING_S = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chunks named on the command line.

    The exit status is 0 when all are done, 3 after an error that is not worth a retry, 1 after another.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json of the run")
    parser.add_argument("--chunk", action="append", required=True, help="chunk id; may be repeated")
    options = parser.parse_args(arguments)
    end_with_task()
    try:
        plan = Plan.read(options.plan)
        with _failing(plan):
            _run(plan, options.chunk)
    except BackstreamError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - people read the log
        return 1 if error.is_retryable else HOPELESS_STATUS
    return 0


def _run(plan: Plan, chunk_ids: Sequence[str]) -> None:
    chunks = [plan.chunk(chunk_id) for chunk_id in chunk_ids]
    _require_pinned(plan, chunk_ids)
    with ThreadPoolExecutor(1) as beside:
        # What is imported for this takes about as long as Spark takes to start a session.
        made = beside.submit(_make_tables, plan, chunk_ids)
        spark, tell = submitted_session(f"backstream {plan.dataset} {', '.join(chunk_ids)}"), _Telling(plan)
        made.result()
    with explain_heap_errors(spark, plan):
        for manifest in replay_chunks(spark, plan, chunks):
            tell.done(manifest)


def _make_tables(plan: Plan, chunk_ids: Sequence[str]) -> None:
    """Before anything is staged for them; where all is done already, they are there."""
    if not set(chunk_ids).isdisjoint(list_unfinished_chunks(plan)):
        from backstream.workflow import create_run_tables

        create_run_tables(plan)


class _Telling:
    """A line per chunk, and now and then how far the whole run is: that reads every manifest of it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._told_s = -math.inf

    def done(self, manifest: Manifest) -> None:
        """Say what a chunk has read."""
        chunk = self._plan.chunk(manifest.chunk_id)
        said = f"chunk {chunk.chunk_id} ({chunk.interval}): {manifest.events_read:,} events read"
        if time.monotonic() - self._told_s >= _TELLING_S:
            said += f"; {load_progress(self._plan)}"
            self._told_s = time.monotonic()
        print(said, flush=True)  # noqa: T201 - people read the log


@contextmanager
def _failing(plan: Plan) -> Iterator[None]:
    """Note in the ledger that the run failed; only then are the steps imported, which bring much with them."""
    try:
        yield
    except Exception:
        from backstream.workflow import record_failure

        with record_failure(plan):
            raise


def _require_pinned(plan: Plan, chunk_ids: Sequence[str]) -> None:
    """A retry runs what was planned, or nothing; where all is done already, nothing is read."""
    if set(chunk_ids).isdisjoint(list_unfinished_chunks(plan)):
        return
    require_unchanged_definition(plan)
    require_unchanged_inputs(plan)
    if warning := version_warning(plan, __version__):
        print(f"warning: {warning}", file=sys.stderr)  # noqa: T201 - people read the log


if __name__ == "__main__":
    sys.exit(main())


GONE_STATUS = 143
_POLL_S = 1.0


def end_with_task(environment: Mapping[str, str] = os.environ) -> threading.Thread | None:
    """From now on end this process, and with it the Spark application, once the task that waits for it is gone.

    A task that is asked to end ends its job itself; one that is killed cannot. None where nobody is to be watched:
    no task was named, or it is on another machine, as with a driver in a cluster.
    """
    host, _, pid = environment.get(TASK_VARIABLE, "").partition("/")
    if host != socket.gethostname() or not pid.isdigit() or _began(os.getpid()) is None:
        return None
    began = _began(int(pid))
    if began is None:
        _end(int(pid))
    watch = threading.Thread(target=_watch, args=(int(pid), began), name="watch the task", daemon=True)
    watch.start()
    return watch


def _watch(pid: int, began: str | None) -> None:
    while _began(pid) == began:
        time.sleep(_POLL_S)
    _end(pid)


def _end(pid: int) -> NoReturn:
    print(f"the task that waited for this job is gone (process {pid}): ending", file=sys.stderr, flush=True)  # noqa: T201 - people read the log
    os._exit(GONE_STATUS)


def _began(pid: int) -> str | None:
    """When a process began, in clock ticks since the machine did; None when it has ended, or nothing tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
