"""Questions about the lineage and the metrics of a result."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any


def lineage(definition: str, plan: str) -> dict[str, Any]:
    """Return the lineage of an audit and a publication at their end, and of both after a failure."""
    from airflow.providers.openlineage.extractors.base import DefaultExtractor
    from airflow.sdk import Asset
    from openlineage.client.serde import Serde

    from backstream.orchestration.run_operators import AuditOperator, PublishOperator

    result = {"plan_path": plan, "definition_path": definition}
    audit = AuditOperator(task_id="audit", **result)
    publish = PublishOperator(task_id="publish", asset=Asset("clicks"), days=None, **result)
    ends = {
        "audited": DefaultExtractor(audit).extract_on_complete(None),
        "rejected": DefaultExtractor(audit).extract_on_failure(None),
        "published": DefaultExtractor(publish).extract_on_complete(None),
        "not published": DefaultExtractor(publish).extract_on_failure(None),
    }
    return {name: json.loads(Serde.to_json(end)) if end else None for name, end in ends.items()}


def metrics(plan_path: str, port: str) -> list[str]:
    """Send the metrics of an audit and of a publication to a StatsD server, as a task does."""
    settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": port}
    os.environ |= {f"AIRFLOW__METRICS__{name}": value for name, value in settings.items()}
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    from backstream.orchestration.metrics import send_audit, send_publication
    from backstream.runs.plan import Plan
    from backstream.runs.results import Audit, Publication

    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
    plan = Plan.read(Path(plan_path))
    send_audit(plan, Audit.read(plan.folder.audit_result))
    publication = Publication.read(plan.folder.publication)
    send_publication(plan, publication)
    send_publication(plan, replace(publication, already=True))
    return []
