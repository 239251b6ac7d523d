"""backstream re-runs history: bounded streams with Flink's event-time rules, checked, then published.

The functions of `backstream.api` are imported at their first use, so that `import backstream` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backstream.api import (
        RunResult,
        diff,
        execute,
        explain,
        hand_over,
        load_definition,
        plan,
        preview,
        publish,
        read,
        roll_back,
        run,
        run_report,
        verify,
    )

__version__ = "0.1.0"

__all__ = [
    "RunResult",
    "diff",
    "execute",
    "explain",
    "hand_over",
    "load_definition",
    "plan",
    "preview",
    "publish",
    "read",
    "roll_back",
    "run",
    "run_report",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import the function with this name."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.api"), name)
