"""Summarize a run as one sentence, as Markdown, or as JSON."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from backstream.charts.completeness_map import range_words
from backstream.definition.model import Definition
from backstream.eventtime.instants import instant_text
from backstream.formatting import change_text, count_of, count_text, sentence
from backstream.report.descriptions import describe_publication, reason_not_published
from backstream.report.failing_rows import list_failing_rows
from backstream.report.figures import FATE_WORDS, FATES, sort_by_severity
from backstream.report.run_context import ChangeSummary, RunContext, largest_changes
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication
from backstream.text import visible_line

_MARKS = {"pass": "✅", "info": "📝", "warn": "⚠️", "fail": "❌", "error": "❓", "none": "⏸️"}
_MAX_TEXT = 1_000
"""The most characters of one text in a summary."""
_MAX_CHANGES = 3
_NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Files of a run, as far as it has written them, and its context."""

    plan: Plan
    definition: Definition
    manifests: Sequence[Manifest] = ()
    audit: Audit | None = None
    publication: Publication | None = None
    known: RunContext = field(default_factory=RunContext)

    @property
    def verdict(self) -> str:
        """`pass`, `warn`, `fail`, `error`, or `no verdict`."""
        return self.audit.verdict.value if self.audit else _NO_VERDICT

    @property
    def sentence(self) -> str:
        """Return the run in one sentence, the text of all short messages.

        Example: `flights, 1 Feb 2013 to 28 Feb 2013: warn: 35 of ...; 4,499 rows published ...`.
        """
        finding = f"{self.verdict}: {self.audit.summary}" if self.audit else self.verdict
        return f"{self.plan.dataset}, {range_words(self.plan.range)}: {finding}; {self._outcome()}"

    @property
    def _mark(self) -> str:
        return _MARKS.get(self.verdict, _MARKS["none"])

    def _outcome(self) -> str:
        if self.publication:
            return describe_publication(self.publication)
        unfinished = len(self.plan.chunks) - len(self.manifests)
        return f"nothing was published: {reason_not_published(self.plan, self.audit, unfinished)}"

    def markdown(self) -> str:
        """Return the run as Markdown for a pull request or a chat; all data is escaped."""
        parts = [
            f"### {self._mark} {_escape(self.plan.dataset)}, {range_words(self.plan.range)}",
            _escape(sentence(self.audit.summary if self.audit else self._outcome())),
            f"**{_escape(sentence(self._outcome()))}**",
            _escape(sentence(str(self.known.later_audit or ""))),
            *self._check_lines(),
            "\n".join(_fate_lines(self.manifests)),
            *([_change_lines(self.known.changes)] if self.known.changes else []),
            _escape(f"Run `{self.plan.run_id}`, {self.plan.mode}, plan `{self.plan.plan_hash}`, all times UTC."),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _check_lines(self) -> Iterator[str]:
        if self.audit is None:
            return
        failed = [check for check in sort_by_severity(self.audit) if check.outcome is not CheckOutcome.PASS]
        passed = len(self.audit.checks) - len(failed)
        checks = count_of(len(self.audit.checks), "check")
        yield f"{passed} of {checks} of suite {_escape(self.audit.suite)} passed."
        if failed:
            rows = [self._check_row(check) for check in failed]
            yield "\n".join(["| | check | result | failing rows |", "|---|---|---|---|", *rows])

    def _check_row(self, check: Check) -> str:
        rows = [str(row) for row in list_failing_rows(check, self.definition.unit_ms)]
        is_more = check.unexpected_count > len(check.failing)
        where = _escape("; ".join(rows)) + ("; ..." if rows and is_more else "")
        return f"| {_MARKS[check.outcome]} | {_escape(check.name)} | {_escape(check.observed)} | {where} |"

    def as_json(self) -> dict[str, Any]:
        """Return the run as a JSON object: instants as ISO 8601, and the path of the report if it exists."""
        plan, publication = self.plan, self.publication
        return {
            "run_id": plan.run_id,
            "dataset": plan.dataset,
            "since": instant_text(plan.since_ms),
            "until": instant_text(plan.until_ms),
            "mode": plan.mode.value,
            "triggered_by": plan.triggered_by,
            "reason": plan.reason,
            "plan_hash": plan.plan_hash,
            "definition_hash": plan.definition_hash,
            "planned_by_version": plan.planned_by_version,
            "verdict": self.audit.verdict.value if self.audit else None,
            "sentence": self.sentence,
            "checks": [_check_json(check) for check in sort_by_severity(self.audit)] if self.audit else [],
            "records_read": sum(manifest.events_read for manifest in self.manifests),
            "fates": sum_fates(list(self.manifests)),
            "published": {
                "rows": publication.rows,
                "replaced_rows": publication.replaced_rows,
                "at": publication.published_at,
                "snapshots": dict(publication.snapshots),
            }
            if publication
            else None,
            "changed": dict(self.known.changes.totals.windows) if self.known.changes else None,
            "later_audit": asdict(self.known.later_audit) if self.known.later_audit else None,
            "verification": asdict(self.known.verification) if self.known.verification else None,
            "report": str(plan.folder.report) if plan.folder.report.exists() else None,
        }


def _check_json(check: Check) -> dict[str, Any]:
    names = ("name", "expectation", "observed", "limit", "unexpected_count", "element_count")
    values: dict[str, Any] = {name: getattr(check, name) for name in names}
    rows = [dict(row) for row in check.failing]
    return values | {"severity": check.severity.value, "outcome": check.outcome.value, "failing": rows}


def _fate_lines(manifests: Sequence[Manifest]) -> Iterator[str]:
    by_partition = sum_fates(list(manifests))
    if not by_partition:
        return
    fates = [fate for fate in FATES if any(counts.get(fate) for counts in by_partition.values())]
    yield f"| source partition | records | {' | '.join(FATE_WORDS[fate] for fate in fates)} |"
    yield "|---|" + "---:|" * (len(fates) + 1)
    for name, counts in sorted(by_partition.items()):
        cells = [sum(counts.values()), *(counts.get(fate, 0) for fate in fates)]
        yield f"| {_escape(name)} | {' | '.join(count_text(count) for count in cells)} |"


def _change_lines(changes: ChangeSummary) -> str:
    counts = ", ".join(f"{count_of(count, 'row')} {kind}" for kind, count in changes.totals.windows.items())
    verb = "Changed" if changes.is_published else "Would change"
    against = f", compared with {changes.against}" if changes.against else ""
    lines = [_escape(f"{verb}: {counts}{against}.")]
    for name, change in changes.totals.aggregates.items():
        rows = largest_changes(change)[:_MAX_CHANGES]
        largest = "; ".join(_change_text(row) for row in rows if row["difference"])
        text = f"{name}: {count_of(change.rows, 'row')}{f', largest {largest}' if largest else ''}"
        lines.append(f"* {_escape(text)}")
    return "\n".join(lines)


def _change_text(row: Mapping[str, Any]) -> str:
    keys = " ".join(str(value) for value in row["keys"].values())
    return f"{change_text(row['difference'])} ({row['window_start']:%Y-%m-%d %H:%M}{f' {keys}' if keys else ''})"


def _escape(text: str) -> str:
    """Return the text on one line, escaped: no table cell, tag, link, or mention starts in it."""
    escaped = html.escape(visible_line(text, _MAX_TEXT), quote=False)
    for mark, escape in (("|", "\\|"), ("[", "\\["), ("*", "\\*"), ("_", "\\_"), ("@", "&#64;")):
        escaped = escaped.replace(mark, escape)
    return escaped
