"""Send metrics of a run through Airflow, which passes them to StatsD or OpenTelemetry as its own.

Each metric has tags. Unless `[metrics] legacy_names_on` is off, it is also sent under a name with the values of
the tags, as Airflow does, because plain StatsD has no tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from backstream.orchestration.airflow_versions import load_settings, load_stats
from backstream.runs.dag_names import load_team, qualified_name
from backstream.runs.manifest import Manifest, load_manifests, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Publication

_RECORDS, _AUDITS, _STAGE_DURATION = "backstream.records", "backstream.audits", "backstream.stage_duration"
_PUBLISHED_ROWS, _REPLACED_ROWS = "backstream.published_rows", "backstream.replaced_rows"


def send_audit(plan: Plan, audit: Audit) -> None:
    """Send the records by fate, the seconds by stage of the Spark jobs, and the verdict."""
    manifests = load_manifests(plan)
    for fate, count in _count_fates(manifests).items():
        _count(_RECORDS, count, plan, fate=fate)
    stats = load_stats()
    for stage, seconds in _sum_stages(manifests).items():
        for name, tags in _names(_STAGE_DURATION, plan, {"stage": stage}).items():
            stats.timing(name, timedelta(seconds=seconds), tags=tags)
    _count(_AUDITS, 1, plan, verdict=audit.verdict.value)


def send_publication(plan: Plan, publication: Publication) -> None:
    """Send the published and the replaced rows, once for the attempt that made the commit."""
    if not publication.already:
        _count(_PUBLISHED_ROWS, publication.rows, plan)
        _count(_REPLACED_ROWS, publication.replaced_rows, plan)


def _count_fates(manifests: Sequence[Manifest]) -> Counter[str]:
    fates: Counter[str] = Counter()
    for counts in sum_fates(list(manifests)).values():
        fates.update(counts)
    return fates


def _sum_stages(manifests: Sequence[Manifest]) -> dict[str, float]:
    """Return the seconds per stage of all chunks; those of jobs that run side by side add up."""
    seconds: dict[str, float] = {}
    for manifest in manifests:
        for stage, stage_s in manifest.timings_s.items():
            seconds[stage] = seconds.get(stage, 0.0) + stage_s
    return seconds


def _count(name: str, count: int, plan: Plan, **tags: str) -> None:
    stats = load_stats()
    for sent, sent_tags in _names(name, plan, tags).items():
        stats.incr(sent, count, tags=sent_tags)


def _names(name: str, plan: Plan, tags: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the names of a metric, each with its tags."""
    dataset = qualified_name(plan.dataset, load_team())
    names = {name: {"dataset": dataset, "mode": plan.mode.value, **tags}}
    if load_settings().getboolean("metrics", "legacy_names_on", fallback=True):
        names[".".join([name, dataset.replace(".", "__"), *tags.values()])] = {"mode": plan.mode.value}
    return names
