"""backstream re-runs history: bounded streams with Flink's event-time rules, checked, then published.

The functions of `backstream.api` are imported at their first use, so that `import backstream` stays fast.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backstream.api import *  # noqa: F403 - `__all__` of the module has their names

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return the function of `backstream.api` with this name, or the list of all names."""
    is_of_package = name.startswith("__") or find_spec(f"{__name__}.{name}")
    if name == "__all__" or not is_of_package:
        api = import_module(f"{__name__}.api")
        if name in (*api.__all__, "__all__"):
            return getattr(api, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
