"""The tables for a terminal and for the page: first the ratios, then the time and memory of each job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparisons import Asked, Comparison, Ratio, Section, is_met, ratio
from benchmarks.growth import bar_of
from benchmarks.results import Cost, Results, Runs

RATIO_COLUMNS = ("job", "against", "ratio", "in the rounds", "asked", "met")
ENGINE_COLUMNS = ("engine", "reads", "settings")
JOB_COLUMNS = (
    "job",
    "engine",
    "seconds",
    "events/s",
    "peak RSS",
    "JVM heap",
    "spill",
    "to driver",
    "longest task",
)
WHOLE_JOB_COLUMNS = ("whole job", "events", "result rows", "seconds", "in the rounds", "processor", "peak RSS")
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_UNKNOWN = "-"
_GROWTH = "seconds of processor (of the clock) and peak memory, by what is published"

Row = tuple[str, ...]


def ratio_rows(results: Results, comparisons: Sequence[Comparison]) -> list[Row]:
    """Return one row of text per comparison, also for those without a measurement."""
    return [_ratio_row(comparison, ratio(comparison, results)) for comparison in comparisons]


def _ratio_row(comparison: Comparison, result: Ratio | None) -> Row:
    limit = _limit_text(comparison)
    if result is None:
        return (comparison.what, comparison.against, "not measured", _UNKNOWN, limit, _UNKNOWN)
    unit = {Asked.FASTER: " x faster", Asked.SECONDS: " s"}.get(comparison.asked, " x")
    verdict = {True: "yes", False: "no", None: _UNKNOWN}[is_met(comparison, result)]
    spread = f"{result.low:.2f} to {result.high:.2f}"
    return (comparison.what, comparison.against, f"{result.median:.2f}{unit}", spread, limit, verdict)


def _limit_text(comparison: Comparison) -> str:
    if comparison.asked is Asked.NOTHING:
        return _UNKNOWN
    if comparison.asked is Asked.FASTER:
        return f"at least {comparison.limit:g} x faster"
    if comparison.asked is Asked.SECONDS:
        return f"at most {comparison.limit:g} s"
    return f"at most {comparison.limit:g} x"


def job_rows(results: Results) -> list[Row]:
    """Return one row of text per job: medians of time, peaks of memory."""
    return [_job_row(name, runs, results.rows) for name, runs in results.runs.items()]


def _job_row(name: str, runs: Runs, rows: int) -> Row:
    seconds = runs.median("seconds") or 0.0
    events = rows // 4 if name.startswith("quarter") else rows
    memory = (_size(runs.peak(measure)) for measure in ("rss_mb", "heap_mb", "spilled_mb", "collected_mb"))
    share = runs.peak("longest_task_share")
    longest = _UNKNOWN if share is None else f"{share:.0%}".replace("%", " %")
    return (name, runs.engine, f"{seconds:.2f}", f"{events / seconds:,.0f}", *memory, longest)


def whole_job_rows(results: Results) -> list[Row]:
    """Return one row of text per whole job: medians of time, peaks of memory."""
    return [_whole_job_row(name, runs) for name, runs in results.jobs.items()]


def _whole_job_row(name: str, runs: Runs) -> Row:
    seconds, processor_s = runs.values("seconds"), runs.median("processor_s") or 0.0
    events, rows = (f"{runs.peak(measure) or 0:,.0f}" for measure in ("events", "rows"))
    spread = _spread(seconds)
    median = f"{runs.median('seconds') or 0:.1f}"
    return (name, events, rows, median, spread, f"{processor_s:.1f} s", _size(runs.peak("rss_mb")))


def engine_rows(results: Results) -> list[Row]:
    """Return one row of text per engine and its settings."""
    all_runs = [*results.jobs.values(), *results.runs.values()]
    rows = ((runs.engine, runs.reads, runs.settings) for runs in all_runs)
    return list(dict.fromkeys(rows))


def _size(megabytes: float | None) -> str:
    return _UNKNOWN if megabytes is None else f"{megabytes:,.0f} MB" if megabytes >= 1 else f"{megabytes:.2f} MB"


def growth_columns(results: Results) -> Row:
    """Return the columns: the command, the shapes, the ratio of the last shape to the first, and the limit."""
    return ("command", *_shapes(results), "against an empty table", "asked", "met")


def growth_rows(results: Results) -> list[Row]:
    """Return one row of text per command: seconds of processor (of the clock) and peak memory, shape by shape."""
    shapes = _shapes(results)
    costs = {(cost.command, cost.shape): cost for cost in results.costs}
    return [_growth_row([costs[command, shape] for shape in shapes]) for command in _commands(results)]


def _shapes(results: Results) -> Row:
    return tuple(dict.fromkeys(cost.shape for cost in results.costs))


def _commands(results: Results) -> Row:
    return tuple(dict.fromkeys(cost.command for cost in results.costs))


def _growth_row(costs: Sequence[Cost]) -> Row:
    first, last = costs[0], costs[-1]
    bar, times = bar_of(last.command), last.cpu_s / first.cpu_s
    cells = (f"{cost.cpu_s:.2f} s ({cost.wall_s:.1f} s), {cost.rss_mb:.0f} MB" for cost in costs)
    is_met = "yes" if bar.is_met(first, last) else "no"
    return (last.command, *cells, f"{times:.2f} x", str(bar), is_met)


def _spread(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f}"


def shown(results: Results, comparisons: Sequence[Comparison], console: Console) -> None:
    """Print the tables, the differences of results, and the failures."""
    if results.costs:
        console.print(_table(_GROWTH, growth_columns(results), growth_rows(results), left=1))
    jobs, kernels = _split(comparisons)
    if jobs:
        title = f"whole jobs, median of {results.rounds} rounds"
        console.print(_table(title, RATIO_COLUMNS, ratio_rows(results, jobs), left=2))
        title = "per job: median time, peak memory"
        console.print(_table(title, WHOLE_JOB_COLUMNS, whole_job_rows(results), left=1))
    if results.runs or kernels:
        title = f"{results.rows:,} events, median of {results.rounds} rounds"
        console.print(_table(title, RATIO_COLUMNS, ratio_rows(results, kernels), left=2))
        console.print(_table("per job: median time, peak memory", JOB_COLUMNS, job_rows(results), left=2))
    if results.runs or comparisons:
        console.print(_table("engines", ENGINE_COLUMNS, engine_rows(results), left=3))
    for line in results.disagreements:
        console.print(f"results differ: {line}", markup=False)
    for name, reason in results.failed.items():
        console.print(f"{name} was not measured: {reason}", markup=False)


def _split(comparisons: Sequence[Comparison]) -> tuple[list[Comparison], list[Comparison]]:
    """Return the comparisons of whole jobs, and the others."""
    return [comparison for comparison in comparisons if comparison.section is Section.JOB], [
        comparison for comparison in comparisons if comparison.section is not Section.JOB
    ]


def _table(title: str, columns: Row, rows: Sequence[Row], left: int) -> Table:
    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(all_results: Sequence[Results], comparisons: Sequence[Comparison]) -> str:
    """Return all results as Markdown for the page."""
    return "\n\n".join(
        _markdown(results, [comparison for comparison in comparisons if ratio(comparison, results)])
        for results in all_results
    )


def _markdown(results: Results, comparisons: Sequence[Comparison]) -> str:
    jobs, kernels = _split(comparisons)
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    rounds = f", median of {results.rounds} rounds"
    parts: list[str] = []
    if results.jobs:
        parts += ["### Whole jobs", f"From start to exit of a process{rounds}. {_when(results)}"]
        parts += [_markdown_table(RATIO_COLUMNS, ratio_rows(results, jobs), left=2)]
        parts += [_markdown_table(WHOLE_JOB_COLUMNS, whole_job_rows(results), left=1)]
    if results.runs:
        parts += ["### Kernels", f"{results.rows:,} events, files in arrival order{rounds}. {_when(results)}"]
        parts += [_markdown_table(RATIO_COLUMNS, ratio_rows(results, kernels), left=2)]
    if results.costs:
        parts += ["### Growth", f"{_GROWTH[0].upper()}{_GROWTH[1:]}. {_when(results)}"]
        parts += [_markdown_table(growth_columns(results), growth_rows(results), left=1)]
    parts += [f"{name} was not measured: {reason}" for name, reason in results.failed.items()]
    return "\n\n".join([*parts, f"The machine: {machine}."])


def _when(results: Results) -> str:
    return f"Measured on {results.measured_on}."


def _markdown_table(columns: Row, rows: Sequence[Row], left: int) -> str:
    rule = ["---" if number < left else "--:" for number in range(len(columns))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rule, *rows))


def with_figures(page: str, figures: str) -> str:
    """Return the page with new figures.

    Raises:
        ValueError: if the page has no place for the figures, or more than one.
    """
    if page.count(_BEGIN) != 1 or page.count(_END) != 1:
        msg = f"the page must have {_BEGIN} and {_END} once each"
        raise ValueError(msg)
    between = re.compile(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", re.DOTALL)
    return between.sub(lambda _: f"{_BEGIN}\n{figures}\n{_END}", page)


def write_page(page: Path, all_results: Sequence[Results], comparisons: Sequence[Comparison]) -> None:
    """Write the figures into the page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(with_figures(text, markdown(all_results, comparisons)), encoding="utf-8")
