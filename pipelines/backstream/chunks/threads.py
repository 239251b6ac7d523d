"""Run native tasks in threads of this process: for small inputs, since nothing has to start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from backstream.storage.stores import Stores

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Threads:
    """A `Tasks` in this process. A task that ends its process ends all of them."""

    slots: int = 2
    memory_mb: int = 1_500

    def run(
        self, function: Callable[[Work, Stores], Result], tasks: Sequence[Work], code: Sequence[str] = ()
    ) -> list[Result]:
        """Return the result of a function for each task; see `Tasks`."""
        stores = Stores.from_environment()
        with ThreadPoolExecutor(self.slots) as pool:
            return list(pool.map(lambda task: function(task, stores), tasks))

    def start(self) -> None:
        """Do nothing: threads start with their tasks."""

    def cancel(self) -> None:
        """Do nothing: threads end with their tasks."""
