"""Build the pages. The routes check permissions before they call these functions."""

from __future__ import annotations

import calendar
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from backstream.charts.band_chart import draw_band
from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms, instant_text, utc_datetime
from backstream.pages import datasets, days
from backstream.pages.airflow import Airflow, DagRun, RejectedError
from backstream.pages.day_story import list_day_events
from backstream.pages.days import CalendarDay, DayStatus, describe_day, runs_covering
from backstream.pages.definitions import DefinitionEntry, find_definition_entry
from backstream.pages.filters import Filter
from backstream.pages.form_check import FORM, FormCheck, check_form, find_refused_choices
from backstream.pages.job_batches import load_job_watermarks
from backstream.pages.render import Page, note_page, page, time_left_text
from backstream.pages.reprocess import RANGE, ReprocessForm, next_day
from backstream.pages.runs import RunAddress, page_head
from backstream.pages.store import PageStore
from backstream.pages.watermark import draw_curve, draw_holders, load_curve, parse_delay_ms
from backstream.pages.windows import count_changes_by_run, day_windows, find_newest_audited, load_recent_windows
from backstream.runs.dag_names import dataset_of_dag
from backstream.runs.home import Home
from backstream.workflow.plan.allowed_ranges import find_possible_days

_MAX_RANGES = 12
_ALL = Filter()
_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND = 400, 403, 404
_LINK = Markup('<td><a class="day s-{}" href="{}&amp;day={}" title="{}"></a></td>')
_NO_DAY = Markup("<td></td>")
_MAX_MONTH_DAYS = 31


def windows_page(records: PageStore, dag_id: str, chosen: Filter = _ALL, *, may_run: bool) -> Page:
    """Return the page of a dataset with the calendar of the days that the filter selects."""
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return unknown_dataset_page(dag_id, records.notice)
    shown = [day for day in found.days if chosen.has_day(day)]
    ranges = [item for item in found.attention if chosen.has_range(item)]
    return page(
        "dataset.html",
        title=f"{found.name}: windows",
        dataset=found,
        tab="dataset",
        chosen=chosen,
        shown=len(shown),
        years=calendar_years(shown, dag_id),
        counts=[(status, found.count(status)) for status in DayStatus if found.count(status)],
        attention=ranges[:_MAX_RANGES],
        more=len(ranges[_MAX_RANGES:]),
        left=time_left_text,
        band=draw_band(load_recent_windows(records, found.name, shown)),
        may_run=may_run,
        reload=bool(found.running),
        notice=records.notice,
    )


def day_page(records: PageStore, dag_id: str, text: str, *, may_run: bool) -> Page:
    """Return the page of one day with its story, its windows, and their fates."""
    found = datasets.find_dataset(records, dag_id)
    try:
        day_ms = instant_ms(text, "day") // DAY_MS * DAY_MS
    except (SpecError, OverflowError):
        return note_page("Invalid day", f"A day has the form 2013-02-08, got {text!r}.", status=_NOT_FOUND)
    shown = found.day(day_ms) if found else None
    if found is None:
        return unknown_dataset_page(dag_id, records.notice)
    if shown is None:
        sentence = f"{found.name} has no runs and no events on {text}. Select a day in the calendar."
        return note_page("No data", sentence, status=_NOT_FOUND, notice=records.notice)
    revisions = runs_covering(found.runs, day_ms)
    of_run = shown.run_id or find_newest_audited(records.home, found.name, [row.run_id for row in revisions])
    folder = records.home.run(found.name, of_run) if of_run else None
    count_changes = partial(count_changes_by_run, records.home, found.name, day_ms)
    changes = records.ask_catalog(("changes", found.name, day_ms), count_changes)
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
        story=list_day_events(records, found, day_ms, revisions, changes),
        may_run=may_run,
        notice=records.notice,
    )


def watermark_page(records: PageStore, dag_id: str, delay: str) -> Page:
    """Return the page with the lost records by watermark delay."""
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return unknown_dataset_page(dag_id, records.notice)
    title = f"{found.name}: watermark"
    content: dict[str, Any] = {
        "dataset": found,
        "tab": "watermark",
        "title": title,
        "typed": delay,
        "job": None,
        "notice": records.notice,
    }
    try:
        curve = load_curve(records.home, found.name)
        definition = found.defined.definition if found.defined else None
        content["job"] = load_job_watermarks(records.home, definition)
    except BackstreamError as error:
        return page("watermark.html", **content, curve=None, selected=None, chart=None, problem=str(error))
    selected_ms = parse_delay_ms(delay) if delay else None
    problem = (
        ""
        if not delay or selected_ms is not None
        else f'the delay must be a duration such as "45m" or "1h30m", got {delay!r}'
    )
    selected = curve.at(selected_ms, "selected") if curve and selected_ms is not None else None
    chart = draw_curve(curve, selected) if curve else None
    holders = draw_holders(curve) if curve else None
    return page(
        "watermark.html",
        **content,
        curve=curve,
        selected=selected,
        chart=chart,
        holders=holders,
        problem=problem,
    )


def refuse_run_page(dag_id: str) -> Page:
    """Return the page for users who can view a dataset but not start its runs."""
    sentence = f"You can view {dataset_of_dag(dag_id) or dag_id}, but you do not have permission to start runs."
    hint = "Ask your Airflow administrator for permission to trigger the DAG."
    return note_page("Not allowed", sentence, hint, status=_FORBIDDEN)


async def form(
    dag_id: str,
    airflow: Airflow,
    typed: Mapping[str, str],
    home: Home,
    check: FormCheck | None = None,
    status: int = 200,
) -> Page:
    """Return the form to reprocess a range, with each problem at its field, and what the run would do.

    Args:
        dag_id: any DAG of the dataset.
        airflow: client of Airflow.
        typed: entered values by name; without a value, the form shows the default.
        home: the folder with the data and the ledger.
        check: result of an attempt to start the run; by default the values are checked as far as they are given.
        status: HTTP status.
    """
    name = dataset_of_dag(dag_id)
    if name is None:
        return unknown_dataset_page(dag_id)
    try:
        dag_form = await airflow.form(name)
    except RejectedError as error:
        found_none = f"Airflow has no DAG to reprocess {name} that you can view."
        return note_page(
            "No form",
            "The form is missing: Airflow does not respond." if error.is_unanswered else found_none,
            str(error),
            "error",
            error.status,
        )
    if typed.get("since") and not typed.get("until"):
        typed = {**typed, "until": next_day(typed["since"])}
    entry = find_definition_entry(name)
    definition = entry.definition if entry else None
    if check is None:
        check = await _check_preview(dag_form, typed, entry, home)
    problems = check.problems
    days = find_possible_days(definition) if definition else None
    refused = find_refused_choices(definition) if definition else {}
    fields = [
        replace(field, problem=problems.get(field.name, ""), refused=refused.get(field.name, {}))
        for field in dag_form.fields(typed, days)
    ]
    shown = {field.name for field in fields}
    return page(
        "reprocess.html",
        status,
        title=f"{name}: reprocess",
        dataset=page_head(name, dag_id),
        tab="reprocess",
        form=dag_form,
        first=[field for field in fields if field.is_first],
        rest=[field for field in fields if not field.is_first],
        is_rest_open=any(field.problem for field in fields if not field.is_first),
        problem="\n".join(text for name, text in problems.items() if name not in shown),
        impact=check.impact,
        unknown=check.unknown,
        defined_mode=definition.backfill.mode if definition else "",
        notice="",  # the effect of the run says it
    )


async def started_page(dag_id: str, airflow: Airflow, typed: Mapping[str, str], home: Home) -> Page:
    """Start a run and return its page; on an error, return the form with the entered values."""
    name = dataset_of_dag(dag_id)
    if name is None:
        return unknown_dataset_page(dag_id)
    try:
        dag_form = await airflow.form(name)
        # In a separate thread, because it can read files of the source.
        check = await to_thread(check_form, dag_form, typed, find_definition_entry(name), home)
        if check.problems:
            return await form(dag_id, airflow, typed, home, check, _BAD_REQUEST)
        run_id = await airflow.start_run(dag_form.dag_id, dag_form.conf(typed))
    except RejectedError as error:
        check = FormCheck({FORM: error.describe("start the run")})
        return await form(dag_id, airflow, typed, home, check, error.status)
    return page(
        "started.html",
        title=f"{name}: started",
        dataset=page_head(name, dag_id),
        tab="reprocess",
        since=typed["since"],
        until=typed["until"],
        is_dry_run=typed.get("dry_run") == "true",
        run=RunAddress(dag_form.dag_id, run_id),
        run_address=DagRun(dag_form.dag_id, run_id, "").address,
        notice="",
    )


async def _check_preview(
    dag_form: ReprocessForm, typed: Mapping[str, str], entry: DefinitionEntry | None, home: Home
) -> FormCheck:
    """Return the check of values before a start; without a range, there is nothing to check yet."""
    is_wanted = "preview" in typed
    if not is_wanted and not all(typed.get(name) for name in RANGE):
        return FormCheck({})
    check = await to_thread(check_form, dag_form, typed, entry, home)
    return check if is_wanted else check.of_given_fields(typed)


def unknown_dataset_page(dag_id: str, notice: str = "") -> Page:
    """Return the page for a DAG without a dataset."""
    return note_page(
        "Unknown dataset",
        f"DAG {dag_id} has no definition and no recorded runs.",
        "Open a DAG called backfill_<dataset>, restate_<dataset>, or reprocess_<dataset>.",
        status=_NOT_FOUND,
        notice=notice,
    )


@dataclass(frozen=True, slots=True)
class Month:
    """A row of the calendar: name and 31 cells."""

    name: str
    cells: Markup


@dataclass(frozen=True, slots=True)
class Year:
    """A year of the calendar."""

    year: int
    months: tuple[Month, ...]


def calendar_years(calendar_days: Sequence[CalendarDay], dag_id: str) -> list[Year]:
    """Return the calendar, newest year first; years without days are omitted."""
    base = escape("day?" + urlencode({"dag_id": dag_id}))
    cells: dict[tuple[int, int], dict[int, Markup]] = {}
    for day in calendar_days:
        at = utc_datetime(day.day_ms)
        iso = f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
        cell = _LINK.format(day.status.value, base, iso, f"{at.day} {at:%b %Y}: {describe_day(day)}")
        cells.setdefault((at.year, at.month), {})[at.day] = cell
    years: dict[int, list[Month]] = {}
    for (year, month), month_cells in sorted(cells.items()):
        row = Markup("").join(month_cells.get(number, _NO_DAY) for number in range(1, _MAX_MONTH_DAYS + 1))
        years.setdefault(year, []).append(Month(calendar.month_abbr[month], row))
    return [Year(year, tuple(months)) for year, months in sorted(years.items(), reverse=True)]
