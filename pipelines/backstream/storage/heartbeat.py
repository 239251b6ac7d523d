"""Call a function at regular intervals for the time of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heartbeat(beat: Callable[[], object], interval_s: float) -> Iterator[None]:
    """Call a function that does not raise, in a thread, first after one interval.

    At the end of the block, a call that has begun is finished.
    """
    has_ended = threading.Event()

    def repeat() -> None:
        while not has_ended.wait(interval_s):
            beat()

    # A daemon, because a process that has to end does not wait for a heartbeat.
    thread = threading.Thread(target=repeat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
