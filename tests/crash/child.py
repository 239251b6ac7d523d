"""One run, from its plan to its report, by the real steps; only the chunk jobs copy what Spark staged before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import BackstreamError
from backstream.eventtime.instants import DAY_MS
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile, load_finished_chunks
from backstream.runs.plan import Chunk, Mode, Plan
from backstream.runs.table_schemas import WINDOWS
from backstream.workflow import audit_run, plan_run, publish_run, record_failure, report_run


def carry_out(job: dict[str, Any]) -> int:
    """Do what a job says, and write what became of it: `plan_run` with a range and a trigger, or a written plan.

    Keys: `definition`, `home`, `since_ms`, `until_ms`, `trigger`, `source` (the plan of the run that Spark made),
    `more` (what is added to each count), `said` (where to write); `plan_only`.
    """
    try:
        plan = planned(job)
        if job.get("plan_only"):
            word = ["planned", plan.run_id]
        else:
            stage_all(plan, Plan.read(Path(job["source"])), job["more"])
            audit_run(plan)
            publication = publish_run(plan)
            report_run(plan)
            word = ["already" if publication.already else "published", plan.run_id]
    except BackstreamError as error:
        word = [type(error).__name__, str(error)]
    Path(job["said"]).write_text(json.dumps(word))
    return 0


def planned(job: dict[str, Any]) -> Plan:
    """The plan that an earlier attempt of the run has written, or a new one."""
    home = Home(Path(job["home"]))
    if found := list((home.path / "runs").glob(f"*/{job['trigger']}.*/plan.json")):
        return Plan.read(found[0])
    return plan_run(
        Path(job["definition"]),
        job["since_ms"],
        job["until_ms"],
        mode=Mode.REPLAY,
        trigger=job["trigger"],
        home=home,
    )


def stage_all(plan: Plan, source: Plan, more: int) -> None:
    """What the chunk jobs of a plan leave, each once."""
    with record_failure(plan):
        for chunk in plan.chunks:
            if load_finished_chunks(plan, chunk) is None:
                stage(plan, chunk, source, more)


def stage(plan: Plan, chunk: Chunk, source: Plan, more: int) -> None:
    """As Spark's job does: files in a folder of this attempt, then the manifest."""
    made, later_ms = made_of(source, chunk.start_ms)
    manifest = Manifest.read(source.folder.manifest(made.chunk_id))
    attempt = f"{len(list(Path(plan.tables[WINDOWS].location, 'data', plan.run_id).glob('*')))}"
    files = {
        suffix: tuple(
            copied(plan, suffix, Path(file.path), f"{chunk.chunk_id}-{attempt}", (more, later_ms))
            for file in manifest.files.get(suffix, ())
        )
        for suffix in plan.tables
    }
    Manifest(
        plan.run_id, chunk.chunk_id, attempt, manifest.events_read, manifest.fates, files, manifest.timings_s
    ).write(plan.folder.manifest(chunk.chunk_id))


def made_of(source: Plan, day_ms: int) -> tuple[Chunk, int]:
    """Which chunk of Spark's stands for a day, and by how many milliseconds it has to be later."""
    days = (day_ms - source.since_ms) // DAY_MS
    made = source.chunks[days % len(source.chunks)]
    return made, day_ms - made.start_ms


def copied(plan: Plan, suffix: str, file: Path, attempt: str, changed: tuple[int, int]) -> StagedFile:
    """A file of Spark's with the run's id, other counts, and at another time: field ids and all else stay."""
    more, later_ms = changed
    rows = pq.read_table(file, partitioning=None)
    place = rows.schema.get_field_index("run_id")
    rows = rows.set_column(place, rows.schema.field("run_id"), pa.array([plan.run_id] * rows.num_rows))
    if suffix == WINDOWS:
        place = rows.schema.get_field_index("clicks")
        counts = pa.compute.add(rows["clicks"], more)
        rows = rows.set_column(place, rows.schema.field("clicks"), counts)
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            later = pa.compute.add(rows[field.name], pa.scalar(later_ms * 1_000, pa.duration("us")))
            rows = rows.set_column(place, field, later.cast(field.type))
    target = Path(plan.tables[suffix].location, "data", plan.run_id, attempt, file.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, target)
    counted = {"": "record_count", "panes": "record_count__final"}.get(suffix)
    records = pa.compute.sum(rows[counted]).as_py() if counted else 0
    return StagedFile(str(target), target.stat().st_size, rows.num_rows, records)
