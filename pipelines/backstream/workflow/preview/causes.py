"""Find the causes of changed rows: late data, another definition, other code, or another lateness policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backstream import __version__
from backstream.definition.changed_keys import ChangedKeys
from backstream.lake.published_windows import load_published_windows
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.store import Runs


class ChangeCause(StrEnum):
    """A cause of a changed row."""

    NOT_PUBLISHED = "not published yet"
    LATE_DATA = "late data"
    DEFINITION = "definition"
    CODE = "code"
    LATENESS_POLICY = "lateness policy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The differences between a published run and a new plan, by cause, each with its details."""

    details: Mapping[ChangeCause, tuple[str, ...]]

    def causes_of(self, *, has_new_records: bool) -> tuple[ChangeCause, ...]:
        """Return the causes of a changed row.

        Args:
            has_new_records: whether the row has records of files that the run did not read.
        """
        others = [cause for cause in self.details if cause is not ChangeCause.LATE_DATA]
        if has_new_records:
            return (ChangeCause.LATE_DATA, *others)
        # Removed files and watermarks can change rows without new records.
        return tuple(others) or tuple(self.details) or (ChangeCause.UNKNOWN,)


def find_run_changes(home: Home, plan: Plan) -> dict[str, RunChanges]:
    """Return the changes since each run that published rows in the range of a plan, by run id.

    A run whose plan was removed has no entry.
    """
    runs_by_day = load_published_windows(home, plan.dataset).runs_by_day()
    run_ids = {
        run_id
        for day_ms, runs in runs_by_day.items()
        if plan.since_ms <= day_ms < plan.until_ms
        for run_id in runs
    }
    return {run_id: changes for run_id in sorted(run_ids) if (changes := _changes_since(home, plan, run_id))}


def list_new_files(home: Home, plan: Plan, run_ids: Iterable[str]) -> list[str]:
    """Return the paths of the plan's files that none of some runs has read as they are now."""
    known = {
        _identity(file)
        for run_id in run_ids
        if (old := Runs(home).plan_or_none(plan.dataset, run_id))
        for file in old.inputs
    }
    return [file.path for file in plan.inputs if _identity(file) not in known]


def _changes_since(home: Home, plan: Plan, run_id: str) -> RunChanges | None:
    old = Runs(home).plan_or_none(plan.dataset, run_id)
    if old is None:
        return None
    details: dict[ChangeCause, tuple[str, ...]] = {}
    files = tuple(_list_changed_files(old, plan))
    if files:
        details[ChangeCause.LATE_DATA] = files
    changed = ChangedKeys.between(old.definition, plan.definition)
    policy = [*changed.policy]
    if old.mode is not plan.mode:
        policy.append(f"{old.mode} instead of {plan.mode}")
    code = [target for target in sorted({*old.code, *plan.code}) if old.code.get(target) != plan.code.get(target)]
    if old.planned_by_version != __version__:
        code.append(f"backstream {old.planned_by_version}")
    for cause, found in (
        (ChangeCause.DEFINITION, changed.rules),
        (ChangeCause.CODE, code),
        (ChangeCause.LATENESS_POLICY, policy),
    ):
        if found:
            details[cause] = tuple(found)
    return RunChanges(details)


def _list_changed_files(old: Plan, new: Plan) -> Iterator[str]:
    """Yield the paths of files that were added, changed, or removed."""
    before, after = ({_identity(file) for file in plan.inputs} for plan in (old, new))
    yield from sorted({path for path, *_ in before ^ after})


def _identity(file: Any) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms
