"""The report of a run in the form that was asked for, from whatever the run has left."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from backstream.core.audit import Audit
from backstream.core.errors import SpecError
from backstream.core.folders import Home, write_text
from backstream.core.forms import Form
from backstream.core.plan import Plan
from backstream.core.publication import Publication
from backstream.definition.load import parse
from backstream.report.brief import Brief
from backstream.report.known import Known
from backstream.report.run_report import render
from backstream.steps.known import known_of
from backstream.steps.observe import leave_figures
from backstream.steps.state import manifests_of


def report_run(plan: Plan) -> Path:
    """Write the run report from whatever the run has left so far, and return the file.

    Leaves beside it what the pages inside Airflow show of the run. What they show of its dataset as it is now is
    looked for by `observe.refresh`: it takes a look at the source, and no report waits for that.
    """
    write_text(plan.folder.report, report_text(plan, Form.HTML))
    leave_figures(plan)
    return plan.folder.report


def report_text(plan: Plan, form: Form) -> str:
    """The report of a run as text; nothing is written."""
    found = brief(plan)
    known = known_of(
        plan, found.definition, found.publication, is_complete=len(found.manifests) == len(plan.chunks)
    )
    told = Brief(plan, found.definition, found.manifests, found.audit, found.publication, known)
    if form is Form.MD:
        return told.markdown()
    if form is Form.JSON:
        return json.dumps(told.as_json(), indent=1) + "\n"
    frame = pd.read_parquet(plan.folder.audit) if plan.folder.audit.exists() else None
    return render(plan, told.manifests, told.audit, frame, told.publication, told.definition, known)


def brief(plan: Plan) -> Brief:
    """What a run has left in its folder; the lake is not asked."""
    folder = plan.folder
    return Brief(
        plan,
        parse(plan.definition, f"plan {plan.run_id}"),
        manifests_of(plan),
        Audit.read(folder.verdict) if folder.verdict.exists() else None,
        Publication.read(folder.publication) if folder.publication.exists() else None,
        Known(),
    )


def plan_of(home: Home, run_id: str) -> Plan:
    """The plan of a run.

    Raises:
        SpecError: when there is no such run here.
    """
    found = sorted((home.path / "runs").glob("*/*/plan.json"))
    for path in found:
        if path.parent.name == run_id:
            return Plan.read(path)
    msg = f"no definition and no run {run_id!r} in {home.path}, which has {len(found):,} runs"
    raise SpecError(msg)
