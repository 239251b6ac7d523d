"""Reprocess a range: build a form from the parameters of the DAG, so that it always matches what it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range, require_whole_days
from backstream.runs.allowed_ranges import round_to_days

RANGE = ("since", "until")
_FIRST = (*RANGE, "time_zone", "reason", "mode", "dry_run")
"""Parameters that the form always shows; all others are collapsed."""

_DAYS = {"since": "First day of the range", "until": "Day after the last day of the range"}
_KINDS = {"boolean": "checkbox", "integer": "number", "number": "number"}


@dataclass(frozen=True, slots=True)
class FormField:
    """A parameter of the DAG as a form field; `kind` is an input type, `select`, or `area`.

    `least` and `most` are the first and the last possible day; `problem` is the error of the entered value.
    `refused` maps each choice that no run can have to the reason.
    """

    name: str
    title: str
    description: str
    kind: str
    value: str
    is_required: bool
    choices: tuple[str, ...] = ()
    least: str = ""
    most: str = ""
    problem: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_first(self) -> bool:
        """Return whether the form always shows the field."""
        return self.name in _FIRST


@dataclass(frozen=True, slots=True)
class ReprocessForm:
    """Parameters of the DAG that starts runs of a range."""

    dag_id: str
    params: Mapping[str, Mapping[str, Any]]

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """JSON schema of each parameter."""
        return {name: param.get("schema") or {} for name, param in self.params.items()}

    @property
    def defaults(self) -> dict[str, Any]:
        """Default value of each parameter."""
        return {name: param.get("value") for name, param in self.params.items()}

    @property
    def takes_range(self) -> bool:
        """Return whether the DAG has range parameters."""
        return all(name in self.schemas for name in RANGE)

    def fields(self, typed: Mapping[str, str], days: Interval | None = None) -> list[FormField]:
        """Return the fields with the entered values or the defaults.

        Args:
            typed: entered values by name.
            days: the UTC days that can be reprocessed; None if unknown.
        """
        ordered = sorted(self.params, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
        fields = [_field(name, self.params[name], typed.get(name)) for name in ordered]
        return [_with_bounds(each, days) if days and each.name in RANGE else each for each in fields]

    def value_problems(self, typed: Mapping[str, str]) -> dict[str, str]:
        """Return the error of each entered value that is not of the type of its parameter, or no choice of it."""
        problems = {}
        for name in self.schemas.keys() & typed.keys():
            choices = [str(choice) for choice in self.schemas[name].get("enum") or ()]
            if choices and typed[name] not in choices:
                problems[name] = f"{name} must be one of {', '.join(choices)}, got {typed[name]!r}"
                continue
            try:
                _parse_value(name, self.schemas[name], typed[name])
            except SpecError as error:
                problems[name] = str(error)
        return problems

    def conf(self, typed: Mapping[str, str]) -> dict[str, Any]:
        """Return the configuration of the run: the values that differ from the defaults of the DAG.

        Raises:
            SpecError, PlanError: when the range or a number is invalid.
        """
        interval = _parse_range(typed)
        values = {
            name: _parse_value(name, schema, typed.get(name, ""))
            for name, schema in self.schemas.items()
            if name in typed or "boolean" in _types(schema)  # A browser doesn't send a cleared check box.
        }
        values |= {"since": _date_time_text(interval.start_ms), "until": _date_time_text(interval.end_ms)}
        return {name: value for name, value in values.items() if value != self.defaults.get(name)}


def _field(name: str, param: Mapping[str, Any], typed: str | None) -> FormField:
    schema: Mapping[str, Any] = param.get("schema") or {}
    kinds = _types(schema)
    choices = tuple(str(choice) for choice in schema.get("enum") or ())
    kind = next((_KINDS[name] for name in kinds if name in _KINDS), "text")
    if name in RANGE:
        kind = "date"
    elif choices:
        kind = "select"
    elif kind == "text" and schema.get("maxLength"):
        kind = "area"
    return FormField(
        name=name,
        title=str(schema.get("title") or name),
        description=_DAYS.get(name) or str(schema.get("description_md") or param.get("description") or ""),
        kind=kind,
        value=typed if typed is not None else _text(param.get("value")),
        is_required=name in (*RANGE, "reason"),
        choices=choices,
    )


def _with_bounds(end: FormField, days: Interval) -> FormField:
    """Return the field with its first and last possible day; a range has at least one day."""
    start_ms, end_ms = days.start_ms, days.end_ms
    min_ms, max_ms = (start_ms, end_ms - DAY_MS) if end.name == "since" else (start_ms + DAY_MS, end_ms)
    return replace(end, least=instant_text(min_ms)[:10], most=instant_text(max_ms)[:10])


def _parse_value(name: str, schema: Mapping[str, Any], typed: str) -> Any:
    """Return an entered value in the type of its parameter; an empty field is null if the schema allows it."""
    kinds, text = _types(schema), typed.strip()
    if "boolean" in kinds:
        return text == "true"
    if not text:
        return None if "null" in kinds else ""
    if "integer" in kinds:
        try:
            return int(text)
        except ValueError:
            msg = f"{schema.get('title') or name} must be a whole number, got {text!r}"
            raise SpecError(msg) from None
    return text


def _types(schema: Mapping[str, Any]) -> Sequence[str]:
    kinds = schema.get("type") or ()
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _text(default: Any) -> str:
    if isinstance(default, bool):
        return "true" if default else ""
    return "" if default is None else str(default)


def requested_days(typed: Mapping[str, str]) -> Interval:
    """Return the UTC days of the entered range.

    Raises:
        SpecError, PlanError: when the entered range is invalid.
    """
    return round_to_days(_parse_range(typed))


def _parse_range(typed: Mapping[str, str]) -> Interval:
    """Return the instants of the entered range: days in UTC, or in the entered time zone."""
    since, until = (typed.get(name, "") for name in RANGE)
    if zone := typed.get("time_zone", "").strip():
        return LocalDays.from_dates(since, until, zone).instants
    since_ms, until_ms = instant_ms(since, "since"), instant_ms(until, "until")
    for name, value_ms in zip(RANGE, (since_ms, until_ms), strict=True):
        require_whole_days(value_ms, name)
    return backfill_range(since_ms, until_ms)


def _date_time_text(value_ms: int) -> str:
    """Return an instant with seconds, as JSON schema's `date-time` requires."""
    text = instant_text(value_ms)
    return text if text.count(":") > 1 else text.replace("Z", ":00Z")


def next_day(day: str) -> str:
    """Return the next day as ISO 8601, the exclusive end of a range of one day; empty for an invalid day."""
    try:
        return utc_datetime(instant_ms(day, "day") + DAY_MS).date().isoformat()
    except (SpecError, OverflowError):
        return ""
