"""Pause the garbage collection of Python where many objects are made and few are garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection in a block: each search visits all new objects.

    Objects without cycles are freed as before. Another thread that leaves such a block earlier ends the pause.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
