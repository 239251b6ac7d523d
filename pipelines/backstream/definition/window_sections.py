"""Define the section `[window]` of a definition, with a class per kind of window."""

from __future__ import annotations

from typing import Literal

from backstream.definition.values import Duration, PositiveDuration, Section
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling


class TumblingWindow(Section):
    """Tumbling window: `kind = "tumbling"`."""

    kind: Literal["tumbling"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Tumbling:
        """Return the window for the engines."""
        return Tumbling(self.size, self.offset)


class SlidingWindow(Section):
    """Sliding window: `kind = "sliding"`."""

    kind: Literal["sliding"]
    """The kind of window."""
    size: PositiveDuration
    """The length of a window."""
    slide: PositiveDuration
    """The time between the starts of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Sliding:
        """Return the window for the engines."""
        return Sliding(self.size, self.slide, self.offset)


class SessionWindow(Section):
    """Session window, `kind = "session"`: events of a key that are at most a gap apart are in the same session."""

    kind: Literal["session"]
    """The kind of window."""
    gap: PositiveDuration
    """The longest pause within a session."""

    def spec(self) -> Session:
        """Return the window for the engines."""
        return Session(self.gap)


class CumulateWindow(Section):
    """Cumulating window, `kind = "cumulate"`: windows with the same start, which grow by a step up to the size."""

    kind: Literal["cumulate"]
    """The kind of window."""
    size: PositiveDuration
    """The maximum length of a window, a multiple of `step`."""
    step: PositiveDuration
    """The difference between the lengths of two windows."""
    offset: Duration = 0
    """The shift of all windows from the Unix epoch."""

    def spec(self) -> Cumulate:
        """Return the window for the engines."""
        return Cumulate(self.size, self.step, self.offset)
