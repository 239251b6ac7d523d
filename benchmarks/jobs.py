"""The interface of the jobs in a round, and the sums of their results."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Sums(NamedTuple):
    """The sums of a job's result. Jobs that compute the same result must have the same sums."""

    windows: int
    events: int
    total: int


class Job(Protocol):
    """A job that the benchmark times."""

    @property
    def name(self) -> str:
        """The name of the job in the results."""

    def run(self) -> None:
        """Run the whole job once."""

    def checked(self) -> Sums:
        """Run the job once, and return the sums of its result."""
