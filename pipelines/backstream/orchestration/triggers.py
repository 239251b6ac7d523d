"""Define the trigger that waits for a driver on a cluster, in the triggerer instead of in a slot of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from backstream.errors import JobError
from backstream.orchestration.standalone_cluster import UNKNOWN, StandaloneCluster, has_ended
from backstream.text import text_logger

_POLL_S = 5.0
_MAX_SILENCE_S = 300.0
"""The time after which a driver is lost that the master doesn't know, or whose master doesn't answer."""
LOST, TIMED_OUT = "LOST", "TIMED_OUT"

log = text_logger(__name__)


class DriverTrigger(BaseTrigger):
    """Trigger that fires when a driver on a standalone cluster has ended, with its last state.

    If a person ends the task meanwhile, the driver is ended, too (from Airflow 3.3 on).
    """

    def __init__(
        self, master: str, url: str, driver_id: str, error_file: str, ends_at_s: float | None = None
    ) -> None:
        """Follow a driver, which leaves its error in a file; `ends_at_s`, in seconds since 1970, is its limit."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.cluster = StandaloneCluster(master, url)
        self.driver_id = driver_id
        self.error_file = error_file
        self.ends_at_s = ends_at_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments, from which a triggerer makes the trigger again."""
        return f"{__name__}.{type(self).__name__}", {
            "master": self.cluster.master,
            "url": self.cluster.url,
            "driver_id": self.driver_id,
            "error_file": self.error_file,
            "ends_at_s": self.ends_at_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the driver; yield one event with its state."""
        event = {"driver_id": self.driver_id, "error_file": self.error_file, "state": await self._wait()}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _wait(self) -> str:
        silent_since_s = None
        while True:
            state = await self._load_state()
            if has_ended(state):
                return state
            if self.ends_at_s is not None and time.time() >= self.ends_at_s:
                await self.on_kill()
                return TIMED_OUT
            now_s = time.monotonic()
            silent_since_s = (silent_since_s or now_s) if state == UNKNOWN else None
            if silent_since_s is not None and now_s - silent_since_s > _MAX_SILENCE_S:
                return LOST
            await asyncio.sleep(_POLL_S)

    async def _load_state(self) -> str:
        """Return the state of the driver; a master that doesn't answer doesn't know it at the moment."""
        try:
            return await asyncio.to_thread(self.cluster.load_state, self.driver_id)
        except JobError as error:
            log.warning("%s", error)
            return UNKNOWN

    async def on_kill(self) -> None:
        """End the driver."""
        await asyncio.to_thread(self.cluster.kill, self.driver_id)
        log.info("ended driver %s on the cluster", self.driver_id)
