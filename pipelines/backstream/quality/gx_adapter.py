"""The one place that touches Great Expectations: is an expectation well formed, and what does a frame answer.

Nothing is imported from it at module level: it takes seconds, and a scheduler must not pay for them.
The context is ephemeral (a plain one searches parent folders for a project), one per audit and never shared
between threads, and draws no progress bars.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, cast

import pandas as pd

_FEW_NEED = ("altair", "scipy.stats")
"""The library imports them for checks of distributions; they take 70 MB, and half a second."""
_FOR_SPARK_CONNECT = ("pyspark.sql.connect.dataframe", "pyspark.sql.connect.session")
"""The library does without them, and what is checked here is pandas. They take 16 MB."""
_IMPORTING = Lock()
_OF_COLUMNS = ("expect_column_values_", "expect_column_pair_values_")
"""How the types of expectations begin that look at the columns which they name, and at no others."""


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """What a frame answered: `failing` has all failing rows; `error` says why there is no answer."""

    is_met: bool
    error: str = ""
    observed: Any = None
    elements: int = 0
    unexpected: int = 0
    failing: pd.DataFrame = field(default_factory=pd.DataFrame)


def reason_not_buildable(type_name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Why an expectation cannot be built, None if it can."""
    import_library()
    from great_expectations.compatibility.pydantic import ValidationError
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError, GreatExpectationsError

    try:
        _expectation(type_name, kwargs)
    except ExpectationNotFoundError:
        return f"type {type_name!r} is not one of Great Expectations'"
    except ValidationError as error:
        finding = error.errors()[0]
        key = ".".join(str(part) for part in finding["loc"] if part != "__root__")
        got = f", got {kwargs[key]!r}" if key in kwargs else ""
        return f"kwargs{'.' if key else ''}{key}: {finding['msg']}{got}"
    except GreatExpectationsError as error:
        return f"{type_name}: {error}"
    return None


class ExpectationFrames:
    """Frames as Great Expectations takes them, by name, in a context of their own.

    An expectation gets the columns that it is about: the library copies and hashes all that it gets.
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame]) -> None:
        self._frames, self._source, self._batches = frames, _source(), dict[str, Any]()

    def batch(self, name: str, type_name: str, kwargs: Mapping[str, Any]) -> Any:
        """The columns of a frame that an expectation is about; all of them where its type does not say which."""
        frame = self._frames[name]
        columns = _columns_asked(frame, type_name, kwargs)
        key = " ".join([name, *columns])
        if key not in self._batches:
            # Columns of one type side by side in memory: else the library moves them there for each question.
            part = frame[columns].copy()
            definition = self._source.add_dataframe_asset(key).add_batch_definition_whole_dataframe("all")
            self._batches[key] = definition.get_batch(batch_parameters={"dataframe": part})
        return self._batches[key]


def _columns_asked(frame: pd.DataFrame, type_name: str, kwargs: Mapping[str, Any]) -> list[str]:
    """Those that the arguments name anywhere: a condition for rows may be text, too."""
    if not type_name.startswith(_OF_COLUMNS) or kwargs.get("column", frame.columns[0]) not in frame.columns:
        return list(frame.columns)
    text = repr({**kwargs})
    return [name for name in frame.columns if name in text]


def _source() -> Any:
    library = import_library()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = library.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context.data_sources.add_pandas("audit")


def validate_expectation(
    batch: Any, type_name: str, kwargs: Mapping[str, Any], frame: pd.DataFrame
) -> ExpectationResult:
    """What a frame answers to one expectation; whatever is raised on the way is the answer's error.

    Args:
        batch: of `Asked`.
        type_name: such as `expect_column_values_to_be_between`.
        kwargs: its arguments, parameters filled in.
        frame: what the batch was made of, with all its columns.
    """
    try:
        # Failing rows come by their index: the library would take the columns that name them out one by one.
        result = batch.validate(_expectation(type_name, kwargs), result_format="COMPLETE")
    except Exception as error:  # noqa: BLE001 - a check that cannot run is an outcome, whatever the library raises
        return ExpectationResult(is_met=False, error=f"{type(error).__name__}: {error}")
    raised = _raised(result.exception_info)
    if raised or not result.result:
        return ExpectationResult(is_met=False, error=raised or "no result")
    return ExpectationResult(
        is_met=bool(result.success),
        observed=result.result.get("observed_value"),
        elements=int(result.result.get("element_count", 0)),
        unexpected=int(result.result.get("unexpected_count", 0)),
        failing=frame.loc[list(result.result.get("unexpected_index_list") or ())],
    )


def _expectation(type_name: str, kwargs: Mapping[str, Any]) -> Any:
    import_library()
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    return ExpectationConfiguration(type=type_name, kwargs=dict(kwargs)).to_domain_obj()


def _raised(info: Any) -> str:
    """The message of an exception, which the library keeps per check or per metric; empty if none."""
    for each in (info, *info.values()):
        if isinstance(each, dict) and each.get("raised_exception"):
            return str(each.get("exception_message") or "unknown exception")
    return ""


def import_library() -> Any:
    """The library, imported with warnings off: it imports modules that Python is about to remove."""
    with _IMPORTING, warnings.catch_warnings(), _without_collector():
        warnings.simplefilter("ignore")
        if "great_expectations" in sys.modules:
            return import_module("great_expectations")
        # None is how Python notes that a module cannot be imported.
        instead = {name: _Deferred(name) for name in _FEW_NEED} | dict.fromkeys(_FOR_SPARK_CONNECT)
        instead = {name: module for name, module in instead.items() if name not in sys.modules}
        sys.modules.update(cast("dict[str, ModuleType]", instead))
        try:
            return import_module("great_expectations")
        finally:
            for name, module in instead.items():
                if name in sys.modules and sys.modules[name] is module:
                    del sys.modules[name]


class _Deferred(ModuleType):
    """A module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # Python asks for these while it imports
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Let Python not look for garbage: an import leaves hardly any, and the search takes a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
