"""Build the page that explains a published row: its records, watermarks, fates, and firings on one time line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from backstream.charts.svg import Frame
from backstream.charts.timelines import Dot, Mark, WindowTimeline, draw_window_timeline
from backstream.errors import BackstreamError, PlanError, SpecError
from backstream.eventtime.instants import MAX_MS, duration_text, epoch_ms, instant_ms, instant_text
from backstream.lake.reader import load_window_rows
from backstream.pages import datasets
from backstream.pages.render import Page, note_page, page, query
from backstream.pages.store import PageStore
from backstream.pages.time_limits import LimitedCalls, NoResponseError
from backstream.pages.views import unknown_dataset_page
from backstream.runs.home import Home
from backstream.runs.store import Runs
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.workflow.explain import explain_window
from backstream.workflow.explanation import (
    Explanation,
    count_record_fates,
    is_replay,
    list_firing_rows,
    list_origins,
    list_record_rows,
    row_text,
    sample_records,
)

_MAX_RECORDS = 200
"""The number of records that the page lists and draws."""
MAX_RECOMPUTED = 200_000
"""The largest number of records of a row that the page recomputes, so that a request ends soon."""
_MAX_ROWS = 200
_NOT_FOUND, _UNAVAILABLE = 404, 503
_LATER = "Open this page again when the catalog responds."
_EXPLANATIONS = LimitedCalls("the recomputation of the row", limit_s=3.0)
"""Beside the limit of the catalog, so that the page responds within five seconds."""
_FRAME = Frame(96, 12, 1_000, 260)


@dataclass(frozen=True, slots=True)
class _ListedRow:
    """A published row of a window; `query` is the address of its explanation."""

    key: str
    record_count: int
    query: str


def explanation_page(records: PageStore, dag_id: str, window: str, keys: Sequence[str]) -> Page:
    """Return the explanation of a row, or the list of the rows of a window if no key is given.

    Args:
        records: the files of the home.
        dag_id: a DAG of the dataset.
        window: the start of the window, or `START/END`.
        keys: a text `NAME=VALUE`, or `NAME` for null, for each key column.
    """
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return unknown_dataset_page(dag_id, records.notice)
    try:
        rows = records.ask_catalog(
            ("rows", found.name, window), partial(_load_rows, records.home, found.name, window)
        )
        if rows is None:
            sentence = "The published rows are not known, because the catalog does not respond."
            return note_page("No explanation", sentence, _LATER, status=_UNAVAILABLE, notice=records.notice)
        names = _key_columns(records.home, found.name, rows)
        if names and not keys:
            return _rows_page(found, window, rows, names, records.notice)
        values = dict(_split(text) for text in keys)
        _require_few_records(rows, values, found.name)
        ask = partial(explain_window, records.home, found.name, window, values)
        explanation = _EXPLANATIONS.call((records.home, found.name, window, *keys), ask)
        return _row_page(found, window, explanation, records.notice)
    except NoResponseError as error:
        hint = f"Use `backstream explain {found.name} --window {window}`, which has no limit."
        return note_page("No explanation", f"{error}.", hint, status=_UNAVAILABLE, notice=records.notice)
    except (BackstreamError, OverflowError) as error:
        sentence, _, hint = str(error).partition("\n\nhint: ")
        return note_page("No explanation", sentence, hint, status=_NOT_FOUND, notice=records.notice)


def _load_rows(home: Home, dataset: str, window: str) -> list[dict[str, Any]]:
    """Return the published rows of a window, or of all windows with its start."""
    start, _, end = window.partition("/")
    rows = load_window_rows(home, dataset, [instant_ms(start, "window")])
    if not end:
        return rows
    end_ms = instant_ms(end, "window")
    return [row for row in rows if epoch_ms(row["window_end"]) == end_ms]


def _key_columns(home: Home, dataset: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the key columns of rows by the plan of their run."""
    if not rows:
        return ()
    plan = Runs(home).plan(dataset, rows[0]["run_id"])
    return tuple(plan.definition["source"]["key"])


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _split(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    if not name:
        msg = f"a key must be NAME=VALUE, or NAME for null, got {text!r}"
        raise SpecError(msg)
    return name, value if separator else None


def _require_few_records(
    rows: Sequence[Mapping[str, Any]], values: Mapping[str, str | None], dataset: str
) -> None:
    """Check that the row of a key does not have more records than a request can recompute.

    Raises:
        PlanError: with the command that explains it.
    """
    own = [row for row in rows if all(_text(row.get(name)) == value for name, value in values.items())]
    count = max((row[RECORD_COUNT] for row in own), default=0)
    if count > MAX_RECOMPUTED:
        msg = (
            f"the row has {count:,} records, more than {MAX_RECOMPUTED:,}\n\n"
            f"hint: use `backstream explain {dataset} --window ...`"
        )
        raise PlanError(msg)


def _rows_page(
    found: datasets.Dataset, window: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], notice: str
) -> Page:
    ordered = sorted(rows, key=lambda row: -row[RECORD_COUNT])
    listed = [_list_row(found.dag_id, row, names) for row in ordered[:_MAX_ROWS]]
    return page(
        "rows.html",
        title=f"{found.name}: rows of {window}",
        dataset=found,
        tab="dataset",
        window=window,
        day=window[:10],
        names=names,
        rows=listed,
        left_out=len(rows) - len(listed),
        notice=notice,
    )


def _list_row(dag_id: str, row: Mapping[str, Any], names: Sequence[str]) -> _ListedRow:
    values = {name: row[name] for name in names}
    key = ", ".join(f"{name} {'null' if value is None else value}" for name, value in values.items())
    window = "/".join(instant_text(epoch_ms(row[name])) for name in ("window_start", "window_end"))
    arguments = [
        ("dag_id", dag_id),
        ("window", window),
        *(("key", name if value is None else f"{name}={value}") for name, value in values.items()),
    ]
    return _ListedRow(key, row[RECORD_COUNT], urlencode(arguments))


def _row_page(found: datasets.Dataset, window: str, explanation: Explanation, notice: str) -> Page:
    target, again = explanation.target.window, explanation.recomputed
    fates = [(fate, count) for fate, count in count_record_fates(explanation).items()]
    timeline = draw_window_timeline(_timeline(explanation), _FRAME)
    return page(
        "explanation.html",
        title=f"{found.name}: {instant_text(target.start_ms)}",
        dataset=found,
        tab="dataset",
        window=window,
        rows_query=query(dag_id=found.dag_id, window=window) if explanation.key else "",
        day=instant_text(target.start_ms)[:10],
        explanation=explanation,
        start_ms=target.start_ms,
        end_ms=target.end_ms,
        row=row_text(explanation),
        fates=fates,
        has_watermarks=is_replay(explanation),
        timeline=timeline if again.records else None,
        records=list(list_record_rows(explanation, _MAX_RECORDS)),
        left_out=max(0, len(again.records) - _MAX_RECORDS),
        firings=list(list_firing_rows(explanation)),
        origins=list(list_origins(explanation)),
        notice=notice,
    )


def _timeline(explanation: Explanation) -> WindowTimeline:
    window, again = explanation.target.window, explanation.recomputed
    marks = [
        Mark(
            firing.at_ms, "run", f"{firing.timing.value.replace('_', ' ')} firing, {firing.record_count:,} records"
        )
        for firing in again.firings
        if firing.at_ms is not None
    ]
    if again.is_removed_at_ms is not None:
        marks.append(Mark(again.is_removed_at_ms, "hard", "state removed"))
    shown = sample_records(again.records, _MAX_RECORDS)
    counts = ", ".join(
        f"{count} {fate.replace('_', ' ')}" for fate, count in count_record_fates(explanation).items()
    )
    lateness_ms = explanation.definition.lateness.allowed if is_replay(explanation) else 0
    return WindowTimeline(
        label=f"Records by arrival and event time: {counts}; {len(again.firings)} firings",
        start_ms=window.start_ms,
        end_ms=window.end_ms,
        kept_until_ms=min(window.end_ms + lateness_ms, MAX_MS),
        dots=[
            Dot(
                each.record.arrival_ms,
                each.record.instant_ms,
                each.fate,
                f"{_words(each.fate)}: event {instant_text(each.record.instant_ms)}, arrived "
                f"{duration_text(each.record.arrival_ms - each.record.instant_ms)} later",
            )
            for each in shown
        ],
        watermarks=[(event.at_ms, event.watermark_ms) for event in again.watermarks],
        marks=marks,
    )


def _words(name: str) -> str:
    return name.replace("_", " ")
