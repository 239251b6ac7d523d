"""Define the result of a preview, and write it as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.formatting import bytes_text, change_text, count_of, seconds_text
from backstream.text import align_cells
from backstream.workflow.preview.scaling import Estimate

_MAX_DAYS = 20
_MAX_DETAILS = 3


@dataclass(frozen=True, slots=True)
class DayChange:
    """The changed rows of a day: those of sampled keys, those of all keys, and the number of rows by cause."""

    day_ms: int
    sampled_rows: int
    rows: Estimate
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AggregateEstimate:
    """The changed rows of an aggregate among the sampled keys, and the sum of differences over all keys."""

    name: str
    sampled_rows: int
    difference: Estimate


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of the full run.

    `files`, `rows`, and `bytes_read` are those that its chunks read. `seconds` is a lower and an upper estimate
    from earlier runs, None without one. `rows_written` are those of all keys. `tasks` is the number of Airflow's
    tasks.
    """

    files: int
    rows: int
    bytes_read: int
    seconds: tuple[float, float] | None
    rows_written: Estimate
    tasks: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The changes that a run would publish, computed for a sample of keys and estimated for all keys.

    `keys` and `rows` are those with a change; `kinds` counts the changed rows of sampled keys by kind of change.
    `details` are the changed files, keys of the definition, and code by cause. `engine` is the reason why Spark
    computed the sample; empty: DuckDB did.
    """

    dataset: str
    since_ms: int
    until_ms: int
    mode: str
    share: float
    sampled_keys: int
    sampled_records: int
    keys: Estimate
    rows: Estimate
    kinds: Mapping[str, int]
    days: Sequence[DayChange]
    aggregates: Sequence[AggregateEstimate]
    details: Mapping[str, Sequence[str]]
    cost: RunCost
    engine: str
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_exact(self) -> bool:
        """Return whether all keys were computed."""
        return self.share >= 1

    def as_json(self) -> dict[str, Any]:
        """Return all fields for a file."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the preview as `backstream preview` prints it."""
        return preview_text(self)


def preview_text(preview: Preview) -> str:
    """Return a preview as text: the sample, the changes by day and aggregate, their causes, and the cost."""
    span = Interval(preview.since_ms, preview.until_ms)
    lines = [f"{preview.dataset}  {span}  {preview.mode}, nothing is published", *_sample_lines(preview), ""]
    if preview.days:
        lines += [*_change_lines(preview), "", *_day_lines(preview), "", *_aggregate_lines(preview)]
        if preview.details:
            lines += ["", *_detail_lines(preview)]
    else:
        lines.append(_no_change_line(preview))
    return "\n".join([*lines, "", *_cost_lines(preview.cost)])


def summary_text(preview: Preview) -> str:
    """Return one sentence, such as `about 760 rows would change (95%: 523 to 1,070): late data`."""
    if not preview.days:
        return _no_change_line(preview)
    causes = dict.fromkeys(cause for day in preview.days for cause in day.causes)
    days = count_of(len(preview.days), "day")
    return f"{estimate_text(preview.rows)} rows of {days} would change: {', '.join(causes)}"


def _sample_lines(preview: Preview) -> Iterator[str]:
    share = "all keys" if preview.is_exact else f"{preview.share * 100:.4g}% of the keys"
    keys, records = count_of(preview.sampled_keys, "key"), count_of(preview.sampled_records, "record")
    by = f"Spark, because {preview.engine}" if preview.engine else "DuckDB"
    yield f"sample   {share}: {keys}, {records}; computed by {by} in {seconds_text(preview.seconds)}"


def _change_lines(preview: Preview) -> Iterator[str]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in preview.kinds.items())
    yield f"keys     {estimate_text(preview.keys)} change"
    yield f"rows     {estimate_text(preview.rows)} change; in the sample {kinds}"


def _no_change_line(preview: Preview) -> str:
    if preview.is_exact:
        return "no row changes"
    most = "an unknown number" if preview.keys.high is None else f"{preview.keys.high:,.0f}"
    return f"no row of the sample changes; of all keys, at most {most} change (95%)"


def _day_lines(preview: Preview) -> Iterator[str]:
    rows = [
        (instant_text(day.day_ms)[:10], estimate_text(day.rows), ", ".join(day.causes))
        for day in preview.days[:_MAX_DAYS]
    ]
    yield from align_cells([("day", "changed rows", "causes"), *rows])
    if len(preview.days) > _MAX_DAYS:
        yield f"and {len(preview.days) - _MAX_DAYS:,} more days"


def _aggregate_lines(preview: Preview) -> Iterator[str]:
    rows = [
        (each.name, f"{each.sampled_rows:,}", estimate_text(each.difference, is_change=True))
        for each in preview.aggregates
    ]
    yield from align_cells([("aggregate", "sampled rows", "sum of differences"), *rows])


def _detail_lines(preview: Preview) -> Iterator[str]:
    for cause, details in preview.details.items():
        more = f", and {len(details) - _MAX_DETAILS:,} more" if len(details) > _MAX_DETAILS else ""
        yield f"{cause}: {', '.join(details[:_MAX_DETAILS])}{more}"


def _cost_lines(cost: RunCost) -> Iterator[str]:
    yield "cost of the full run"
    files = f"{count_of(cost.files, 'file')}, {bytes_text(cost.bytes_read)}"
    yield f"  read     {count_of(cost.rows, 'row')} in {files}"
    yield f"  write    {estimate_text(cost.rows_written)} rows"
    if cost.seconds is None:
        yield "  time     unknown: no run of this dataset has been published yet"
    else:
        low, high = (seconds_text(each) for each in cost.seconds)
        yield f"  time     {low if low == high else f'{low} to {high}'}, as in earlier runs"
    yield f"  Airflow  {count_of(cost.tasks, 'task')}"


def estimate_text(estimate: Estimate, *, is_change: bool = False) -> str:
    """Return an estimate such as `about 5,400 (95%: 4,100 to 7,000)`; an exact one is a number only."""

    def text(value: float) -> str:
        rounded = value if estimate.is_exact else float(f"{value:.3g}")
        return change_text(rounded) if is_change else f"{rounded:,.0f}"

    if estimate.is_exact:
        return text(estimate.value)
    low, high = ("unknown" if bound is None else text(bound) for bound in (estimate.low, estimate.high))
    return f"about {text(estimate.value)} (95%: {low} to {high})"
