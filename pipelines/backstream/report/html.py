"""The run report: one self-contained HTML page of what a run was asked, what it found, and what it published.

The page needs no script and refers to nothing outside itself, so that it can be mailed, archived and opened
years later. It is written for a failed run too: that is the one people open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

import backstream
from backstream.definition.model import Definition
from backstream.report import chart_layout, descriptions, figures, formatting
from backstream.report.run_context import RunContext, compute_forecasts
from backstream.report.templating import template_environment
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, CheckOutcome, Publication

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
    """The page as HTML.

    Args:
        plan: what was to be done.
        manifests: what the finished chunks left; none is needed.
        audit: the gate's answer; None when the run ended before it.
        frame: the audit frame (columns of `quality.frame.WINDOW_COLUMNS`); None as for `audit`.
        publication: what was committed; None when nothing was.
        definition: the definition that the run used.
        known: what the lake, the ledger and the recording tell besides.
    """
    known = known or RunContext()
    windows = None if frame is None else _in_milliseconds(frame)
    found = figures.account_records(manifests, windows, definition)
    chunks = figures.list_chunk_rows(plan, manifests)
    unfinished = sum(chunk.manifest is None for chunk in chunks)
    attention = [check for check in _checks(audit) if check.outcome is not CheckOutcome.PASS]
    page = {
        "plan": plan,
        "definition": definition,
        "publication": publication,
        "published": descriptions.describe_publication(publication) if publication else "",
        "not_published": descriptions.reason_not_published(plan, audit, unfinished),
        "audit": audit,
        "verdict": str(audit.verdict) if audit else _NO_VERDICT,
        "summary": _unbroken(
            formatting.sentence(
                audit.summary if audit else descriptions.reason_not_published(plan, None, unfinished)
            )
        ),
        "attention": attention,
        "opened": next((check for check in attention if check.failing), None),
        "passed": [check for check in _checks(audit) if check.outcome is CheckOutcome.PASS],
        "totals": None if windows is None else figures.compute_totals(windows),
        "found": found,
        "fate_bar": chart_layout.fate_bar(found),
        "is_replay": plan.mode is Mode.REPLAY,
        "chunks": chunks,
        "inputs": figures.input_figures(plan),
        "asked": descriptions.describe_settings(plan, definition),
        "limits": descriptions.limits_text(definition.quality),
        "snapshots": figures.snapshot_texts(publication),
        "finished_at": max((each.finished_at for each in manifests), default=""),
        "version": backstream.__version__,
        "gaps_shown": _GAPS_SHOWN,
        "files_shown": _FILES_SHOWN,
        "past_shown": _PAST_SHOWN,
        "known": known,
        "forecasts": compute_forecasts(plan, manifests, publication.rows if publication else None, known),
        "asked_by": descriptions.describe_trigger(plan),
        "overrides": descriptions.describe_overrides(plan, definition),
        "approval": descriptions.describe_approval(definition),
        "bars_of": chart_layout.change_bars(known),
        **chart_layout.window_charts(plan, definition, windows),
        **chart_layout.delay_charts(plan, known, definition),
    }
    return template_environment().get_template("run_report.html").render(page)


def _checks(audit: Audit | None) -> tuple[Any, ...]:
    return figures.sort_by_severity(audit) if audit else ()


def _in_milliseconds(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with instants in one unit, whatever the file it came from held them in."""
    instants = {name: frame[name].dt.as_unit("ms") for name in ("window_start", "window_end")}
    return frame.assign(**instants)


def _unbroken(text: str) -> str:
    """The text whose percentages stay on one line with their sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")
