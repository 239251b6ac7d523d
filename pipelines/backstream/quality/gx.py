"""The one place that touches Great Expectations: is an expectation well formed, and what does a frame answer.

Nothing is imported from it at module level: it takes seconds, and a scheduler must not pay for them.
The context is ephemeral (a plain one searches parent folders for a project), one per audit and never shared
between threads, and draws no progress bars.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True)
class Answer:
    """What a frame answered: `failing` has all failing rows; `error` says why there is no answer."""

    is_met: bool
    error: str = ""
    observed: Any = None
    elements: int = 0
    unexpected: int = 0
    failing: pd.DataFrame = field(default_factory=pd.DataFrame)


def refusal(type_name: str, kwargs: Mapping[str, Any]) -> str | None:
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


def batches(frames: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The frames as Great Expectations takes them, by name, in a context of their own."""
    library = import_library()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = library.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("audit")
    return {
        name: source.add_dataframe_asset(name)
        .add_batch_definition_whole_dataframe("all")
        .get_batch(batch_parameters={"dataframe": frame})
        for name, frame in frames.items()
    }


def answer(batch: Any, type_name: str, kwargs: Mapping[str, Any], frame: pd.DataFrame) -> Answer:
    """What a frame answers to one expectation; whatever is raised on the way is the answer's error.

    Args:
        batch: one of `batches`.
        type_name: such as `expect_column_values_to_be_between`.
        kwargs: its arguments, parameters filled in.
        frame: what the batch was made of.
    """
    try:
        # Failing rows come by their index: the library would take the columns that name them out one by one.
        result = batch.validate(_expectation(type_name, kwargs), result_format="COMPLETE")
    except Exception as error:  # noqa: BLE001 - a check that cannot run is an outcome, whatever the library raises
        return Answer(is_met=False, error=f"{type(error).__name__}: {error}")
    raised = _raised(result.exception_info)
    if raised or not result.result:
        return Answer(is_met=False, error=raised or "no result")
    return Answer(
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
    with warnings.catch_warnings(), _without_collector():
        warnings.simplefilter("ignore")
        import great_expectations
    return great_expectations


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
