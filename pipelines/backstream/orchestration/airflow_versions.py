"""Import the names that Airflow 3.1 has in other modules, and list what only later versions can do."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

AIRFLOW = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])
"""The installed version, such as `(3, 3)`."""
HAS_DEADLINES = AIRFLOW >= (3, 2)
"""Airflow 3.1 calls a deadline only in its triggerer, with a callback of another kind."""
HAS_PAUSED_STATE = AIRFLOW >= (3, 2)
"""A task of Airflow 3.1 cannot query whether another DAG is paused."""
HAS_ASSET_PARTITIONS = AIRFLOW >= (3, 3)
"""A task of Airflow 3.2 cannot name the partitions of an asset that it has updated."""
EXPONENTIAL_BACKOFF: float | bool = 2.0 if AIRFLOW >= (3, 2) else True
"""The value with which the delay doubles with each retry; Airflow 3.1 accepts no number."""


def _find(name: str, *modules: str) -> Any:
    """Return a name from the first module that has it."""
    for module in modules:
        with suppress(ModuleNotFoundError):
            if (found := getattr(import_module(module), name, None)) is not None:
                return found
    msg = f"Airflow {version('apache-airflow-core')} has no {name}"
    raise ImportError(msg)


if TYPE_CHECKING:
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException
else:
    _EXCEPTIONS = ("airflow.sdk.exceptions", "airflow.exceptions")
    AirflowFailException = _find("AirflowFailException", *_EXCEPTIONS)
    AirflowNotFoundException = _find("AirflowNotFoundException", *_EXCEPTIONS)
    AirflowSkipException = _find("AirflowSkipException", *_EXCEPTIONS)
    CronDataIntervalTimetable = _find("CronDataIntervalTimetable", "airflow.sdk", "airflow.timetables.interval")

__all__ = [
    "AIRFLOW",
    "HAS_ASSET_PARTITIONS",
    "HAS_DEADLINES",
    "HAS_PAUSED_STATE",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "CronDataIntervalTimetable",
]


def load_stats() -> Any:
    """Return Airflow's interface for metrics, with `incr` and `timing`. Only tasks use it."""
    return _find("Stats", "airflow.sdk.observability.stats", "airflow.observability.stats", "airflow.stats")


def load_never_expire() -> Any:
    """Return the retention of a state of a task that Airflow keeps as long as the Dag run; Airflow 3.3 has it."""
    return _find("NEVER_EXPIRE", "airflow.sdk.execution_time.context")


def load_settings() -> Any:
    """Return Airflow's configuration, with `get` and `getboolean`."""
    return _find("conf", "airflow.sdk.configuration", "airflow.configuration")


def list_switched_off(installed: tuple[int, ...]) -> list[str]:
    """Return a sentence per feature that a version of Airflow lacks."""
    needed = {
        "backfill.deadline sends an alert: needs Airflow 3.2": (3, 2),
        "the task restate is skipped while its DAG is paused: needs Airflow 3.2; below, it waits": (3, 2),
        "each published day is a partition of the asset <name>.days: needs Airflow 3.3": (3, 3),
        "a canceled run ends its driver on a standalone cluster: needs Airflow 3.3": (3, 3),
    }
    return [sentence for sentence, least in needed.items() if installed < least]
