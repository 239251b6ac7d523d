"""Describe a plan for the command line and for the log of Airflow."""

from __future__ import annotations

from backstream.definition.aggregates import holistic_aggregates
from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import duration_text
from backstream.native.supported import describe_engine
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import Plan


def plan_text(planned: Plan) -> str:
    """Return the plan as text: its range, its engine, its input, and a line per chunk."""
    definition = parse_definition(planned.definition, f"plan {planned.run_id}")
    zone = definition.window.spec().zone
    whole = holistic_aggregates(definition)
    cost = ["computed from all records of each window, on Spark: " + ", ".join(whole)] if whole else []
    lines = [
        f"{planned.dataset}  {planned.range}  {planned.mode}, arrival order {planned.arrival_order}",
        f"run {planned.run_id}, plan {planned.location}",
        *([f"time zone {zone.name}, time-zone data {planned.time_zone_data}: all days are local"] if zone else []),
        f"engine {describe_engine(definition, planned.columns)}",
        *cost,
        *(f"{label.lower()}: {text}" for label, text in describe_inputs(planned)),
        "",
        f"{'chunk':<8} {'windows start in':<40} {'files':>6} {'events, about':>14}  halo",
    ]
    for chunk in planned.chunks:
        halo = duration_text(chunk.halo_end_ms - chunk.end_ms)
        files, events = f"{len(chunk.files):>6,}", f"{chunk.expected_events:>14,}"
        lines.append(f"{chunk.chunk_id:<8} {chunk.interval!s:<40} {files} {events}  {halo}")
    return "\n".join(lines)
