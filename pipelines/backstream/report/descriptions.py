"""Describe the settings, the trigger, and the outcome of a run in short sentences."""

from __future__ import annotations

from collections.abc import Iterator

from backstream.definition.model import Definition
from backstream.definition.run_sections import Quality
from backstream.definition.watermark_sections import WatermarkSection
from backstream.eventtime.emission import EmissionModel, Topology
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.formatting import count_of, duration_words, limit_text
from backstream.runs.input_notes import describe_gaps, describe_inputs
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import ArrivalOrder, Mode, Plan
from backstream.runs.results import ApprovalDecision, Audit, CheckOutcome, LaterFiles, Publication, Verdict
from backstream.runs.status import describe_wait, find_pending_request

_MODES = {
    Mode.RECOMPUTE: "recompute: uses event time only, so no record is late",
    Mode.REPLAY: "replay: processes records in arrival order, so late records are late again",
}
_ARRIVAL_ORDER = {
    ArrivalOrder.RECORDED: "recorded: the source has arrival times and their order",
    ArrivalOrder.TIES_BROKEN: "ties broken: the source has arrival times, a rule orders equal times",
    ArrivalOrder.UNKNOWN: "unknown: the source has no arrival times, so only a recompute is possible",
}
_PUBLISHED = {
    "first": "first: the result of the on-time firing of each window",
    "live": "live: the last result that the stream published",
    "final": "final: the result of all events of each window, late and dropped ones included",
}


def describe_settings(plan: Plan, definition: Definition) -> tuple[tuple[str, str], ...]:
    """Return the settings of a run as pairs of name and description."""
    rows = [
        ("Mode", _MODES[plan.mode]),
        ("Arrival order", _ARRIVAL_ORDER[plan.arrival_order]),
        ("Published value", _PUBLISHED[definition.backfill.publish]),
    ]
    if plan.mode is Mode.REPLAY:
        rows[1:1] = [
            *_watermarks(definition),
            ("Allowed lateness", _lateness_text(definition)),
        ]
    if zone := definition.window.spec().zone:
        rows.insert(0, ("Time zone", f"{zone.name}, time-zone data {plan.time_zone_data}"))
    if plan.local_days:
        rows.insert(0, ("Requested range", plan.local_days.describe))
    return (
        *rows,
        *_exceptions(plan),
        *((f"Input files: {label.lower()}", text) for label, text in describe_inputs(plan)),
        *_later_files(plan),
        *((f"Records: {label.lower()}", text) for label, text in describe_gaps(load_manifests(plan))),
    )


def _later_files(plan: Plan) -> Iterator[tuple[str, str]]:
    if later := LaterFiles.find(plan.folder.later_files):
        yield "Input files: not read", str(later)


def _exceptions(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield overridden settings, the override of the quality gate, and the approval decision."""
    if plan.overrides:
        values = "; ".join(f"{key} = {value}" for key, value in sorted(plan.overrides.items()))
        yield "For this run only", values
    if plan.gate_override:
        yield "Quality gate override", plan.gate_override
    if decision := ApprovalDecision.find(plan.folder.approval):
        yield "Approval", f"{decision}, {decision.at}"


def limits_text(quality: Quality) -> str:
    """Return the soft and the hard limit of each share."""
    shares = {
        "late or dropped": quality.late_ratio,
        "dropped": quality.dropped_ratio,
        "windows without events": quality.missing_ratio,
    }
    return "; ".join(
        f"{name} {limit_text(limits.warn)} (soft), {limit_text(limits.fail)} (hard)"
        for name, limits in shares.items()
    )


def _watermarks(definition: Definition) -> Iterator[tuple[str, str]]:
    """Yield the watermarks of the stream; with several sources, those of each."""
    if not definition.source.parts:
        yield "Watermark", watermark_text(definition.watermark)
        return
    for part in definition.source.parts:
        yield f"Watermark of {part.name}", watermark_text(definition.watermark_of(part))
    yield "Watermark of the stream", "minimum over all sources"


def watermark_text(section: WatermarkSection) -> str:
    """Return the watermark strategy as text: strategy, emission, source partitions, and idle timeout."""
    if section.strategy is StrategyKind.NONE:
        return "none: all windows fire at the end of the input"
    if section.strategy is StrategyKind.STRUCTURED_STREAMING:
        return f"those that the job wrote down for its batches ({', '.join(section.job_logs)})"
    parts = [_strategy_text(section), _emission_text(section)]
    if not _is_assigner(section):
        parts.append("minimum over all source partitions")
    if section.idle_timeout:
        idle = "the operator" if _is_assigner(section) else "a source partition"
        parts.append(f"{idle} is idle after {duration_words(section.idle_timeout)} without records")
    return "; ".join(parts)


def _is_assigner(section: WatermarkSection) -> bool:
    return section.strategy is StrategyKind.FLINK_SQL and section.topology is Topology.OPERATOR


def _strategy_text(section: WatermarkSection) -> str:
    delay = duration_words(section.delay)
    less = f", less {delay}" if section.delay else ""
    partitions = "all source partitions" if _is_assigner(section) else "each source partition"
    at_first = ", 0 at first" if _is_assigner(section) else ""
    options = ", ".join(f"{name} = {value}" for name, value in section.kwargs.items())
    return {
        StrategyKind.MONOTONOUS: "monotonous: each source partition delivers in order of event time",
        StrategyKind.BOUNDED: f"bounded out-of-orderness: events arrive at most {delay} out of order",
        StrategyKind.FLINK_SQL: f"of Flink SQL: greatest event time of {partitions}{less}{at_first}",
        StrategyKind.PUNCTUATED: f"punctuated: event time of marked records{less} ({section.marker})",
        StrategyKind.TIME_LAG: f"time lag: clock time{less}",
        StrategyKind.CUSTOM: f"custom: {section.generator_class}({options})",
    }[section.strategy]


def _emission_text(section: WatermarkSection) -> str:
    every = f"every {duration_words(section.emit_interval)}"
    if section.strategy is StrategyKind.PUNCTUATED:
        return "emitted at each marked record"
    if section.emit is EmissionModel.MICRO_BATCH:
        return f"emitted between micro-batches, one {every}"
    if section.emit is EmissionModel.RECORD or not section.emit_interval:
        return "emitted at each record"
    if _is_assigner(section):
        return f"emitted {every}, and at a record that raises it by more than that"
    return f"emitted {every}"


def _lateness_text(definition: Definition) -> str:
    allowed = definition.lateness.allowed
    if not allowed:
        return "none: an event that arrives after its window fired is dropped"
    return f"{duration_words(allowed)}: a late event fires its window again; after this time, it is dropped"


def reason_not_published(plan: Plan, audit: Audit | None, unfinished: int) -> str:
    """Return the reason why a run published nothing."""
    if audit is None and unfinished:
        return f"{count_of(unfinished, 'chunk')} of {len(plan.chunks):,} did not finish, so the audit did not run"
    if audit is None:
        return "the run ended before its audit"
    if audit.verdict is Verdict.FAIL and not audit.may_publish:
        return f"rejected by the quality gate, failed check: {_first_check(audit, CheckOutcome.FAIL)}"
    if audit.verdict is Verdict.ERROR:
        return f"a check could not run: {_first_check(audit, CheckOutcome.ERROR)}"
    return _describe_approval(plan) or "passed by the quality gate, but not published yet"


def _describe_approval(plan: Plan) -> str:
    """Return the reason why a run without publication has no approval; empty if it has one or needs none."""
    if request := find_pending_request(plan.folder):
        return f"the run {describe_wait(request)}"
    decision = ApprovalDecision.find(plan.folder.approval)
    return f"{decision}; the staged files are kept" if decision and not decision.is_approved else ""


def _first_check(audit: Audit, outcome: CheckOutcome) -> str:
    """Return the first check with an outcome, and the number of others."""
    names = [check.name for check in audit.checks if check.outcome is outcome]
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "the suite has no checks"


def describe_publication(publication: Publication) -> str:
    """Return the number of published and replaced rows as text."""
    replaced = count_of(publication.replaced_rows, "row")
    rows = f"{count_of(publication.rows, 'row')} published, replacing {replaced}"
    return f"{rows} (by an earlier attempt of this run)" if publication.already else rows


_TRIGGERS = (
    ("cli", "command line"),
    ("scheduled__", "Airflow schedule"),
    ("backfill__", "Airflow backfill"),
    ("manual__", "manual Airflow run"),
    ("asset_triggered__", "Airflow asset event"),
)
"""Prefixes of Airflow's run ids, and the trigger of the command line."""

_APPROVALS = {
    "never": "never",
    "warn": "if the verdict is a warning",
    "always": "always",
    "restatement": "if published values would change",
}


def describe_trigger(plan: Plan) -> str:
    """Return the trigger of the run: `command line`, or the id of the Airflow run and its kind."""
    kind = next((text for prefix, text in _TRIGGERS if plan.triggered_by.startswith(prefix)), "")
    if plan.triggered_by == "cli":
        return kind
    return f"{plan.triggered_by} ({kind})" if kind else plan.triggered_by


def describe_overrides(plan: Plan, definition: Definition) -> tuple[str, ...]:
    """Return the settings in which the run differs from its definition."""
    defined = definition.backfill.mode
    return () if plan.mode == defined else (f"mode {plan.mode} instead of {defined}",)


def describe_approval(definition: Definition) -> str:
    """Return the condition under which a publication needs approval."""
    return _APPROVALS[definition.approval.when]
