"""Find what is wrong with the values of the form, by field, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping

from backstream.definition.loader import OVERRIDE_FIELDS, find_override_problems
from backstream.definition.model import Definition
from backstream.errors import PlanError, RangeError, SpecError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval, require_whole_days
from backstream.pages.definitions import DefinitionEntry
from backstream.pages.reprocess import RANGE, ReprocessForm, requested_days
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.workflow.allowed_ranges import require_possible_range

_NO_CHOICE = ("", "as defined")
FORM = ""
"""The key of a problem that belongs to no field of the form."""
_ADDRESS = ("dag_id", "preview")


def find_problems(
    form: ReprocessForm, typed: Mapping[str, str], entry: DefinitionEntry | None, home: Home
) -> dict[str, str]:
    """Return the problem of each field; empty if the run can be started. Files of the source may be read.

    Args:
        form: the parameters of the DAG.
        typed: the entered values.
        entry: the definition; None if it was removed.
        home: the folder with the data.
    """
    problems = {**_unknown_fields(form, typed), **_range_problems(typed)}
    if "reason" in form.schemas and not typed.get("reason", "").strip():
        problems["reason"] = "a reason is required: the run stores it"
    problems |= form.value_problems(typed)
    definition = entry.definition if entry else None
    if entry is None or definition is None:
        return problems
    problems |= _override_problems(definition, typed)
    if not problems.keys() & {*RANGE, "time_zone"}:
        try:
            require_possible_range(entry.path, requested_days(typed), home)
        except RangeError as error:
            problems[error.end] = str(error)
        except (SpecError, PlanError) as error:
            problems[FORM] = str(error)
    return problems


def _chosen_mode(definition: Definition, typed: Mapping[str, str]) -> Mode:
    """Return the mode that a run with these values would have; that of the definition for an unknown one."""
    mode = typed.get("mode", "")
    return Mode(mode) if mode in set(Mode) else definition.backfill.mode


def _unknown_fields(form: ReprocessForm, typed: Mapping[str, str]) -> dict[str, str]:
    unknown = [name for name in typed if name not in form.schemas and name not in _ADDRESS]
    if not unknown:
        return {}
    return {FORM: f"{unknown[0]} is not a field of this form, got {typed[unknown[0]]!r}"}


def _range_problems(typed: Mapping[str, str]) -> dict[str, str]:
    """Return the error of each end, or that of the range at its end."""
    if typed.get("time_zone", "").strip():
        return _problem_of(typed, "time_zone")
    problems = {}
    for name in RANGE:
        try:
            require_whole_days(instant_ms(typed.get(name, ""), name), name)
        except (SpecError, PlanError) as error:
            problems[name] = str(error)
    return problems or _problem_of(typed, "until")


def _problem_of(typed: Mapping[str, str], field: str) -> dict[str, str]:
    try:
        requested_days(typed)
    except (SpecError, PlanError) as error:
        return {field: str(error)}
    return {}


def _override_problems(definition: Definition, typed: Mapping[str, str]) -> dict[str, str]:
    values = {name: typed.get(name, "").strip() for name in OVERRIDE_FIELDS}
    given = {name: value for name, value in values.items() if value not in _NO_CHOICE}
    return find_override_problems(definition, given, _chosen_mode(definition, typed))


def range_of(typed: Mapping[str, str]) -> Interval | None:
    """Return the UTC days of the entered range; None if it is incomplete or invalid."""
    return None if _range_problems(typed) else requested_days(typed)
