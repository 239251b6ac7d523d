"""Convert the arguments of the functions: definitions, ranges, homes, and runs."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from backstream.definition.folder import find_definition
from backstream.definition.loader import load_definition
from backstream.errors import SpecError
from backstream.runs.choices import RunChoices
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.settings import provide_settings
from backstream.runs.store import Runs
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.requested_range import parse_range

RangeEnd = str | date
"""An instant as ISO 8601 text, a `date` (midnight UTC), or a `datetime` with a time zone."""


def api_request(
    choices: RunChoices,
    definition: str | Path,
    ends: tuple[RangeEnd, RangeEnd],
    time_zone: str | None,
    home: str | Path | None,
) -> PlanRequest:
    """Return the request of a notebook for a plan of a range."""
    path, (since, until) = _find_definition_file(definition), ends
    requested = parse_range(instant_text_of(since), instant_text_of(until), time_zone)
    return PlanRequest.of(choices, path, requested, trigger="python", home=open_home(home))


def load_run_plan(run: str | Path | Plan, home: str | Path | None) -> Plan:
    """Return the plan of a run, or of the newest run of a definition."""
    if isinstance(run, Plan):
        return run
    place = open_home(home)
    return find_newest_plan(run, place) or Runs(place).plan_of_id(str(run))


def find_newest_plan(definition: str | Path, home: Home) -> Plan | None:
    """Return the newest plan of a definition, or None when there is no such definition."""
    try:
        path = _find_definition_file(definition)
    except SpecError:
        return None
    return Runs(home).newest_plan(load_definition(path).name)


def instant_text_of(end: RangeEnd) -> str:
    """Return an end of a range as ISO 8601 text."""
    return end if isinstance(end, str) else end.isoformat()


def mode_of(mode: Mode | str | None) -> Mode | None:
    """Return the mode with this name; None for that of the definition."""
    try:
        return None if mode is None else Mode(mode)
    except ValueError:
        msg = f"mode must be {' or '.join(Mode)}, got {mode!r}"
        raise SpecError(msg) from None


def _find_definition_file(definition: str | Path) -> Path:
    """Return the TOML file of a definition, after providing the settings of the project."""
    provide_settings()
    return find_definition(str(definition))


def open_home(home: str | Path | None) -> Home:
    """Return the home of a call, after providing the settings of the project."""
    provide_settings()
    if home is None:
        return Home.from_environment()
    found = Home.from_location(str(home))
    found.fetch()
    return found
