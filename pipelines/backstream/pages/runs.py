"""What the run folders tell: which runs there were, how each was judged, where its report lies."""

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
    """One plan and what became of it; `verdict` is empty before the audit, `rows` None without publication."""

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
        """The DAG whose runs these are."""
        return BACKFILL + self.dataset


def find_report(home: Home, dag_id: str, trigger: str, plan_hash: str | None = None) -> Path | None:
    """The report of a DAG run: of the plan with that hash, else of the newest it made; None without one.

    What comes in from a request is compared with contents and is never part of a path.
    """
    for folder in _folders(home, dag_id):
        plan = _planned(folder.summary)
        if plan.get("triggered_by") == trigger and plan_hash in (None, plan.get("plan_hash")):
            return folder.report if folder.report.is_file() else None
    return None


def list_newest_runs(home: Home, dag_ids: set[str], limit: int = 200) -> list[RunEntry]:
    """The runs of these DAGs, the newest first."""
    found = [
        run for dag_id in dag_ids for folder in _folders(home, dag_id)[:limit] if (run := _run(folder)) is not None
    ]
    return sorted(found, key=lambda run: run.planned_at_s, reverse=True)[:limit]


def dataset_of_dag(dag_id: str) -> str | None:
    """The dataset that a DAG works on; None for a DAG that is not made from a definition."""
    named = _DAG_ID.fullmatch(dag_id)
    return named[1] if named else None


def _folders(home: Home, dag_id: str) -> list[RunFolder]:
    """The run folders of a DAG's dataset, by the time of their plan, the newest first."""
    name = dataset_of_dag(dag_id)
    runs = home.path / "runs" / name if name else None
    if runs is None or not runs.is_dir():
        return []
    folders = [RunFolder(child) for child in runs.iterdir()]
    planned = [folder for folder in folders if folder.plan.is_file()]
    return sorted(planned, key=lambda folder: folder.plan.stat().st_mtime, reverse=True)


def _run(folder: RunFolder) -> RunEntry | None:
    """What became of the plan in a folder; None when its summary cannot be read. The plan itself is not."""
    plan = _planned(folder.summary)
    try:
        interval = Interval(int(plan["since_ms"]), int(plan["until_ms"]))
        names = {name: str(plan[name]) for name in ("dataset", "triggered_by", "plan_hash", "mode")}
    except (KeyError, ValueError):
        return None
    published = _content(folder.publication, "publication")
    return RunEntry(
        **names,
        interval=interval,
        planned_at_s=folder.plan.stat().st_mtime,
        verdict=str(_content(folder.audit_result, "verdict").get("verdict", "")),
        rows=int(published["rows"]) if "rows" in published else None,
        has_report=folder.report.is_file(),
    )


_WORDS = ("dataset", "triggered_by", "plan_hash", "mode", "since_ms", "until_ms")


@cached_by_mtime
def _planned(summary: Path) -> dict[str, Any]:
    """The few words of a plan's summary that are asked for."""
    content = _content(summary, "summary of a plan")
    return {name: content[name] for name in _WORDS if name in content}


def _content(path: Path, what: str) -> dict[str, Any]:
    """What the file says; nothing when it is not there or cannot be read: a page shows the other runs."""
    try:
        return load_json(path, what)
    except LedgerError:
        return {}
