"""Register the custom functions of a definition, so that SQL can call them by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backstream.definition.model import Definition
from backstream.definition.result_sections import UserFunction
from backstream.errors import BackstreamError, SpecError
from backstream.spark.session import ship_package
from backstream.user_code import UserCode

_ROLE = "function"
_FAILED_UDF = re.compile(r"Traceback \(most recent call last\)")


@dataclass(frozen=True, slots=True)
class _FunctionByName:
    """A Python function that an executor imports when it first calls it; only its name is sent."""

    target: str

    def __call__(self, *arguments: Any) -> Any:
        """Return the value for one record."""
        return _plain(_load(self.target)(*arguments))


@dataclass(frozen=True, slots=True)
class _FunctionOfRecords:
    """A Python function of all records of a window, which get a pandas series per argument.

    The records are sorted. Without records the value is null.
    """

    target: str

    def __call__(self, records: Sequence[Sequence[Any]] | None) -> Any:
        """Return the value for records with the arguments of the function."""
        if not records:
            return None
        import pandas as pd  # only executors need it

        columns = [pd.Series(list(values)) for values in zip(*records, strict=True)]
        return _plain(_load(self.target)(*columns))


def register_functions(spark: SparkSession, definition: Definition) -> None:
    """Register the custom functions of a definition in a session, and send their packages to the executors.

    Raises:
        SpecError: when a function or a Java class can't be found.
    """
    for name, function in definition.functions.items():
        if function.java_class:
            _register_java(spark, name, function)
        else:
            target = function.function or ""
            _load(target)
            ship_package(spark.sparkContext, target)
            spark.udf.register(name, *_python_function(target, function))


@contextmanager
def explain_function_errors(definition: Definition, place: str) -> Iterator[None]:
    """Raise a readable error if a custom function fails; `place` is where, e.g., the chunks.

    Raises:
        UserCodeError: with the trace of the user's own frames first.
    """
    codes = [code for code in definition.user_code if code.role == _ROLE]
    try:
        yield
    except BackstreamError:
        raise
    except Exception as error:
        text = str(error)
        failed = [code for code in codes if f"{code.module.replace('.', '/')}.py" in text]
        if failed and _FAILED_UDF.search(text):
            with failed[0].explain_errors(place):
                raise
        raise


def _register_java(spark: SparkSession, name: str, function: UserFunction) -> None:
    try:
        spark.udf.registerJavaFunction(name, function.java_class or "", function.returns)
    except PySparkException as error:
        reason = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
        msg = f"functions.{name} cannot be registered: {reason}\n\nhint: add the jar with the class to spark.jars"
        raise SpecError(msg) from None


def _python_function(target: str, function: UserFunction) -> tuple[Callable[..., Any], str] | tuple[Any]:
    if function.kind == "pandas":
        from backstream.spark.pandas_functions import pandas_function

        return (pandas_function(target, function.returns),)
    by_kind: Mapping[str, Callable[[str], Callable[..., Any]]] = {
        "record": _FunctionByName,
        "aggregate": _FunctionOfRecords,
    }
    return by_kind[function.kind](target), function.returns


def _load(target: str) -> Callable[..., Any]:
    return UserCode(_ROLE, target).load_any_function()


def _plain(value: Any) -> Any:
    """Return a value of numpy as one of Python, which Spark converts."""
    return value.item() if hasattr(value, "item") else value
