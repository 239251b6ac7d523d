"""Having a range computed again: a form made from the DAG's own parameters, sent on to Airflow's own API.

The calls go through Airflow's own routes with the caller's own token. So the permission check, the check of the
parameters and the audit log are Airflow's, and the form cannot differ from the DAG it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import httpx

from backstream.errors import BackstreamError, SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms, instant_text, utc_datetime
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range, require_whole_days
from backstream.pages.runs import BACKFILL, REPROCESS
from backstream.runs.allowed_ranges import round_to_days

RANGE = ("since", "until")
FIRST = (*RANGE, "time_zone", "reason", "mode", "dry_run")
"""What is always shown; the rest is folded away."""

_DAYS = {"since": "The first day", "until": "The first day that is left as it is"}
_KINDS = {"boolean": "checkbox", "integer": "number", "number": "number"}


class RefusedError(BackstreamError):
    """Airflow did not do as asked; `status` is its answer's."""

    is_retryable = False  # a person reads the answer, and asks otherwise

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class FormField:
    """One parameter of the DAG as a field; `kind` is that of the input, `select` with choices or `area`.

    `least` and `most` are the days that may be chosen; `problem` says what is wrong with what was typed.
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

    @property
    def is_first(self) -> bool:
        """Whether it is shown without unfolding."""
        return self.name in FIRST


@dataclass(frozen=True, slots=True)
class ReprocessForm:
    """What the DAG that starts runs over a range can be told."""

    dag_id: str
    params: Mapping[str, Mapping[str, Any]]

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """JSON schema of each parameter."""
        return {name: param.get("schema") or {} for name, param in self.params.items()}

    @property
    def defaults(self) -> dict[str, Any]:
        """What each parameter is when nobody says otherwise."""
        return {name: param.get("value") for name, param in self.params.items()}

    @property
    def takes_range(self) -> bool:
        """Whether a range can be asked for."""
        return all(name in self.schemas for name in RANGE)

    def fields(self, typed: Mapping[str, str], days: Interval | None = None) -> list[FormField]:
        """The fields with what was typed, or what they begin with.

        Args:
            typed: by name; nothing for a field that nobody has filled in.
            days: the whole UTC days that may be asked for; None: nobody knows.
        """
        ordered = sorted(self.params, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
        found = [_field(name, self.params[name], typed.get(name)) for name in ordered]
        return [_bounded(each, days) if days and each.name in RANGE else each for each in found]

    def conf(self, typed: Mapping[str, str]) -> dict[str, Any]:
        """The configuration of the run; what was left as it is is left to the DAG.

        Raises:
            SpecError, PlanError: when the range is none, or a number is none.
        """
        interval = _range_of(typed)
        if "reason" in self.schemas and not typed.get("reason", "").strip():
            msg = "a reason is needed: it is kept with the run"
            raise SpecError(msg)
        said = {
            name: _value(name, schema, typed.get(name, ""))
            for name, schema in self.schemas.items()
            if name in typed or "boolean" in _types(schema)  # a box that is not ticked is not sent
        }
        said |= {"since": _date_time(interval.start_ms), "until": _date_time(interval.end_ms)}
        return {name: value for name, value in said.items() if value != self.defaults.get(name)}


@dataclass(frozen=True, slots=True)
class Airflow:
    """Airflow's own application, asked in the name of the caller."""

    application: Any
    token: str

    async def form(self, dataset: str) -> ReprocessForm:
        """The form of the DAG that reprocesses a dataset; of its backfill where there is no other.

        Raises:
            RefusedError: when neither is there, or the caller may not see it.
        """
        for prefix in (REPROCESS, BACKFILL):
            answer = await self._asked("GET", f"/api/v2/dags/{prefix}{dataset}/details")
            if answer.status_code != HTTPStatus.NOT_FOUND:
                break
        return ReprocessForm(f"{prefix}{dataset}", _json(answer).get("params") or {})

    async def started(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Have a run started, and return its id.

        Raises:
            RefusedError: with what Airflow said.
        """
        body = {"logical_date": None, "conf": conf}
        answer = await self._asked("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)
        return str(_json(answer)["dag_run_id"])

    async def _asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            headers = {"Authorization": f"Bearer {self.token}"}
            return await client.request(method, path, headers=headers, **options)


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = dict(answer.json())
    except ValueError:
        content = {}
    if not answer.is_success:
        said = str(content.get("detail") or f"Airflow answered {answer.status_code}")
        first, _, _ = said.partition("\n")  # what follows is the schema
        raise RefusedError(first, answer.status_code)
    return content


def _field(name: str, param: Mapping[str, Any], typed: str | None) -> FormField:
    schema: Mapping[str, Any] = param.get("schema") or {}
    kinds = _types(schema)
    choices = tuple(str(each) for each in schema.get("enum") or ())
    kind = next((_KINDS[each] for each in kinds if each in _KINDS), "text")
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


def _bounded(field: FormField, days: Interval) -> FormField:
    """A range of one day at least: its first is not the end of all, its end not the first of all."""
    first_ms, end_ms = days.start_ms, days.end_ms
    least_ms, most_ms = (first_ms, end_ms - DAY_MS) if field.name == "since" else (first_ms + DAY_MS, end_ms)
    return replace(field, least=instant_text(least_ms)[:10], most=instant_text(most_ms)[:10])


def _value(name: str, schema: Mapping[str, Any], typed: str) -> Any:
    """What was typed, as its type; an empty field is null where the schema lets it."""
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
    """The whole UTC days that would be run.

    Raises:
        SpecError, PlanError: when what was typed is no range.
    """
    return round_to_days(_range_of(typed))


def _range_of(typed: Mapping[str, str]) -> Interval:
    """What was typed, as instants: days of UTC, or of the time zone named."""
    since, until = (typed.get(name, "") for name in RANGE)
    if zone := typed.get("time_zone", "").strip():
        return LocalDays.from_dates(since, until, zone).instants
    since_ms, until_ms = instant_ms(since, "since"), instant_ms(until, "until")
    for name, value_ms in zip(RANGE, (since_ms, until_ms), strict=True):
        require_whole_days(value_ms, name)
    return backfill_range(since_ms, until_ms)


def _date_time(value_ms: int) -> str:
    """As JSON schema's `date-time` wants it: with seconds."""
    text = instant_text(value_ms)
    return text if text.count(":") > 1 else text.replace("Z", ":00Z")


def started_run_link(day: str) -> str:
    """The day after, as ISO 8601: a range of one day ends before it. Empty when it is no day."""
    try:
        return utc_datetime(instant_ms(day, "day") + DAY_MS).date().isoformat()
    except (SpecError, OverflowError):
        return ""
