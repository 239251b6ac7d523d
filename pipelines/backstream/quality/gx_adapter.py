"""Build and run expectations with Great Expectations; no other module uses the library.

The library is never imported at module level, because the import takes seconds and would slow down a scheduler.
Each audit has its own ephemeral context, because another context searches parent folders for a project. A context
is never shared between threads and shows no progress bars.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, cast

import pandas as pd

from backstream.quality.window_rows import count_windows, list_windows
from backstream.runs.garbage_collection import pause_garbage_collection

_LAZY_MODULES = ("altair", "scipy.stats")
"""Modules that the library needs for checks of distributions only; they take 70 MB and half a second."""
_SKIPPED_MODULES = ("pyspark.sql.connect.dataframe", "pyspark.sql.connect.session")
"""Modules of Spark Connect, which pandas frames don't need; they take 16 MB."""
_IMPORT_LOCK = Lock()
_SMALL_SIZE = 100_000
"""The number of values up to which a whole frame takes less time than a batch, for which the context is saved."""
_COLUMN_PREFIXES = ("expect_column_values_", "expect_column_pair_values_")
"""Prefixes of the expectation types that read only the columns named in their arguments."""
_COMPARING_TYPES = (
    "expect_column_values_to_be_unique",
    "expect_column_values_to_be_increasing",
    "expect_column_values_to_be_decreasing",
)
"""Types with such a prefix that compare rows with each other."""
_EXCEPTION_LINE = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)(?::|$)")
_CONDITION_KEYS = ("row_condition", "condition_parser")
_MAX_LISTED_WINDOWS = 2_000_000
"""The number of windows up to which a check may get one row per window (1 GB)."""


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The result of an expectation: `failing` has all failing rows; `error` is the reason for a missing result."""

    is_met: bool
    error: str = ""
    observed: Any = None
    elements: int = 0
    unexpected: int = 0
    failing: pd.DataFrame = field(default_factory=pd.DataFrame)


def reason_not_buildable(type_name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return the reason why an expectation cannot be built; None if it can."""
    import_library()
    from great_expectations.compatibility.pydantic import ValidationError
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError, GreatExpectationsError

    try:
        _build_expectation(type_name, kwargs)
    except ExpectationNotFoundError:
        return f"type {type_name!r} is not one of Great Expectations'"
    except ValidationError as error:
        finding = error.errors()[0]
        key = ".".join(str(part) for part in finding["loc"] if part != "__root__")
        value = f", got {kwargs[key]!r}" if key in kwargs else ""
        return f"kwargs{'.' if key else ''}{key}: {finding['msg']}{value}"
    except GreatExpectationsError as error:
        return f"{type_name}: {error}"
    return None


@dataclass(frozen=True, slots=True)
class FrameExpectation:
    """One expectation of the rows of a frame: the name of the frame, the type, and its arguments."""

    frame: str
    type_name: str
    kwargs: Mapping[str, Any]


def validate_frames(
    frames: Mapping[str, pd.DataFrame], expected: Sequence[FrameExpectation]
) -> list[ExpectationResult]:
    """Return the result of each expectation for its frame."""
    validated = ExpectationFrames(frames)
    return [validated.validate(each.frame, each.type_name, each.kwargs) for each in expected]


class ExpectationFrames:
    """Frames by name, in a Great Expectations context of their own.

    The library copies and hashes its input, so an expectation gets only the columns that it reads.
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame]) -> None:
        self._frames, self._source, self._batches = frames, _create_source(), dict[str, Any]()

    def validate(self, name: str, type_name: str, kwargs: Mapping[str, Any]) -> ExpectationResult:
        """Return the result of one expectation for a frame, with numbers of windows if its rows are windows."""
        frame = self._frames[name]
        if "last_start" not in frame.columns or count_windows(frame) == len(frame):
            return self._validate(name, frame, type_name, kwargs)
        if not _judges_each_row(type_name, kwargs):
            return self._validate_list(name, frame, type_name, kwargs)
        result, domain = self._validate(name, frame, type_name, kwargs), frame
        if result.error:
            return result
        if condition := {key: value for key, value in kwargs.items() if key in _CONDITION_KEYS}:
            # The library doesn't return the rows that meet a condition, but those of them that fail: here, all.
            none = {"column": "windows", "value_set": [0], **condition}
            domain = self._validate(name, frame, "expect_column_values_to_be_in_set", none).failing
        elements, unexpected = count_windows(domain), count_windows(result.failing)
        is_met = not elements or (elements - unexpected) / elements >= kwargs.get("mostly", 1.0)
        return replace(result, is_met=is_met, elements=elements, unexpected=unexpected)

    def _validate_list(
        self, name: str, frame: pd.DataFrame, type_name: str, kwargs: Mapping[str, Any]
    ) -> ExpectationResult:
        """Return the result for one row per window, which needs as much memory as there are windows."""
        if (count := count_windows(frame)) > _MAX_LISTED_WINDOWS:
            reason = (
                f"{type_name} needs one row per window, and the run has {count:,} windows (at most"
                f" {_MAX_LISTED_WINDOWS:,}); use a shorter range or a larger window.size, or remove the check"
            )
            return ExpectationResult(is_met=False, error=reason)
        return self._validate(f"each of {name}", list_windows(frame), type_name, kwargs)

    def _validate(
        self, name: str, frame: pd.DataFrame, type_name: str, kwargs: Mapping[str, Any]
    ) -> ExpectationResult:
        return _validate_expectation(self._batch(name, frame, type_name, kwargs), type_name, kwargs, frame)

    def _batch(self, name: str, frame: pd.DataFrame, type_name: str, kwargs: Mapping[str, Any]) -> Any:
        """Return the columns of a frame that an expectation reads; all of them unless its type restricts them."""
        columns = list(frame.columns) if frame.size <= _SMALL_SIZE else _columns_of(frame, type_name, kwargs)
        key = " ".join([name, *columns])
        if key not in self._batches:
            # A copy puts columns of one type side by side, which the library would otherwise do for each check.
            part = frame[columns].copy()
            definition = self._source.add_dataframe_asset(key).add_batch_definition_whole_dataframe("all")
            self._batches[key] = definition.get_batch(batch_parameters={"dataframe": part})
        return self._batches[key]


def _judges_each_row(type_name: str, kwargs: Mapping[str, Any]) -> bool:
    """Return whether an expectation judges each row alone, and the same for all windows of a row."""
    reads_time = any(name in repr({**kwargs}) for name in ("window_start", "window_end", "last_start"))
    return type_name.startswith(_COLUMN_PREFIXES) and type_name not in _COMPARING_TYPES and not reads_time


def _columns_of(frame: pd.DataFrame, type_name: str, kwargs: Mapping[str, Any]) -> list[str]:
    """Return the columns whose names occur anywhere in the arguments, because a row condition may be text."""
    if not type_name.startswith(_COLUMN_PREFIXES) or kwargs.get("column", frame.columns[0]) not in frame.columns:
        return list(frame.columns)
    text = repr({**kwargs})
    return [name for name in frame.columns if name in text]


def _create_source() -> Any:
    library = import_library()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = library.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context.data_sources.add_pandas("audit")


def _validate_expectation(
    batch: Any, type_name: str, kwargs: Mapping[str, Any], frame: pd.DataFrame
) -> ExpectationResult:
    """Return the result of one expectation for a frame; an exception becomes the error of the result.

    Args:
        batch: a batch of `ExpectationFrames`.
        type_name: the type, e.g., `expect_column_values_to_be_between`.
        kwargs: its arguments, without parameters.
        frame: the frame of the batch, with all its columns.
    """
    try:
        # The index of failing rows is enough; the library would copy further columns one by one.
        result = batch.validate(_build_expectation(type_name, kwargs), result_format="COMPLETE")
    except Exception as error:  # noqa: BLE001 - a check that cannot run is an outcome, whatever the library raises
        return ExpectationResult(is_met=False, error=_error_text(error))
    exception = _exception_text(result.exception_info)
    if exception or not result.result:
        return ExpectationResult(is_met=False, error=exception or "no result")
    return ExpectationResult(
        is_met=bool(result.success),
        observed=result.result.get("observed_value"),
        elements=int(result.result.get("element_count", 0)),
        unexpected=int(result.result.get("unexpected_count", 0)),
        failing=frame.loc[list(result.result.get("unexpected_index_list") or ())],
    )


def _build_expectation(type_name: str, kwargs: Mapping[str, Any]) -> Any:
    import_library()
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    return ExpectationConfiguration(type=type_name, kwargs=dict(kwargs)).to_domain_obj()


def _exception_text(info: Any) -> str:
    """Return the message and the cause of an exception, which the library keeps per check or metric, or empty."""
    for entry in (info, *info.values()):
        if isinstance(entry, dict) and entry.get("raised_exception"):
            message = str(entry.get("exception_message") or "unknown exception")
            cause = _first_exception(str(entry.get("exception_traceback") or ""))
            if cause.partition(": ")[2] in message:  # the cause has its class, too
                return cause or message
            return f"{message}; cause: {cause}"
    return ""


def _first_exception(traceback: str) -> str:
    """Return the first exception of a traceback as text: the one that caused the others; empty without any."""
    found = next((line for line in traceback.splitlines() if _EXCEPTION_LINE.match(line)), "")
    name, colon, message = found.partition(": ")
    return f"{name.rpartition('.')[2]}{colon}{message}"


def _error_text(error: BaseException) -> str:
    """Return an exception with the one that caused it at first, if there is one."""
    cause = error
    while earlier := cause.__cause__ or cause.__context__:
        cause = earlier
    texts = dict.fromkeys(f"{type(each).__name__}: {each}".removesuffix(": ") for each in (error, cause))
    return "; cause: ".join(texts)


def import_library(*, has_spark: bool = True) -> Any:
    """Return the library, imported without warnings: it imports modules that Python deprecates.

    Args:
        has_spark: whether this process may use PySpark, which the library imports if it can.
    """
    with _IMPORT_LOCK, warnings.catch_warnings(), pause_garbage_collection():
        warnings.simplefilter("ignore")
        # At level INFO, it logs hundreds of notes about its own documentation.
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        if "great_expectations" in sys.modules:
            return import_module("great_expectations")
        # In `sys.modules`, None means that a module cannot be imported.
        placeholders = {name: _LazyModule(name) for name in _LAZY_MODULES} | dict.fromkeys(_SKIPPED_MODULES)
        placeholders |= {} if has_spark else {"pyspark": None}
        placeholders = {name: module for name, module in placeholders.items() if name not in sys.modules}
        sys.modules.update(cast("dict[str, ModuleType]", placeholders))
        try:
            return import_module("great_expectations")
        finally:
            for name, module in placeholders.items():
                if name in sys.modules and sys.modules[name] is module:
                    del sys.modules[name]


class _LazyModule(ModuleType):
    """A module that is imported at its first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # Python reads these attributes during imports
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)
