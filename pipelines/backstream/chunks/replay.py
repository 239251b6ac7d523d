"""Run chunks of a plan, stage their output files, and write one manifest per chunk.

Small adjacent chunks run as one group, so that the fixed cost of a job is paid once. Their results are staged
separately, so a chunk has the same files in any group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from backstream.chunks.group import ChunkGroup
from backstream.chunks.native_engine import ChunkOutputs, Engine, Stopwatch, new_attempt
from backstream.errors import PlanError
from backstream.eventtime.time_zones import tzdata_version
from backstream.native.fate_counts import ChunkCounts
from backstream.runs.chunk_groups import group_chunks
from backstream.runs.manifest import Manifest, load_finished_manifest
from backstream.runs.plan import Chunk, Plan
from backstream.runs.table_schemas import (
    DROPPED,
    FIRINGS,
    METRICS,
    OUTPUTS,
    PANES,
    QUARANTINE,
    SKIPPED,
    WITHHELD,
)

STAGES = (
    "watermarks",
    "fates",
    PANES,
    "windows",
    WITHHELD,
    SKIPPED,
    OUTPUTS,
    METRICS,
    QUARANTINE,
    DROPPED,
    FIRINGS,
)
"""The stages of a chunk, in order; a recompute skips some."""


_AT_ONCE = 2
"""The number of chunk groups that run in parallel: while the driver plans one, the cores work on the other."""


def replay_chunks(
    engine: Engine,
    plan: Plan,
    chunks: Sequence[Chunk],
    on_stage: Callable[[Chunk, str], None] = lambda _, __: None,
) -> Iterator[Manifest]:
    """Run chunks with an engine, and yield the manifest of each chunk when it is done.

    Finished chunks don't run again. `backfill.max_events_per_job` controls which chunks run as one group. After a
    failure, no new group starts; running groups finish, so a retry can reuse them.

    Args:
        engine: computes the chunks.
        plan: the plan of the chunks.
        chunks: some chunks of the plan, in its order.
        on_stage: called from several threads when a stage begins, with the chunk and a name of `STAGES`.

    Raises:
        ContractError: when the source or a table lacks promised columns.
        CountError: when rows or records are lost or duplicated.
        PlanError: when an input file was replaced while it was read for the arrival index, or the time-zone data
            are not those of the plan.
        StorageError: when a disk is full or read-only, or executors cannot read the input.
    """
    finished = {chunk.chunk_id: manifest for chunk in chunks if (manifest := load_finished_manifest(plan, chunk))}
    yield from finished.values()
    unfinished = [chunk for chunk in chunks if chunk.chunk_id not in finished]
    if plan.time_zone_data and plan.time_zone_data != tzdata_version():
        msg = (
            f"cannot run plan {plan.run_id}: it has the time-zone data {plan.time_zone_data}, and this machine has"
            f" {tzdata_version()}\n\nhint: plan the run again, or install the version of tzdata"
        )
        raise PlanError(msg)
    # All groups of this job are copies of one group, so they share its watermarks.
    group = ChunkGroup.from_plan(plan, unfinished)
    groups = group_chunks(unfinished, group.definition.max_events_per_job)
    running = set[Future[list[Manifest]]]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            while (
                started := [
                    pool.submit(_run_group, engine, replace(group, chunks=group_members), on_stage)
                    for group_members in islice(groups, _AT_ONCE - len(running))
                ]
                or running
            ):
                done, running = wait(running.union(started), return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except (KeyboardInterrupt, GeneratorExit):
            engine.cancel()
            raise


def _run_group(engine: Engine, group: ChunkGroup, on_stage: Callable[[Chunk, str], None]) -> list[Manifest]:
    """Run a group of chunks, write their manifests, and return them."""
    plan, chunks = group.plan, group.chunks

    def report_stage(stage: str) -> None:
        for chunk in chunks:
            on_stage(chunk, stage)

    attempt, watch = new_attempt(group), Stopwatch(report_stage)
    with engine.explain_errors(group, attempt):
        if any(chunk.files for chunk in chunks):
            outputs = engine.compute(group, attempt, watch)
        else:
            outputs = ChunkOutputs(attempt, {}, ChunkCounts({}, {}), {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    manifests = [outputs.manifest(number, watch.seconds, now) for number in range(len(chunks))]
    for manifest in manifests:
        manifest.write(plan.folder.manifest(manifest.chunk_id))
    return manifests
