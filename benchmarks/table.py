"""The tables for a terminal and for the page: first the ratios, then the time and memory of each job."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparisons import Asked, Comparison, Ratio, Section, is_met, ratio
from benchmarks.growth import bar_of
from benchmarks.one_day import PUBLISHED_S, REPLAY_S, by_round, medians, published_s, replay_s
from benchmarks.results import Cost, Results, Runs

RATIO_COLUMNS = ("job", "against", "ratio", "in the rounds", "asked", "met")
ENGINE_COLUMNS = ("engine", "reads", "settings")
FIGURE_COLUMNS = ("without Spark", "took", "asked", "met")
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
DAY_COLUMNS = ("one day in Airflow", "seconds", "in the rounds", "asked", "met")
TASK_COLUMNS = ("task", "queued", "started", "ended", "start to end", "in the rounds")
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


def figure_rows(results: Results) -> list[Row]:
    """Return one row of text per figure of plans and publications."""
    verdicts = {True: "yes", False: "no", None: _UNKNOWN}
    return [
        (
            figure.what,
            f"{figure.value:,.2f} {figure.unit}",
            _UNKNOWN if figure.limit is None else f"at most {figure.limit:g} {figure.unit}",
            verdicts[figure.is_met],
        )
        for figure in results.figures
    ]


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


def day_rows(results: Results) -> list[Row]:
    """Return one row of text per bar of a day in Airflow."""
    rounds = by_round(results.tasks)
    return [
        _day_row("from the trigger to the end of publish", [published_s(times) for times in rounds], PUBLISHED_S),
        _day_row("the task replay", [replay_s(times) for times in rounds], REPLAY_S),
    ]


def _day_row(what: str, seconds: Sequence[float], limit: float) -> Row:
    median, is_met = statistics.median(seconds), statistics.median(seconds) <= limit
    return (what, f"{median:.1f} s", _spread(seconds), f"at most {limit:g} s", "yes" if is_met else "no")


def task_rows(results: Results) -> list[Row]:
    """Return one row of text per task: medians of the seconds after the trigger."""
    durations = {
        task.task: [entry.took_s for entry in results.tasks if entry.task == task.task] for task in results.tasks
    }
    return [
        (
            entry.task,
            *(f"{value:.1f}" for value in (entry.queued_s, entry.started_s, entry.ended_s, entry.took_s)),
            _spread(durations[entry.task]),
        )
        for entry in medians(results.tasks)
    ]


def _spread(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f}"


def shown(results: Results, comparisons: Sequence[Comparison], console: Console) -> None:
    """Print the tables, the differences of results, and the failures."""
    if results.figures:
        console.print(_table("at size, without Spark", FIGURE_COLUMNS, figure_rows(results), left=1))
    if results.costs:
        console.print(_table(_GROWTH, growth_columns(results), growth_rows(results), left=1))
    if results.tasks:
        console.print(_table(_day_title(results), DAY_COLUMNS, day_rows(results), left=1))
        console.print(_table("seconds after the trigger, median", TASK_COLUMNS, task_rows(results), left=1))
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
    machine = [f"* {name}: {value}" for name, value in results.machine.items()]
    jobs, kernels = _split(comparisons)
    sections = [
        *(_whole_jobs(results, jobs) if results.jobs else ()),
        *(_kernels(results, kernels) if results.runs else ()),
        *(_one_day(results) if results.tasks else ()),
    ]
    parts = [
        *(sections or [f"Measured on {results.measured_on}."]),
        *([_markdown_table(ENGINE_COLUMNS, engines, left=3)] if (engines := engine_rows(results)) else ()),
        *(f"{name} was not measured: {reason}" for name, reason in results.failed.items()),
        *_figures(results),
        *_growth(results),
        "The machine:\n\n" + "\n".join(machine),
    ]
    return "\n\n".join(parts)


def _whole_jobs(results: Results, comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield "### Whole jobs"
    yield f"Measured on {results.measured_on}: from start to exit of a process, median of {results.rounds} rounds."
    yield _markdown_table(RATIO_COLUMNS, ratio_rows(results, comparisons), left=2)
    yield "Per job: median time, processor time of all its processes, peak memory over the rounds."
    yield _markdown_table(WHOLE_JOB_COLUMNS, whole_job_rows(results), left=1)


def _kernels(results: Results, comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield f"### Kernels over {results.rows:,} events, files in arrival order"
    yield f"Measured on {results.measured_on}: {results.rows:,} events, median of {results.rounds} rounds."
    yield _markdown_table(RATIO_COLUMNS, ratio_rows(results, comparisons), left=2)
    yield "Per job: median time, peak memory over the rounds."
    yield _markdown_table(JOB_COLUMNS, job_rows(results), left=2)


def _day_title(results: Results) -> str:
    loads = [entry.load for entry in results.tasks]
    return f"median of {len(by_round(results.tasks))} rounds, load average before them {_spread(loads)}"


def _one_day(results: Results) -> Iterator[str]:
    yield "### One day in Airflow"
    yield f"Measured on {results.measured_on}: {_day_title(results)}."
    yield _markdown_table(DAY_COLUMNS, day_rows(results), left=1)
    yield "Per task: seconds after the trigger, median."
    yield _markdown_table(TASK_COLUMNS, task_rows(results), left=1)


def _figures(results: Results) -> list[str]:
    if not results.figures:
        return []
    return ["Planning and publishing at size:", _markdown_table(FIGURE_COLUMNS, figure_rows(results), left=1)]


def _growth(results: Results) -> list[str]:
    if not results.costs:
        return []
    title = f"{_GROWTH[0].upper()}{_GROWTH[1:]}:"
    return [title, _markdown_table(growth_columns(results), growth_rows(results), left=1)]


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
