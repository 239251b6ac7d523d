"""What each page shows: records in, a page out. Who may see it was decided before."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from backstream.errors import BackstreamError, PlanError, RangeError, SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms, instant_text
from backstream.pages import checks as histories
from backstream.pages import datasets, days
from backstream.pages.days import DayStatus, runs_covering
from backstream.pages.render import Page, note_page, page, time_left_text
from backstream.pages.reprocess import Airflow, RefusedError, requested_days, started_run_link
from backstream.pages.runs import dataset_of_dag, list_newest_runs
from backstream.pages.store import PageStore
from backstream.pages.watermark import draw_curve, load_curve, parse_delay_ms
from backstream.pages.windows import count_changes_by_run, day_windows, find_newest_audited
from backstream.runs.home import Home
from backstream.workflow.allowed_ranges import find_possible_days, require_possible_range

_GRAVITY = (DayStatus.FAILED, DayStatus.STALE, DayStatus.FAIL, DayStatus.MISSING)
_STRETCHES_SHOWN = 12
BAD_REQUEST, FORBIDDEN, NOT_FOUND = 400, 403, 404


def overview_page(records: PageStore, dag_ids: Collection[str]) -> Page:
    """All datasets, those that need somebody first."""
    found = [datasets.load_dataset(records, name) for name in datasets.list_dataset_names(records, dag_ids)]
    found.sort(key=lambda each: (*(-each.count(status) for status in _GRAVITY), each.name))
    running = any(each.running for each in found)
    return page(
        "overview.html",
        title="Backfills",
        tab="overview",
        found=found,
        left=time_left_text,
        reload=running,
        statuses=DayStatus,
    )


def windows_page(records: PageStore, dag_id: str, *, may_run: bool) -> Page:
    """The days of a dataset over all years."""
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return _unknown(dag_id)
    return page(
        "dataset.html",
        title=f"{found.name}: windows",
        dataset=found,
        tab="dataset",
        years=days.calendar_years(found.days, dag_id),
        counts=[(status, found.count(status)) for status in DayStatus if found.count(status)],
        attention=found.attention[:_STRETCHES_SHOWN],
        more=len(found.attention[_STRETCHES_SHOWN:]),
        last_day=days.last_day(found.days),
        left=time_left_text,
        may_run=may_run,
        reload=bool(found.running),
    )


def day_page(records: PageStore, dag_id: str, text: str, *, may_run: bool) -> Page:
    """One day: its windows, fates, revisions and runs."""
    found = datasets.find_dataset(records, dag_id)
    try:
        day_ms = instant_ms(text, "day") // DAY_MS * DAY_MS
    except (SpecError, OverflowError):
        return note_page("No such day", f"{text!r} is no day such as 2013-02-08.", status=NOT_FOUND)
    shown = found.day(day_ms) if found else None
    if found is None:
        return _unknown(dag_id)
    if shown is None:
        sentence = f"No run of {found.name} covers {text}, nor has it events."
        return note_page("Nothing is known of this day", sentence, status=NOT_FOUND)
    revisions = runs_covering(found.runs, day_ms)
    of_run = shown.run_id or find_newest_audited(records.home, found.name, [row.run_id for row in revisions])
    folder = records.folder(found.name, of_run) if of_run else None
    return page(
        "day.html",
        title=f"{found.name}: {days.day_span(day_ms, day_ms + DAY_MS)}",
        dataset=found,
        tab="dataset",
        day=shown,
        iso=instant_text(day_ms)[:10],
        before=instant_text(day_ms - DAY_MS)[:10] if found.day(day_ms - DAY_MS) else "",
        after=instant_text(day_ms + DAY_MS)[:10] if found.day(day_ms + DAY_MS) else "",
        of_run=of_run,
        windows=day_windows(folder, day_ms) if folder else None,
        revisions=revisions,
        changes=count_changes_by_run(records.home, found.name, day_ms),
        may_run=may_run,
    )


def watermark_page(records: PageStore, dag_id: str, delay: str) -> Page:
    """What every delay of the watermark would lose."""
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return _unknown(dag_id)
    title = f"{found.name}: watermark"
    content: dict[str, Any] = {"dataset": found, "tab": "watermark", "title": title, "typed": delay}
    try:
        curve = load_curve(records.home, found.name)
    except BackstreamError as error:
        return page("watermark.html", **content, curve=None, asked=None, drawn=None, problem=str(error))
    asked_ms = parse_delay_ms(delay) if delay else None
    problem = (
        "" if not delay or asked_ms is not None else f'a delay is written such as "45m" or "1h30m", got {delay!r}'
    )
    asked = curve.at(asked_ms, "asked") if curve and asked_ms is not None else None
    lines = draw_curve(curve, asked) if curve else None
    return page("watermark.html", **content, curve=curve, asked=asked, drawn=lines, problem=problem)


def checks_page(records: PageStore, dag_id: str) -> Page:
    """What each check found, run after run."""
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return _unknown(dag_id)
    shown, history = histories.check_histories(records.checks(found.name), found.runs)
    title = f"{found.name}: checks"
    return page("checks.html", title=title, dataset=found, tab="checks", runs=shown, history=history)


def runs_page(records: PageStore, dag_ids: Collection[str], dag_id: str | None) -> Page:
    """The newest runs, of all datasets or of one."""
    found = datasets.find_dataset(records, dag_id) if dag_id else None
    if dag_id and found is None:
        return _unknown(dag_id)
    of_dags = {found.dag_id} if found else set(dag_ids)
    listed = list_newest_runs(records.home, of_dags)
    return page(
        "runs.html",
        title=f"{found.name}: runs" if found else "Runs",
        dataset=found,
        tab="runs",
        runs=listed,
        under_way=found.running if found else [],
        left=time_left_text,
        reload=bool(found and found.running),
    )


def refuse_run_page(dag_id: str) -> Page:
    """For those who may look and not act."""
    sentence = f"You may look at {dataset_of_dag(dag_id) or dag_id}, but not start runs of it."
    return note_page(
        "Not allowed", sentence, "Whoever administrates Airflow can let you trigger its DAG.", status=FORBIDDEN
    )


async def form(
    dag_id: str, airflow: Airflow, typed: Mapping[str, str], problem: Exception | str = "", status: int = 200
) -> Page:
    """The form that has a range computed again; what is wrong with an end of the range is said beside it."""
    name = dataset_of_dag(dag_id)
    if name is None:
        return _unknown(dag_id)
    try:
        asked = await airflow.form(name)
    except RefusedError as error:
        return note_page(
            "No form", f"Airflow shows no DAG that could reprocess {name}.", str(error), "error", error.status
        )
    if typed.get("since") and not typed.get("until"):
        typed = {**typed, "until": started_run_link(typed["since"])}
    defined = datasets.find_definition_entry(name)
    days = find_possible_days(defined.definition) if defined and defined.definition else None
    fields = [
        replace(each, problem=str(problem))
        if isinstance(problem, RangeError) and each.name == problem.end
        else each
        for each in asked.fields(typed, days)
    ]
    return page(
        "reprocess.html",
        status,
        title=f"{name}: reprocess",
        dataset=_named(name, dag_id),
        tab="reprocess",
        asked=asked,
        first=[field for field in fields if field.is_first],
        rest=[field for field in fields if not field.is_first],
        problem="" if isinstance(problem, RangeError) else str(problem),
    )


async def started_page(dag_id: str, airflow: Airflow, typed: Mapping[str, str], home: Home) -> Page:
    """Start the run that was asked for; what is wrong with it is said in the form, which keeps what was typed."""
    name = dataset_of_dag(dag_id)
    if name is None:
        return _unknown(dag_id)
    try:
        asked = await airflow.form(name)
        conf = asked.conf(typed)
        if (defined := datasets.find_definition_entry(name)) and defined.definition:
            # In a thread of its own: it may look at the files of the source.
            await to_thread(require_possible_range, defined.path, requested_days(typed), home)
        run_id = await airflow.started(asked.dag_id, conf)
    except (SpecError, PlanError) as error:
        return await form(dag_id, airflow, typed, error, BAD_REQUEST)
    except RefusedError as error:
        return await form(dag_id, airflow, typed, f"Airflow did not start it: {error}", error.status)
    return page(
        "started.html",
        title=f"{name}: started",
        dataset=_named(name, dag_id),
        tab="reprocess",
        since=typed["since"],
        until=typed["until"],
        run_id=run_id,
        started_dag_id=asked.dag_id,
    )


def _named(name: str, dag_id: str) -> Mapping[str, str]:
    """As much of a dataset as the head of a page needs."""
    return {"name": name, "dag_id": dag_id}


def _unknown(dag_id: str) -> Page:
    return note_page(
        "Not a dataset of backstream",
        f"DAG {dag_id} is not made from a definition, or its definition is gone and it never ran.",
        "The pages Windows, Watermark and Checks are about DAGs called backfill_<dataset> and their siblings.",
        status=NOT_FOUND,
    )
