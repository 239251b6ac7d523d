"""Check the values of the form before anything starts: the problems by field, and the effect of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from backstream.definition.loader import OVERRIDE_FIELDS, find_override_problems, reason_against_mode
from backstream.definition.model import Definition
from backstream.definition.prepared import reason_to_prepare
from backstream.errors import BackstreamError, ContractError, PlanError, RangeError, SpecError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import require_whole_days
from backstream.pages.definitions import DefinitionEntry
from backstream.pages.reprocess import RANGE, ReprocessForm, requested_days
from backstream.pages.store import PageStore
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.workflow.plan.allowed_ranges import require_range
from backstream.workflow.plan.impact import Impact, find_request_impact
from backstream.workflow.plan.plan_request import PlanRequest

_NO_CHOICE = ("", "as defined")
FORM = ""
"""The key of a problem that belongs to no field of the form."""
_ADDRESS = ("dag_id", "preview")


@dataclass(frozen=True, slots=True)
class FormCheck:
    """The problem of each field, and what the run would do; `unknown` is the reason if no effect can be found."""

    problems: Mapping[str, str]
    impact: Impact | None = None
    unknown: str = ""

    def of_given_fields(self, typed: Mapping[str, str]) -> FormCheck:
        """Return the check without the problems of empty fields, which a user may still fill in."""
        given = {name: text for name, text in self.problems.items() if name == FORM or typed.get(name, "").strip()}
        return replace(self, problems=given)


def check_form(
    form: ReprocessForm, typed: Mapping[str, str], entry: DefinitionEntry | None, home: Home
) -> FormCheck:
    """Return the problems of the entered values, and the effect of the run if it would be planned.

    Files of the source may be read; nothing is written.

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
        return FormCheck(problems)
    problems |= _override_problems(definition, typed)
    if problems.keys() - {"reason"}:
        return FormCheck(problems)
    request = _request_of(typed, entry, home)
    try:
        PageStore.from_home(home).require_complete()  # the form must respond although the catalog does not
        return FormCheck(problems, find_request_impact(request))
    except (SpecError, PlanError, ContractError) as error:
        is_final = reason_to_prepare(definition) is None
        refusal: BackstreamError | None = error if is_final else _refuse_before_preparation(definition, request)
        if refusal is not None:
            field = refusal.field if isinstance(refusal, PlanError) else FORM
            return FormCheck({**problems, field: str(refusal)})
        return FormCheck(problems, unknown=str(error).partition("\n")[0])
    except BackstreamError as error:  # e.g., an outage of the catalog, which may end before the run
        return FormCheck(problems, unknown=str(error).partition("\n")[0])


def _refuse_before_preparation(definition: Definition, request: PlanRequest) -> BackstreamError | None:
    """Return the error of a range that is impossible with any files: the task `prepare` of the run adds files."""
    try:
        require_range(definition, request.interval, None, str(request.definition), request.home)
    except RangeError as error:
        return error
    return None


def _request_of(typed: Mapping[str, str], entry: DefinitionEntry, home: Home) -> PlanRequest:
    mode = typed.get("mode", "")
    return PlanRequest(
        entry.path,
        requested_days(typed),
        trigger="form",
        home=home,
        mode=Mode(mode) if mode in set(Mode) else None,
        is_unsealed_allowed=typed.get("allow_unsealed") == "true",
        overrides={OVERRIDE_FIELDS[name]: value for name, value in _given_overrides(typed).items()},
    )


def find_refused_choices(definition: Definition) -> dict[str, dict[str, str]]:
    """Return the choices of each field that no run of the definition can have, with the reason."""
    modes = {mode.value: reason for mode in Mode if (reason := reason_against_mode(definition, mode))}
    return {"mode": modes}


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


def _given_overrides(typed: Mapping[str, str]) -> dict[str, str]:
    values = {name: typed.get(name, "").strip() for name in OVERRIDE_FIELDS}
    return {name: value for name, value in values.items() if value not in _NO_CHOICE}


def _override_problems(definition: Definition, typed: Mapping[str, str]) -> dict[str, str]:
    return find_override_problems(definition, _given_overrides(typed), _chosen_mode(definition, typed))
