"""What an audit finds: checks with their outcome, and one verdict over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from backstream.runs.home import load_json, write_json


class Severity(StrEnum):
    """How much a failed check weighs."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class CheckOutcome(StrEnum):
    """What became of one check."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    INFO = "info"
    """Missed, and only worth a note."""
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    """Could not run: never a pass."""


class Verdict(StrEnum):
    """The gate's answer."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"

    @property
    def may_publish(self) -> bool:
        """Whether the result may become visible."""
        return self in (Verdict.PASS, Verdict.WARN)


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation and what it found.

    `observed` is a sentence or number for people; `failing` names the first failing rows of the audit
    frame as `{"source_partition": .., "window_start": ISO text}`; `unexpected_count` counts all of them of
    `element_count` looked at.
    """

    name: str
    expectation: str
    severity: Severity
    outcome: CheckOutcome
    observed: str = ""
    column: str | None = None
    limit: str = ""
    unexpected_count: int = 0
    element_count: int = 0
    failing: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks of a run, the verdict over them, and one sentence that says it.

    `overridden` is why a result that failed is published all the same; empty: it is not.
    """

    run_id: str
    suite: str
    verdict: Verdict
    summary: str
    checks: tuple[Check, ...]
    overridden: str = ""

    @property
    def may_publish(self) -> bool:
        """Whether the result may become visible: by its verdict, or because someone took a failure upon himself.

        What could not be checked is not published, whoever says so.
        """
        return self.verdict.may_publish or (self.verdict is Verdict.FAIL and bool(self.overridden))

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The audit in a file.

        Raises:
            LedgerError: when there is no such file.
        """
        content = load_json(path, "verdict")
        return cls(**content | {"verdict": Verdict(content["verdict"]), "checks": _checks(content["checks"])})


def worst_verdict(checks: Sequence[Check]) -> Verdict:
    """The gravest outcome: error over fail over warn; nothing checked at all is an error."""
    outcomes = {check.outcome for check in checks}
    if not checks or CheckOutcome.ERROR in outcomes:
        return Verdict.ERROR
    if CheckOutcome.FAIL in outcomes:
        return Verdict.FAIL
    return Verdict.WARN if CheckOutcome.WARN in outcomes else Verdict.PASS


def _checks(content: Sequence[Mapping[str, Any]]) -> tuple[Check, ...]:
    return tuple(
        Check(
            **dict(each)
            | {
                "severity": Severity(each["severity"]),
                "outcome": CheckOutcome(each["outcome"]),
                "failing": tuple(each["failing"]),
            }
        )
        for each in content
    )


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """The answer, who gave it (empty: nobody did in time), and when, as ISO 8601 text."""

    is_approved: bool
    by: str
    at: str

    def __str__(self) -> str:
        """Such as `approved by ada` or `rejected, nobody answered in time`."""
        if not self.by:
            return "rejected, nobody answered in time"
        return f"{'approved' if self.is_approved else 'rejected'} by {self.by}"

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The decision in a file; None when there is no such file."""
        if not path.exists():
            return None
        content: dict[str, Any] = load_json(path, "decision")
        return cls(**content)


_ROLLBACK = "rollback-"
"""What the id of a run that undoes another begins with; the other id follows."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The commit of one run.

    `snapshots` maps each table's suffix to its snapshot; `already` says that an earlier attempt did it.
    """

    run_id: str
    dataset: str
    since_ms: int
    until_ms: int
    snapshots: Mapping[str, int]
    rows: int
    replaced_rows: int
    files: int
    published_at: str
    already: bool = False

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The publication in a file.

        Raises:
            LedgerError: when there is no such file.
        """
        content: dict[str, Any] = load_json(path, "publication")
        return cls(**content)


def rollback_id(run_id: str) -> str:
    """The id under which the rollback of a run is itself published."""
    return f"{_ROLLBACK}{run_id}"


def undone_run_id(rollback: str) -> str | None:
    """The run that a rollback undid, by the id of the rollback; None: it is no rollback."""
    return rollback.removeprefix(_ROLLBACK) if rollback.startswith(_ROLLBACK) else None
