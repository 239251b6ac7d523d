"""Describe the notable input files and records of a run in words, for the command line, the log and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from backstream.eventtime.duplicates import RecordGap
from backstream.runs.input_files import HIDDEN, SHOWN
from backstream.runs.manifest import Manifest, sum_gaps
from backstream.runs.plan import Plan
from backstream.text import count_of

REMOVED_HINT = (
    "a file that was compacted or rewritten under another name is also removed; if other files contain its events,"
    " override the gate"
)
INEXACT_HINT = "in source.columns, declare a type that holds all digits: bigint, decimal(38,9), or string"


def describe_inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return a label and a sentence for each note; empty for a source without problems."""
    return [
        *_describe_snapshots(plan),
        *(("Input", f"{name}: {pinned}") for name, pinned in plan.side_inputs.items()),
        *_describe_unread(plan),
        *_describe_preparation(plan.prepared),
        *_describe_changes(plan),
    ]


def describe_gaps(manifests: Iterable[Manifest]) -> list[tuple[str, str]]:
    """Return a label and a sentence for each `RecordGap`; empty if no record has one."""
    counts = sum_gaps(manifests)
    return [(label, text(counts[gap])) for gap, (label, text) in _GAPS.items() if counts[gap]]


_GAPS: Mapping[RecordGap, tuple[str, Callable[[int], str]]] = {
    RecordGap.NO_ID: (
        "Without id",
        lambda count: (
            f"in {count_of(count, 'record')} all columns of source.deduplicate_on are null,"
            " so none of them is a duplicate"
        ),
    ),
    RecordGap.EMPTY_ID: (
        "Empty id",
        lambda count: f"in {count_of(count, 'record')} the id in source.deduplicate_on is an empty text",
    ),
    RecordGap.NO_KEY: (
        "Without key",
        lambda count: (
            f"in {count_of(count, 'record')} a column of source.key is null or an empty text;"
            " they are published under this key"
        ),
    ),
}


def _describe_snapshots(plan: Plan) -> Iterator[tuple[str, str]]:
    for table, snapshot_id in plan.source_snapshots.items():
        yield "Iceberg", f"snapshot {snapshot_id} of table {table}"


def _describe_unread(plan: Plan) -> Iterator[tuple[str, str]]:
    for reason, found in plan.ignored.items():
        files = found.shorten() if reason == HIDDEN else found  # Spark adds such a file to each that it writes
        yield "No data", f"{files.count_text} with {reason}: {files}"
    if plan.unopened:
        yield "Not opened", f"{plan.unopened.count_text} in folders that cannot hold the range: {plan.unopened}"
    if plan.equal_files:
        yield "Equal files", f"{plan.equal_files.count_text}, so their records count twice: {plan.equal_files}"
    yield from _describe_misplaced(plan)
    for numbers in plan.inexact:
        yield "Inexact", f"{numbers}; {INEXACT_HINT}"
    yield from (("Implausible times", str(times)) for times in plan.implausible)
    for file in plan.skipped[:SHOWN]:
        yield "Damaged, skipped", str(file)
    if len(plan.skipped) > SHOWN:
        yield "Damaged, skipped", f"and {len(plan.skipped) - SHOWN:,} more files"
    for damaged in plan.damaged[:SHOWN]:
        yield "Damaged, not needed", f"{damaged.path}: it has no event of this range, according to an earlier run"
    if len(plan.damaged) > SHOWN:
        yield "Damaged, not needed", f"and {len(plan.damaged) - SHOWN:,} more files"


def _describe_misplaced(plan: Plan) -> Iterator[tuple[str, str]]:
    for records in plan.misplaced[:SHOWN]:
        yield "Misplaced", f"{records}: source.partition_filter does not expect these times in this folder"
    if len(plan.misplaced) > SHOWN:
        yield "Misplaced", f"and records of {len(plan.misplaced) - SHOWN:,} more files"


def _describe_preparation(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Describe records that the settings of a prepared source added or removed, over all its files."""
    if counts and counts["read"] != counts["returned"]:
        yield (
            "Transformed",
            f"source.transform read {counts['read']:,} records and returned {counts['returned']:,}",
        )
    if counts and counts["left_out"]:
        yield "Left out", f"{counts['left_out']:,} of {counts['returned']:,} records do not meet source.where"


def _describe_changes(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.removed:
        files = plan.removed
        yield "Removed", f"{files.count_text} that published runs of this range read: {files}; {REMOVED_HINT}"
    for name, files in plan.absent.items():
        yield "Null", f"column {name!r} is not in {files.count_text} and null there: {files}"
