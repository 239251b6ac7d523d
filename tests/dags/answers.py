"""Parts of several answers of Airflow."""

from __future__ import annotations

import sys
from collections.abc import Callable

HEAVY = (
    "pyspark",
    "pandas",
    "great_expectations",
    "numpy",
    "pyarrow",
    "pyiceberg",
    "backstream.orchestration.openlineage",
)


def raised(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the answer is which one it is
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def heavy() -> list[str]:
    return [module for module in HEAVY if module in sys.modules]
