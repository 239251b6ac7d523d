"""Build the lists of all datasets and of all runs, as pages and as CSV files, filtered by the address.

A page says what is missing if the catalog does not respond; a CSV file is complete, or there is an error.
"""

from __future__ import annotations

from collections.abc import Collection

from backstream.lake.ledger import RunRow
from backstream.pages import csv_files, datasets
from backstream.pages.checks import RUNS_SHOWN, CheckHistory, check_histories
from backstream.pages.csv_files import CsvFile
from backstream.pages.datasets import Dataset
from backstream.pages.days import DayStatus
from backstream.pages.filters import NOBODY, Filter, cut_page
from backstream.pages.render import Page, page, time_left_text
from backstream.pages.runs import list_all_runs
from backstream.pages.store import PageStore
from backstream.pages.views import unknown_dataset_page
from backstream.runs.dag_names import BACKFILL
from backstream.runs.results import Verdict
from backstream.runs.status import RunStatus
from backstream.workflow.run_state import RunState

_SEVERITY_ORDER = (DayStatus.FAILED, DayStatus.STALE, DayStatus.FAIL, DayStatus.MISSING)
_RUNS_SHOWN, _DATASETS_SHOWN = 50, 25
_ALL = Filter()


def overview_page(records: PageStore, dag_ids: Collection[str], chosen: Filter = _ALL) -> Page:
    """Return the page of the datasets that the filter selects, those that need attention first."""
    loaded = datasets.load_datasets(records, dag_ids)
    found = _select_datasets(loaded, chosen)
    sheet = cut_page(found, chosen.page, _DATASETS_SHOWN)
    return page(
        "overview.html",
        title="Backfills",
        tab="overview",
        chosen=chosen,
        sheet=sheet,
        datasets=sheet.items,
        is_empty=not loaded,
        left=time_left_text,
        reload=any(dataset.running for dataset in sheet.items),
        statuses=DayStatus,
        listed=[status for status in DayStatus if any(dataset.count(status) for dataset in loaded)],
        notice=records.notice,
    )


def datasets_csv(records: PageStore, dag_ids: Collection[str], chosen: Filter) -> CsvFile:
    """Return the datasets that the filter selects as CSV."""
    records.require_complete()
    return csv_files.datasets_file(_select_datasets(datasets.load_datasets(records, dag_ids), chosen))


def runs_page(
    records: PageStore, dag_ids: Collection[str], dag_id: str | None = None, chosen: Filter = _ALL
) -> Page:
    """Return the page of the runs of all datasets, or of one, that the filter selects."""
    found = datasets.find_dataset(records, dag_id) if dag_id else None
    if dag_id and found is None:
        return unknown_dataset_page(dag_id, records.notice)
    runs = _list_runs(records, dag_ids, found)
    selected = [run for run in runs if chosen.has_run(run)]
    sheet = cut_page(selected, chosen.page, _RUNS_SHOWN)
    return page(
        "runs.html",
        title=f"{found.name}: runs" if found else "Runs",
        dataset=found,
        tab="runs",
        chosen=chosen,
        sheet=sheet,
        runs=sheet.items,
        is_empty=not runs,
        statuses=_statuses(runs),
        people=sorted({run.by or NOBODY for run in runs}),
        has_report=lambda run: records.home.run(run.dataset, run.run_id).report.is_file(),
        under_way=found.running if found else [],
        awaiting=[run for run in runs if run.state is RunStatus.AWAITING_APPROVAL],
        left=time_left_text,
        reload=bool(found and found.running),
        notice=records.notice,
    )


def runs_csv(records: PageStore, dag_ids: Collection[str], dag_id: str | None, chosen: Filter) -> CsvFile | None:
    """Return the runs that the filter selects as CSV; None for an unknown dataset."""
    records.require_complete()
    found = datasets.find_dataset(records, dag_id) if dag_id else None
    if dag_id and found is None:
        return None
    return csv_files.runs_file(run for run in _list_runs(records, dag_ids, found) if chosen.has_run(run))


def days_csv(records: PageStore, dag_id: str, chosen: Filter) -> CsvFile | None:
    """Return the days of a dataset that the filter selects as CSV; None for an unknown dataset."""
    records.require_complete()
    found = datasets.find_dataset(records, dag_id)
    return csv_files.days_file(found.name, filter(chosen.has_day, found.days)) if found else None


def checks_page(records: PageStore, dag_id: str) -> Page:
    """Return the page with the results of each check by run."""
    found = datasets.find_dataset(records, dag_id)
    if found is None:
        return unknown_dataset_page(dag_id, records.notice)
    runs, history = _load_checks(records, found)
    return page(
        "checks.html",
        title=f"{found.name}: checks",
        dataset=found,
        tab="checks",
        runs=runs,
        history=history,
        notice=records.notice,
    )


def checks_csv(records: PageStore, dag_id: str) -> CsvFile | None:
    """Return the results of the checks of a dataset as CSV; None for an unknown dataset."""
    records.require_complete()
    found = datasets.find_dataset(records, dag_id)
    return csv_files.checks_file(found.name, _load_checks(records, found)[1]) if found else None


def _select_datasets(loaded: Collection[Dataset], chosen: Filter) -> list[Dataset]:
    found = [dataset for dataset in loaded if _has_dataset(chosen, dataset)]
    return sorted(
        found, key=lambda dataset: (*(-dataset.count(status) for status in _SEVERITY_ORDER), dataset.name)
    )


def _has_dataset(chosen: Filter, dataset: Dataset) -> bool:
    """Return whether the filter selects a dataset: a text in its name or description, and a status of its days."""
    description = dataset.defined.description if dataset.defined else ""
    has_status = not chosen.status or any(
        status == chosen.status and dataset.count(status) for status in DayStatus
    )
    return has_status and chosen.has_text(dataset.name, description)


def _list_runs(records: PageStore, dag_ids: Collection[str], found: Dataset | None) -> list[RunState]:
    """Return the runs of one dataset, or of all whose `backfill_` DAG the user may read, newest first."""
    backfills = {dag_id for dag_id in dag_ids if dag_id.startswith(f"{BACKFILL}_")}
    return list_all_runs(records.home, [found.dag_id] if found else sorted(backfills), records.rows)


def _statuses(runs: Collection[RunState]) -> list[str]:
    """Return the statuses and verdicts of runs in their order, for the filter."""
    present = {run.state.value for run in runs} | {run.verdict for run in runs}
    return [value for value in (*map(str, RunStatus), *map(str, Verdict)) if value in present]


def _load_checks(records: PageStore, found: Dataset) -> tuple[list[RunRow], list[CheckHistory]]:
    """Return the newest checked runs of a dataset and the history of each check; other runs are not read."""
    newest = [run.run_id for run in found.runs if run.verdict][:RUNS_SHOWN]
    return check_histories(records.checks(found.name, frozenset(newest)), found.runs)
