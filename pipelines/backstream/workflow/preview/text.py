"""Show a preview as text."""

from __future__ import annotations

from collections.abc import Iterator

from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.formatting import bytes_text, change_text, count_of, seconds_text
from backstream.text import align_cells
from backstream.workflow.preview.result import Preview, RunCost
from backstream.workflow.preview.scaling import Estimate

_MAX_DAYS = 20
_MAX_DETAILS = 3


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
