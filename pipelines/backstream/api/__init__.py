"""Run, compare, and read backfills from Python, e.g., from a notebook: the commands of the CLI as functions.

`import backstream` provides all functions of this module. A function imports its libraries at its first call.
"""

from backstream.api.results import diff, explain, hand_over, read, run_report, verify
from backstream.api.runs import RunResult, execute, plan, preview, publish, roll_back, run
from backstream.definition.loader import load_definition

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
