"""Find, list, and load the runs of a home: no other module searches for their folders."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from backstream.errors import BackstreamError, LedgerError, SpecError
from backstream.runs.home import Home, RunFolder
from backstream.runs.plan import Mode, Plan, slug
from backstream.runs.plan_summary import PlanSummary


@dataclass(frozen=True, slots=True)
class Runs:
    """The planned runs of a home. A folder without a plan is no run."""

    home: Home

    def of_dataset(self, dataset: str | None = None) -> list[RunFolder]:
        """Return the folders of the runs of a dataset, by default of all datasets; the newest plan first."""
        parents = _list_children(self._root) if dataset is None else [self._root / dataset]
        folders = [RunFolder(child) for parent in parents for child in _list_children(parent)]
        planned_ns = {folder: time_ns for folder in folders if (time_ns := _modified_ns(folder.plan)) is not None}
        return sorted(planned_ns, key=planned_ns.__getitem__, reverse=True)

    def audited_by_dataset(self, dataset: str | None, known: Collection[tuple[str, str]]) -> dict[str, set[str]]:
        """Return the ids of the audited runs of one or all datasets by dataset, without known runs."""
        parents = _list_children(self._root) if dataset is None else [self._root / dataset]
        found = {
            parent.name: {
                child.name
                for child in _list_children(parent)
                if (parent.name, child.name) not in known and RunFolder(child).audit_result.is_file()
            }
            for parent in parents
        }
        return {name: run_ids for name, run_ids in found.items() if run_ids}

    def of_trigger(self, dataset: str, *triggers: str) -> Iterator[RunFolder]:
        """Yield the folders of the runs of some triggers, such as a Dag run; the newest plan first.

        Different triggers may have the same slug, so the summary of a plan decides.
        """
        slugs = {slug(trigger) for trigger in triggers}
        for folder in self.of_dataset(dataset):
            if folder.path.name.rpartition(".")[0] in slugs and _trigger_of(folder) in triggers:
                yield folder

    def find(self, run_id: str) -> RunFolder | None:
        """Return the folder of a run in any dataset; None if there is none."""
        folders = (RunFolder(parent / run_id) for parent in sorted(_list_children(self._root)))
        return next((folder for folder in folders if folder.path.name == run_id and folder.plan.is_file()), None)

    def plan(self, dataset: str, run_id: str) -> Plan:
        """Return the plan of a run.

        Raises:
            LedgerError: when there is no such run.
            PlanError: when another version wrote its plan, or the content differs from its hash.
        """
        return Plan.read(self.home.run(dataset, run_id).plan)

    def plan_or_none(self, dataset: str, run_id: str) -> Plan | None:
        """Return the plan of a run; None if there is none that this version can read."""
        try:
            return self.plan(dataset, run_id)
        except BackstreamError:
            return None

    def plan_of_id(self, run_id: str) -> Plan:
        """Return the plan of a run in any dataset.

        Raises:
            SpecError: when there is no such run.
            PlanError: when another version wrote its plan, or the content differs from its hash.
        """
        if folder := self.find(run_id):
            return Plan.read(folder.plan)
        count = len(self.of_dataset())
        msg = f"no definition and no run {run_id!r} in {self.home.location}, which has {count:,} runs"
        raise SpecError(msg)

    def newest_plan(
        self, dataset: str, since_ms: int | None = None, until_ms: int | None = None, mode: Mode | None = None
    ) -> Plan:
        """Return the newest plan of a dataset, for a range and a mode if they are given.

        Raises:
            SpecError: when there is none.
        """
        for folder in self.of_dataset(dataset):
            plan = Plan.read(folder.plan)
            has_range = since_ms in (None, plan.since_ms) and until_ms in (None, plan.until_ms)
            if has_range and mode in (None, plan.mode):
                return plan
        of_range = "" if since_ms is None and until_ms is None else " of that range"
        msg = f"no run of {dataset}{of_range} in {self.home.location}"
        raise SpecError(msg)

    @property
    def _root(self) -> Path:
        return self.home.run("", "").path


def _list_children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _modified_ns(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None


def _trigger_of(folder: RunFolder) -> str | None:
    try:
        return PlanSummary.read(folder.summary).triggered_by
    except LedgerError:
        return None
