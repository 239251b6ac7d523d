"""Run the steps from plan to report; instead of Spark, the chunk jobs copy files that Spark staged before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile, load_finished_manifest
from backstream.runs.plan import Chunk, Mode, Plan
from backstream.runs.table_schemas import WINDOWS
from backstream.workflow.audit import audit_run
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run, record_failure
from backstream.workflow.report import report_run


def run_job(job: dict[str, Any]) -> int:
    """Run a job and write its outcome.

    Keys: `definition`, `home`, `since_ms`, `until_ms`, `trigger`, `source` (the plan of Spark's run),
    `more` (a number that is added to each count), `outcome` (the file for the outcome), `plan_only`.
    """
    try:
        plan = load_or_plan(job)
        if job.get("plan_only"):
            outcome = ["planned", plan.run_id]
        else:
            stage_all(plan, Plan.read(Path(job["source"])), job["more"])
            audit_run(plan)
            publication = publish_run(plan)
            report_run(plan)
            outcome = ["already" if publication.already else "published", plan.run_id]
    except BackstreamError as error:
        outcome = [type(error).__name__, str(error)]
    Path(job["outcome"]).write_text(json.dumps(outcome))
    return 0


def load_or_plan(job: dict[str, Any]) -> Plan:
    """Return the plan that an earlier attempt of the run wrote, or make a new one."""
    home = Home(Path(job["home"]))
    if paths := list((home.path / "runs").glob(f"*/{job['trigger']}.*/plan.json")):
        return Plan.read(paths[0])
    return plan_run(
        PlanRequest(
            Path(job["definition"]),
            Interval(job["since_ms"], job["until_ms"]),
            mode=Mode.REPLAY,
            trigger=job["trigger"],
            home=home,
        )
    )


def stage_all(plan: Plan, source: Plan, more: int) -> None:
    """Stage the unfinished chunks of a plan."""
    with record_failure(plan):
        for chunk in plan.chunks:
            if load_finished_manifest(plan, chunk) is None:
                stage(plan, chunk, source, more)


def stage(plan: Plan, chunk: Chunk, source: Plan, more: int) -> None:
    """Stage a chunk as Spark does: write the files to a folder of this attempt, then the manifest."""
    source_chunk, shift_ms = find_source_chunk(source, chunk.start_ms)
    manifest = Manifest.read(source.folder.manifest(source_chunk.chunk_id))
    attempt = f"{len(list(Path(plan.tables[WINDOWS].location, 'data', plan.run_id).glob('*')))}"
    files = {
        suffix: tuple(
            copy_file(plan, suffix, Path(file.path), f"{chunk.chunk_id}-{attempt}", (more, shift_ms))
            for file in manifest.files.get(suffix, ())
        )
        for suffix in plan.tables
    }
    Manifest(
        plan.run_id, chunk.chunk_id, attempt, manifest.events_read, manifest.fates, files, manifest.timings_s
    ).write(plan.folder.manifest(chunk.chunk_id))


def find_source_chunk(source: Plan, day_ms: int) -> tuple[Chunk, int]:
    """Return the chunk of Spark's run for a day, and the milliseconds by which its times must be shifted."""
    days = (day_ms - source.since_ms) // DAY_MS
    chunk = source.chunks[days % len(source.chunks)]
    return chunk, day_ms - chunk.start_ms


def copy_file(plan: Plan, suffix: str, file: Path, attempt: str, changes: tuple[int, int]) -> StagedFile:
    """Copy a file of Spark with the id of the run, other counts and shifted times; field ids stay the same."""
    more, shift_ms = changes
    rows = pq.read_table(file, partitioning=None)
    position = rows.schema.get_field_index("run_id")
    rows = rows.set_column(position, rows.schema.field("run_id"), pa.array([plan.run_id] * rows.num_rows))
    if suffix == WINDOWS:
        position = rows.schema.get_field_index("clicks")
        counts = pa.compute.add(rows["clicks"], more)
        rows = rows.set_column(position, rows.schema.field("clicks"), counts)
    for position, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            shifted = pa.compute.add(rows[field.name], pa.scalar(shift_ms * 1_000, pa.duration("us")))
            rows = rows.set_column(position, field, shifted.cast(field.type))
    target = Path(plan.tables[suffix].location, "data", plan.run_id, attempt, file.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, target)
    count = {"": "record_count", "panes": "record_count__final"}.get(suffix)
    records = pa.compute.sum(rows[count]).as_py() if count else 0
    return StagedFile(str(target), target.stat().st_size, rows.num_rows, records)
