"""Render the run report: one self-contained HTML page about the settings, the checks, and the output of a run.

The page has no script and no external reference, so it can be mailed and archived.
It also covers failed runs, because users open the report of a failed run most often.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

import jinja2
import pandas as pd

import backstream
from backstream import formatting
from backstream.definition.model import Definition
from backstream.report import chart_layout, descriptions, figures
from backstream.report.run_context import RunContext, compute_forecasts
from backstream.report.templating import template_environment
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, CheckOutcome, Publication
from backstream.runs.status import find_pending_request

_GAPS_SHOWN, _FILES_SHOWN, _PAST_SHOWN = 8, 50, 8
_NO_VERDICT = "none"


def render_report(
    plan: Plan,
    manifests: Sequence[Manifest],
    audit: Audit | None,
    frame: pd.DataFrame | None,
    publication: Publication | None,
    definition: Definition,
    known: RunContext | None = None,
) -> str:
    """Return the report as HTML.

    Args:
        plan: plan of the run.
        manifests: manifests of the finished chunks; may be empty.
        audit: result of the quality gate; None when the run ended before its audit.
        frame: audit frame (columns of `quality.frame.WINDOW_COLUMNS`); None without an audit.
        publication: result of the commit; None when nothing was published.
        definition: definition that the run used.
        known: context from tables, ledger, and recording.
    """
    context = known or RunContext()
    windows = None if frame is None else _with_ms(frame)
    content = {
        "plan": plan,
        "definition": definition,
        "context": context,
        "later_audit": _with_fixed_percent(formatting.sentence(str(context.later_audit or ""))),
        "is_replay": plan.mode is Mode.REPLAY,
        "version": backstream.__version__,
        "totals": None if windows is None else figures.compute_totals(windows),
        "charts": chart_layout.window_charts(plan, definition, windows),
        "delays": chart_layout.delay_figure(plan, context, definition),
        "change_bars": chart_layout.change_bars(context),
        **_verdict_content(plan, manifests, audit, publication),
        **_check_content(audit),
        **_record_content(plan, manifests, windows, definition, context),
        **_run_content(plan, manifests, publication, definition, context),
    }
    return _environment().get_template("run_report.html").render(content)


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of the run report, which keeps its parsed templates."""
    return template_environment()


def _verdict_content(
    plan: Plan, manifests: Sequence[Manifest], audit: Audit | None, publication: Publication | None
) -> dict[str, Any]:
    """Return the content of the head of the page: verdict, summary, and publication."""
    finished = {manifest.chunk_id for manifest in manifests}
    unfinished = sum(chunk.chunk_id not in finished for chunk in plan.chunks)
    reason = descriptions.reason_not_published(plan, audit, unfinished)
    return {
        "audit": audit,
        "verdict": str(audit.verdict) if audit else _NO_VERDICT,
        "summary": _with_fixed_percent(formatting.sentence(audit.summary if audit else reason)),
        "publication": publication,
        "published": descriptions.describe_publication(publication) if publication else "",
        "not_published": reason,
        "approval_page": _approval_page(plan),
    }


def _approval_page(plan: Plan) -> str:
    """Return the address of the approval page beside the report inside Airflow; empty if the run doesn't wait."""
    request = find_pending_request(plan.folder)
    return f"approval?{urlencode({'dag_id': request.dag_id, 'run_id': request.dag_run_id})}" if request else ""


def _check_content(audit: Audit | None) -> dict[str, Any]:
    """Return the checks by severity; `opened` is the first one with failing rows."""
    checks = figures.sort_by_severity(audit) if audit else ()
    attention = [check for check in checks if check.outcome is not CheckOutcome.PASS]
    return {
        "attention": attention,
        "opened": next((check for check in attention if check.failing), None),
        "passed": [check for check in checks if check.outcome is CheckOutcome.PASS],
    }


def _record_content(
    plan: Plan,
    manifests: Sequence[Manifest],
    windows: pd.DataFrame | None,
    definition: Definition,
    context: RunContext,
) -> dict[str, Any]:
    accounting = figures.account_records(manifests, windows, definition)
    totals = None if windows is None else figures.compute_totals(windows)
    return {
        "accounting": accounting,
        "late_counter": figures.late_counter_text(definition, accounting, totals, context.late_slices),
        "fate_bar": chart_layout.fate_bar(accounting),
        "chunks": figures.list_chunk_rows(plan, manifests),
        "finished_at": max((manifest.finished_at for manifest in manifests), default=""),
    }


def _run_content(
    plan: Plan,
    manifests: Sequence[Manifest],
    publication: Publication | None,
    definition: Definition,
    context: RunContext,
) -> dict[str, Any]:
    """Return the content of the section with the run details."""
    return {
        "settings": descriptions.describe_settings(plan, definition),
        "limits": descriptions.limits_text(definition.quality),
        "trigger": descriptions.describe_trigger(plan),
        "overrides": descriptions.describe_overrides(plan, definition),
        "approval": descriptions.describe_approval(definition),
        "inputs": figures.input_figures(plan),
        "snapshots": figures.snapshot_texts(publication),
        "forecasts": compute_forecasts(plan, manifests, publication.rows if publication else None, context),
        "gaps_shown": _GAPS_SHOWN,
        "files_shown": _FILES_SHOWN,
        "past_shown": _PAST_SHOWN,
    }


def _with_ms(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with instants in milliseconds, because the unit depends on the source file."""
    instants = {name: frame[name].dt.as_unit("ms") for name in ("window_start", "window_end", "last_start")}
    return frame.assign(**instants)


def _with_fixed_percent(text: str) -> str:
    """Return the text with a no-break space before each percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
