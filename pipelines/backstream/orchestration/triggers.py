"""Define the trigger that waits for a job in another place, in the triggerer instead of in a slot of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from backstream.orchestration.java_traces import JavaTraces
from backstream.orchestration.runners.job_runner import JobFollower
from backstream.orchestration.runners.selection import make_runner
from backstream.text import text_logger

_POLL_S = 2.0

log = text_logger(__name__)


class JobTrigger(BaseTrigger):
    """Trigger that fires when a job has ended, with its last state, and that prints the log of its driver.

    If a person ends the task meanwhile, the job is ended, too (from Airflow 3.3 on).
    """

    def __init__(
        self, kind: str, settings: dict[str, Any], job_id: str, error_location: str, ends_at_s: float | None = None
    ) -> None:
        """Follow a job that a runner has submitted.

        Args:
            kind: class of the runner.
            settings: arguments of the runner.
            job_id: id of the job.
            error_location: file or object for the error of the driver.
            ends_at_s: limit, in seconds since 1970.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.arguments = {
            "kind": kind,
            "settings": settings,
            "job_id": job_id,
            "error_location": error_location,
            "ends_at_s": ends_at_s,
        }
        self.error_location = error_location
        self.follower = JobFollower(make_runner(kind, settings), job_id, ends_at_s, _show)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments, from which a triggerer makes the trigger again."""
        return f"{__name__}.{type(self).__name__}", self.arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the job; yield one event with its state."""
        while True:
            state = await asyncio.to_thread(self.follower.look)
            if state is not None:
                break
            await asyncio.sleep(_POLL_S)
        event = {"state": state.as_json(), "error_location": self.error_location}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """End the job."""
        await asyncio.to_thread(self.follower.cancel)
        log.info("ended job %s", self.arguments["job_id"])


def _show(lines: Iterable[str]) -> None:
    for line in JavaTraces.without_frames(lines):
        log.info("%s", line)
