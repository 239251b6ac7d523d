"""What a round is made of."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Sums(NamedTuple):
    """What a job's result adds up to; jobs that compute the same must agree."""

    windows: int
    events: int
    total: int


class Job(Protocol):
    """Something to be timed."""

    @property
    def name(self) -> str:
        """What results know it by."""

    def run(self) -> None:
        """Do all of it, once."""

    def checked(self) -> Sums:
        """Do it once, and say what came out."""
