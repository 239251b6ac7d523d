"""Describe the notable input files of a run in words, for the command line, the log and the report."""

from __future__ import annotations

from collections.abc import Iterator

from backstream.runs.input_files import SHOWN
from backstream.runs.plan import Plan

GONE_HINT = (
    "a file that was compacted or rewritten under another name is also gone; if other files contain its events,"
    " override the gate"
)


def describe_inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return a label and a sentence for each note; empty for a source without problems."""
    return [*_describe_unread(plan), *_describe_changes(plan)]


def _describe_unread(plan: Plan) -> Iterator[tuple[str, str]]:
    for reason, files in plan.ignored.items():
        yield "No data", f"{files.counted} with {reason}: {files}"
    for file in plan.skipped[:SHOWN]:
        yield "Damaged, skipped", str(file)
    if len(plan.skipped) > SHOWN:
        yield "Damaged, skipped", f"and {len(plan.skipped) - SHOWN:,} more files"
    for damaged in plan.damaged[:SHOWN]:
        yield "Damaged, not needed", f"{damaged.path}: it has no event of this range, according to an earlier run"
    if len(plan.damaged) > SHOWN:
        yield "Damaged, not needed", f"and {len(plan.damaged) - SHOWN:,} more files"


def _describe_changes(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.gone:
        yield "Gone", f"{plan.gone.counted} that published runs of this range read: {plan.gone}; {GONE_HINT}"
    for name, files in plan.absent.items():
        yield "Null", f"column {name!r} is not in {files.counted} and null there: {files}"
