"""List runs from their folders, and find the report of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backstream.errors import LedgerError
from backstream.eventtime.intervals import Interval
from backstream.pages.store import cached_by_mtime
from backstream.runs.home import Home, RunFolder, load_json

BACKFILL, REPROCESS = "backfill_", "reprocess_"
_PREFIXES = (BACKFILL, REPROCESS, "restate_")
_DAG_ID = re.compile(rf"(?:{'|'.join(_PREFIXES)})([a-z][a-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One planned run; `verdict` is empty before the audit, `rows` is None without a publication."""

    dataset: str
    triggered_by: str
    plan_hash: str
    mode: str
    interval: Interval
    planned_at_s: float
    verdict: str
    rows: int | None
    has_report: bool

    @property
    def dag_id(self) -> str:
        """DAG of the run."""
        return BACKFILL + self.dataset


def find_report(home: Home, dag_id: str, trigger: str, plan_hash: str | None = None) -> Path | None:
    """Return the report of a Dag run, of the plan with that hash or of its newest plan; None without a report.

    Values of a request are compared with file contents and are never part of a path.
    """
    for folder in _list_folders(home, dag_id):
        plan = _load_summary(folder.summary)
        if plan.get("triggered_by") == trigger and plan_hash in (None, plan.get("plan_hash")):
            return folder.report if folder.report.is_file() else None
    return None


def list_newest_runs(home: Home, dag_ids: set[str], limit: int = 200) -> list[RunEntry]:
    """Return the runs of these DAGs, newest first."""
    runs = [
        run
        for dag_id in dag_ids
        for folder in _list_folders(home, dag_id)[:limit]
        if (run := _load_run(folder)) is not None
    ]
    return sorted(runs, key=lambda run: run.planned_at_s, reverse=True)[:limit]


def dataset_of_dag(dag_id: str) -> str | None:
    """Return the dataset of a DAG; None for a DAG without a definition."""
    match = _DAG_ID.fullmatch(dag_id)
    return match[1] if match else None


def _list_folders(home: Home, dag_id: str) -> list[RunFolder]:
    """Return the run folders of the dataset of a DAG, newest plan first."""
    name = dataset_of_dag(dag_id)
    runs = home.path / "runs" / name if name else None
    if runs is None or not runs.is_dir():
        return []
    folders = [RunFolder(child) for child in runs.iterdir()]
    planned = [folder for folder in folders if folder.plan.is_file()]
    return sorted(planned, key=lambda folder: folder.plan.stat().st_mtime, reverse=True)


def _load_run(folder: RunFolder) -> RunEntry | None:
    """Return the run in a folder; None if its summary is not readable. The plan itself is not read."""
    plan = _load_summary(folder.summary)
    try:
        interval = Interval(int(plan["since_ms"]), int(plan["until_ms"]))
        names = {name: str(plan[name]) for name in ("dataset", "triggered_by", "plan_hash", "mode")}
    except (KeyError, ValueError):
        return None
    publication = _load_content(folder.publication, "publication")
    return RunEntry(
        **names,
        interval=interval,
        planned_at_s=folder.plan.stat().st_mtime,
        verdict=str(_load_content(folder.audit_result, "verdict").get("verdict", "")),
        rows=int(publication["rows"]) if "rows" in publication else None,
        has_report=folder.report.is_file(),
    )


_SUMMARY_KEYS = ("dataset", "triggered_by", "plan_hash", "mode", "since_ms", "until_ms")


@cached_by_mtime
def _load_summary(summary: Path) -> dict[str, Any]:
    """Return the values of a plan summary that the pages use, to keep the cache small."""
    content = _load_content(summary, "summary of a plan")
    return {name: content[name] for name in _SUMMARY_KEYS if name in content}


def _load_content(path: Path, what: str) -> dict[str, Any]:
    """Return the content of a JSON file; empty if it is not readable, so a page shows the other runs."""
    try:
        return load_json(path, what)
    except LedgerError:
        return {}
