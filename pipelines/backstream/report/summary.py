"""A run in brief: one sentence for chat, a page of Markdown for a pull request, an object for programs."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstream.definition.model import Definition
from backstream.eventtime.instants import instant_text
from backstream.report.completeness_map import range_words
from backstream.report.descriptions import describe_publication, reason_not_published
from backstream.report.failing_rows import group_failing_rows
from backstream.report.figures import FATE_WORDS, FATES, sort_by_severity
from backstream.report.formatting import change_text, count_of, count_text, sentence
from backstream.report.run_context import ChangeSummary, RunContext
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Check, CheckOutcome, Publication

_MARKS = {"pass": "✅", "info": "📝", "warn": "⚠️", "fail": "❌", "error": "❓", "none": "⏸️"}
_WINDOWS_NAMED, _CHANGES_NAMED = 5, 3
_NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run has left, as far as it has come."""

    plan: Plan
    definition: Definition
    manifests: Sequence[Manifest] = ()
    audit: Audit | None = None
    publication: Publication | None = None
    known: RunContext = field(default_factory=RunContext)

    @property
    def verdict(self) -> str:
        """`pass`, `warn`, `fail`, `error`, or that there is none."""
        return self.audit.verdict.value if self.audit else _NO_VERDICT

    @property
    def sentence(self) -> str:
        """The run in one sentence: `flights, 1 Feb 2013 to 28 Feb 2013: warn: 35 of ..; 4,499 rows published ..`.

        Every short message is this one, whoever sends it.
        """
        found = f"{self.verdict}: {self.audit.summary}" if self.audit else self.verdict
        return f"{self.plan.dataset}, {range_words(self.plan.range)}: {found}; {self._outcome()}"

    @property
    def _mark(self) -> str:
        return _MARKS.get(self.verdict, _MARKS["none"])

    def _outcome(self) -> str:
        if self.publication:
            return describe_publication(self.publication)
        unfinished = len(self.plan.chunks) - len(self.manifests)
        return f"nothing was published: {reason_not_published(self.plan, self.audit, unfinished)}"

    def markdown(self) -> str:
        """The run for a pull request or a chat that knows Markdown; nothing from data is markup."""
        parts = [
            f"### {self._mark} {_plain(self.plan.dataset)}, {range_words(self.plan.range)}",
            _plain(sentence(self.audit.summary if self.audit else self._outcome())),
            f"**{_plain(sentence(self._outcome()))}**",
            *self._checks(),
            "\n".join(_fates(self.manifests)),
            *([_changes(self.known.changes)] if self.known.changes else []),
            _plain(f"Run `{self.plan.run_id}`, {self.plan.mode}, plan `{self.plan.plan_hash}`, all times UTC."),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _checks(self) -> Iterator[str]:
        if self.audit is None:
            return
        missed = [check for check in sort_by_severity(self.audit) if check.outcome is not CheckOutcome.PASS]
        passed = len(self.audit.checks) - len(missed)
        checks = count_of(len(self.audit.checks), "check")
        yield f"{passed} of {checks} of suite {_plain(self.audit.suite)} passed."
        if missed:
            rows = [self._check(check) for check in missed]
            yield "\n".join(["| | check | found | where |", "|---|---|---|---|", *rows])

    def _check(self, check: Check) -> str:
        named = [
            f"{group.source_partition} {row}".strip()
            for group in group_failing_rows(check, self.definition.unit_ms)
            for row in group.rows or ("",)
        ]
        is_more = check.unexpected_count > len(check.failing) or len(named) > _WINDOWS_NAMED
        where = _plain("; ".join(named[:_WINDOWS_NAMED])) + ("; .." if named and is_more else "")
        return f"| {_MARKS[check.outcome]} | {_plain(check.name)} | {_plain(check.observed)} | {where} |"

    def as_json(self) -> dict[str, Any]:
        """All of it for programs; instants as ISO 8601, the report's path where there is a report."""
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
            "checks": [_told(check) for check in sort_by_severity(self.audit)] if self.audit else [],
            "records_read": sum(each.events_read for each in self.manifests),
            "fates": sum_fates(list(self.manifests)),
            "published": {
                "rows": publication.rows,
                "replaced_rows": publication.replaced_rows,
                "at": publication.published_at,
                "snapshots": dict(publication.snapshots),
            }
            if publication
            else None,
            "changed": dict(self.known.changes.windows) if self.known.changes else None,
            "report": str(plan.folder.report) if plan.folder.report.exists() else None,
        }


def _told(check: Check) -> dict[str, Any]:
    names = ("name", "expectation", "observed", "limit", "unexpected_count", "element_count")
    told: dict[str, Any] = {name: getattr(check, name) for name in names}
    rows = [dict(row) for row in check.failing]
    return told | {"severity": check.severity.value, "outcome": check.outcome.value, "failing": rows}


def _fates(manifests: Sequence[Manifest]) -> Iterator[str]:
    by_partition = sum_fates(list(manifests))
    if not by_partition:
        return
    fates = [fate for fate in FATES if any(counts.get(fate) for counts in by_partition.values())]
    yield f"| source partition | records | {' | '.join(FATE_WORDS[fate] for fate in fates)} |"
    yield "|---|" + "---:|" * (len(fates) + 1)
    for name, counts in sorted(by_partition.items()):
        cells = [sum(counts.values()), *(counts.get(fate, 0) for fate in fates)]
        yield f"| {_plain(name)} | {' | '.join(count_text(count) for count in cells)} |"


def _changes(changed: ChangeSummary) -> str:
    counts = ", ".join(f"{count_of(count, 'row')} {kind}" for kind, count in changed.windows.items())
    verb = "Changed" if changed.is_published else "Would change"
    lines = [_plain(f"{verb}: {counts}{f' against {changed.against}' if changed.against else ''}.")]
    for each in changed.aggregates:
        largest = "; ".join(_change(row) for row in each.largest[:_CHANGES_NAMED] if row["difference"])
        told = f"{each.name}: {count_of(each.rows, 'row')}{f', largest {largest}' if largest else ''}"
        lines.append(f"* {_plain(told)}")
    return "\n".join(lines)


def _change(row: Mapping[str, Any]) -> str:
    keys = " ".join(str(value) for value in row["keys"].values())
    return f"{change_text(row['difference'])} ({row['window_start']:%Y-%m-%d %H:%M}{f' {keys}' if keys else ''})"


def _plain(text: str) -> str:
    """The text as Markdown shows it: no table cell, tag, link, mention or line begins in it."""
    shown = html.escape(" ".join(text.split()), quote=False)
    for mark, told in (("|", "\\|"), ("[", "\\["), ("*", "\\*"), ("_", "\\_"), ("@", "&#64;")):
        shown = shown.replace(mark, told)
    return shown
