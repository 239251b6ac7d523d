"""What was asked for, in sentences: mode, watermark, lateness, arrival order, publication."""

from __future__ import annotations

from collections.abc import Iterator

from backstream.definition.model import Definition, Quality, WatermarkSection
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermarks import EmissionModel
from backstream.report.formatting import count_of, duration_words, limit_text
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import ArrivalOrder, Mode, Plan
from backstream.runs.results import ApprovalDecision, Audit, CheckOutcome, Publication, Verdict

_MODES = {
    Mode.RECOMPUTE: "recompute: only event time counts, so nothing is late",
    Mode.REPLAY: "replay: records are taken in the order in which they arrived, late ones are late again",
}
_ARRIVAL_ORDER = {
    ArrivalOrder.RECORDED: "recorded: arrival times and their order come from the record",
    ArrivalOrder.TIES_BROKEN: "ties broken: arrival times come from the record, ties were broken by rule",
    ArrivalOrder.UNKNOWN: "unknown: no arrival time was recorded, so only a recompute is possible",
}
_PUBLISHED = {
    "first": "first: what each window held when it fired on time",
    "live": "live: what the stream itself had published in the end",
    "final": "final: all events of each window, however late",
}


def describe_settings(plan: Plan, definition: Definition) -> tuple[tuple[str, str], ...]:
    """The settings of a run, as name and sentence."""
    rows = [
        ("Mode", _MODES[plan.mode]),
        ("Arrival order", _ARRIVAL_ORDER[plan.arrival_order]),
        ("Published value", _PUBLISHED[definition.backfill.publish]),
    ]
    if plan.mode is Mode.REPLAY:
        rows[1:1] = [
            ("Watermark", watermark_text(definition.watermark)),
            ("Allowed lateness", _lateness(definition)),
        ]
    if plan.local_days:
        rows.insert(0, ("Asked for", plan.local_days.describe))
    return (
        *rows,
        *_departures(plan),
        *((f"Input files: {label.lower()}", told) for label, told in describe_inputs(plan)),
    )


def _departures(plan: Plan) -> Iterator[tuple[str, str]]:
    """In what the run departs from its definition and from the gate, and who let it through."""
    if plan.overrides:
        said = "; ".join(f"{key} = {value}" for key, value in sorted(plan.overrides.items()))
        yield "For this run only", said
    if plan.gate_override:
        yield "Override of the gate", plan.gate_override
    if decision := ApprovalDecision.read(plan.folder.approval):
        yield "Approval", f"{decision}, {decision.at}"


def limits_text(quality: Quality) -> str:
    """The soft and the hard limit of each share."""
    shares = {
        "late or dropped": quality.late_ratio,
        "dropped": quality.dropped_ratio,
        "windows without event": quality.missing_ratio,
    }
    return "; ".join(
        f"{name} {limit_text(each.warn)} (soft), {limit_text(each.fail)} (hard)" for name, each in shares.items()
    )


def watermark_text(section: WatermarkSection) -> str:
    """What the stream believed about events still to come."""
    if section.strategy is StrategyKind.NONE:
        return "none: every window waits for the end of the input"
    parts = [_belief(section), _emitted(section)]
    parts.append("the slowest source partition decides")
    if section.idle_timeout:
        parts.append(f"one that is silent for {duration_words(section.idle_timeout)} no longer counts")
    return "; ".join(parts)


def _belief(section: WatermarkSection) -> str:
    delay = duration_words(section.delay)
    less = f", less {delay}" if section.delay else ""
    options = ", ".join(f"{name} = {value}" for name, value in section.kwargs.items())
    return {
        StrategyKind.MONOTONOUS: "monotonous: each source partition delivers in order of event time",
        StrategyKind.BOUNDED: f"bounded out-of-orderness: an event may come {delay} out of order",
        StrategyKind.PUNCTUATED: f"punctuated: marked records say how far event time is{less} ({section.marker})",
        StrategyKind.TIME_LAG: f"time lag: event time is the clock{less}",
        StrategyKind.CUSTOM: f"custom: {section.generator_class}({options})",
    }[section.strategy]


def _emitted(section: WatermarkSection) -> str:
    """When the belief was brought up to date."""
    every = f"every {duration_words(section.emit_interval)}"
    if section.strategy is StrategyKind.PUNCTUATED:
        return "computed at each of these"
    if section.emit is EmissionModel.MICRO_BATCH:
        return f"computed between batches, of which one began {every}"
    if section.emit is EmissionModel.RECORD or not section.emit_interval:
        return "computed at each record"
    return f"computed {every}"


def _lateness(definition: Definition) -> str:
    allowed = definition.lateness.allowed
    if not allowed:
        return "none: an event that comes after its window fired is dropped"
    return f"{duration_words(allowed)}: until then a late event fires its window again, after that it is dropped"


def reason_not_published(plan: Plan, audit: Audit | None, unfinished: int) -> str:
    """Why a run without publication has none."""
    if audit is None and unfinished:
        return f"{count_of(unfinished, 'chunk')} of {len(plan.chunks):,} did not finish, so nothing was judged"
    if audit is None:
        return "the run ended before anything was judged"
    if audit.verdict is Verdict.FAIL and not audit.may_publish:
        return f"the gate said no, not met is: {_first(audit, CheckOutcome.FAIL)}"
    if audit.verdict is Verdict.ERROR:
        return f"what cannot be checked is not published: {_first(audit, CheckOutcome.ERROR)}"
    if (decision := ApprovalDecision.read(plan.folder.approval)) and not decision.is_approved:
        return f"{decision}; what was staged is kept"
    return "the gate let it through, but no publication is recorded (yet)"


def _first(audit: Audit, outcome: CheckOutcome) -> str:
    """The first check of an outcome, and how many more there are."""
    names = [check.name for check in audit.checks if check.outcome is outcome]
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "nothing was checked"


def describe_publication(publication: Publication) -> str:
    """What a publication did, in a few words."""
    replaced = count_of(publication.replaced_rows, "row")
    first = f"{count_of(publication.rows, 'row')} published, replacing {replaced}"
    return f"{first} (by an earlier attempt of this run)" if publication.already else first


_WHO = (
    ("cli", "by hand, from the command line"),
    ("scheduled__", "by its schedule, in Airflow"),
    ("backfill__", "by a Backfill of Airflow"),
    ("manual__", "by hand, in Airflow"),
    ("asset_triggered__", "by an asset, in Airflow"),
)
"""How Airflow's run ids begin, and the command line's trigger."""

_ASKED_WHEN = {
    "never": "nobody",
    "warn": "a person, when the verdict is a warning",
    "always": "a person, always",
    "restatement": "a person, when something published would change",
}


def describe_trigger(plan: Plan) -> str:
    """What started the run: `by hand, from the command line`, or an Airflow run by its id."""
    how = next((words for prefix, words in _WHO if plan.triggered_by.startswith(prefix)), "")
    if plan.triggered_by == "cli":
        return how
    return f"{plan.triggered_by} ({how})" if how else plan.triggered_by


def describe_overrides(plan: Plan, definition: Definition) -> tuple[str, ...]:
    """What this run does otherwise than its definition says."""
    said = definition.backfill.mode
    return () if plan.mode == said else (f"mode {plan.mode}, where the definition says {said}",)


def describe_approval(definition: Definition) -> str:
    """When a person is asked before publication."""
    return _ASKED_WHEN[definition.approval.when]
