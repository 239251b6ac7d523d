"""Define what a check of an installation finds: one line per part, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from backstream.errors import BackstreamError

_HINT = "hint: "
_MAX_CLOCK_DIFFERENCE_S = 5


class State(StrEnum):
    """State of a part of an installation; a run may fail only because of `FAIL`."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of an installation, with its state in one sentence, and the remedy; empty if there is none."""

    part: str
    state: State
    text: str
    remedy: str = ""

    @classmethod
    def from_error(cls, part: str, error: BackstreamError) -> Finding:
        """Return the finding for an error: its first line with the indented ones, and its hint as the remedy."""
        first, *others = str(error).splitlines()
        hints = [line.removeprefix(_HINT) for line in others if line.startswith(_HINT)]
        details = "; ".join(line.strip() for line in others if line.startswith("  "))
        return cls(part, State.FAIL, f"{first}: {details}" if details else first, "; ".join(hints))

    def __str__(self) -> str:
        """Return the finding as one line."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.state:<4}  {self.part:<11}  {self.text}{remedy}"


def ok(part: str, text: str) -> Finding:
    """Return the finding for a part that works."""
    return Finding(part, State.OK, text)


def warn(part: str, text: str, remedy: str = "") -> Finding:
    """Return the finding for a part that works, but probably not as the user wants."""
    return Finding(part, State.WARN, text, remedy)


def fail(part: str, text: str, remedy: str = "") -> Finding:
    """Return the finding for a part that makes runs fail."""
    return Finding(part, State.FAIL, text, remedy)


def check_clock(place: str, difference_s: float) -> Iterator[Finding]:
    """Yield a finding if the clock of a place differs from that of this machine."""
    if abs(difference_s) > _MAX_CLOCK_DIFFERENCE_S:
        text = f"the clock of {place} differs from that of this machine by {difference_s:,.0f} s"
        yield fail("clock", text, "synchronize both clocks, e.g., with NTP")
