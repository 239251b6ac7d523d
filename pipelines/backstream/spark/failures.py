"""Convert failures of Spark into readable errors without Java traces."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.sql import SparkSession

from backstream.errors import ContractError, HeapError, SpecError
from backstream.runs.plan import Plan
from backstream.spark.heap import OUT_OF_MEMORY_STATUS, SETTING
from backstream.spark.java_end import end_status, message_of
from backstream.spark.source import NOT_UTF8
from backstream.storage.files import file_uri, write_text
from backstream.text import list_values

_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_MAX_REASON = 400
"""The longest reason in a message, in characters."""


def silence_java_traces(spark: SparkSession) -> None:
    """Turn off Java's log, since this process raises its errors."""
    spark.sparkContext.setLogLevel("OFF")


@contextmanager
def explain_heap_errors(spark: SparkSession, plan: Plan, by: str = SETTING) -> Iterator[None]:
    """Raise a readable error if Java runs out of memory; `by` is the setting that changes the heap.

    Raises:
        HeapError: naming the size of the heap.
    """
    size = spark.sparkContext.getConf().get(SETTING, "1g")
    try:
        yield
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        msg = (
            f"could not run the chunks of {plan.run_id}: Spark's Java has no memory left\n"
            f"  its heap was {size}\n\n"
            f"hint: increase {by}, and run the same command again; finished chunks are kept"
        )
        raise HeapError(msg) from error


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether Java ran out of memory: by its error, or by its exit status if it ended without an error."""
    return _OUT_OF_MEMORY in message_of(error) or end_status() == OUT_OF_MEMORY_STATUS


_READ_ERROR = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (file:.+?)\.\s+(.*)")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*[\w$]+: (.+)$", re.MULTILINE)
_REASONS = {
    "NO_HINT": "its pages are damaged",
    "CANNOT_READ_FILE_FOOTER": "its footer is damaged",
    "FILE_NOT_EXIST": "it was removed",
}


EXPRESSION_ERRORS = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
)
"""Spark's errors of an expression that has no value for a record."""
_ADVICE = re.compile(r" (?:If necessary,? )?(?:set|Set) \S+ to \S+(?: to bypass this error)?\.?$")
"""Spark's advice to turn off ANSI rules, which a definition cannot do."""


def expression_error(error: PySparkException, chunks: str, plan: Plan) -> SpecError:
    """Return the error for an expression of the definition that Spark refuses, or that has no value for a record.

    Args:
        error: one of `EXPRESSION_ERRORS`, or an error of Spark's analysis.
        chunks: the chunks of the job.
        plan: the plan of the job.
    """
    fragment, reason = find_fragment(error), spark_reason(error)
    if NOT_UTF8 in reason:
        reason = reason.partition("] ")[2]
        return SpecError(
            f"could not compute {chunks}: {reason} ({plan.definition_path}, source)\n\nhint: {_UTF8_HINT}"
        )
    named = f" in {fragment!r}" if fragment else ""
    keys = (key for key, value in list_values(plan.definition) if fragment and fragment in str(value))
    key = next(keys, None)
    advice = "" if isinstance(error, AnalysisException) else f": {EXPRESSION_HINT}"
    return SpecError(
        f"could not compute {chunks}: {reason}{named}\n\n"
        f"hint: change {key or 'the expression'} in {plan.definition_path}{advice}"
    )


_UTF8_HINT = "set source.prepare = true, so that records with such a text go to quarantine"
EXPRESSION_HINT = "cast to a wider type, e.g., decimal(38,0), or use a function that returns null, e.g., try_cast"
"""Advice for an expression that has no value for a record."""


def find_fragment(error: Exception) -> str:
    """Return the part of an expression that an error of Spark is about; empty if it is unknown."""
    contexts = error.getQueryContext() if isinstance(error, PySparkException) else []
    return next((fragment for context in contexts if (fragment := context.fragment())), "")


def spark_reason(error: Exception) -> str:
    """Return the reason of an error of Spark in one line, without Java's trace and advice about settings."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        causes = _CAUSE.findall(text)
        text = causes[-1] if causes else str(error.java_exception.getMessage())
    return _ADVICE.sub("", " ".join(text.partition("SQLSTATE")[0].split()))[:_MAX_REASON]


def unreadable_file_error(message: str, plan: Plan) -> ContractError | None:
    """Return the error to raise for a message of Spark, and write the message into the run's folder.

    None if the message doesn't name an input file of the plan.
    """
    match = _READ_ERROR.search(message)
    if match is None:
        return None
    kind, uri, rest = match.groups()
    path = _find_input_path(uri, plan)
    if path is None:
        return None
    log_file = plan.folder.errors / f"{uuid.uuid4().hex[:8]}.txt"
    write_text(log_file, message)
    reason = _REASONS.get(kind) or rest.partition(" SQLSTATE")[0].rstrip(".")
    causes = _CAUSE.findall(message)
    cause = f"\n  {_shorten(causes[0])}" if causes else ""
    return ContractError(
        f"cannot read input file {path}: {reason}{cause}\n  Spark's full message is in {log_file}\n\n"
        'hint: restore the file, move it away, or set source.corrupt_files = "skip"; then create a new plan'
    )


def _find_input_path(uri: str, plan: Plan) -> str | None:
    """Return the input file of a URI in Spark's message, which has varying numbers of slashes, quoted or not."""
    paths = {
        _plain(name): file.path for file in plan.inputs for name in (file_uri(file.path), f"file:{file.path}")
    }
    return paths.get(_plain(uri))


def _plain(uri: str) -> str:
    return "/" + uri.removeprefix("file:").lstrip("/")


def _shorten(text: str) -> str:
    """Return a line of Java's message, shortened to 160 characters."""
    max_length = 160
    line = text.strip()
    return line if len(line) <= max_length else f"{line[:max_length]}.."
