"""Explain that the Java of Spark ended while a command used it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from backstream.errors import BackstreamError, JobError, SpecError

_JAVA_CALL = re.compile(r"\b(java_method|(?:try_)?reflect)`?\s*\(", re.IGNORECASE)
"""A call of a function of Spark that calls any method of Java."""


_STOPPED = (
    "SparkContext was shut down",
    "stopped SparkContext",
    'SparkContext.dagScheduler()" is null',  # from a context that is stopping
    "Java side is empty",
    "Java server",
    "does not exist in the JVM",  # of each class
)
"""Texts of errors that a caller gets while Java ends."""
_DISCONNECTED = (Py4JNetworkError, ConnectionError)
_END_S = 15.0
_UNKNOWN_END_S = 1.0


def message_of(error: Exception) -> str:
    """Return the message of an error; empty if only Java has it, and Java has ended."""
    try:
        return str(error)
    except _DISCONNECTED:
        return ""


def is_end_of_java(error: Exception) -> bool:
    """Return whether an error is what a caller gets while Java ends."""
    message = message_of(error)
    is_unknown = isinstance(error, _DISCONNECTED) or not message
    return is_unknown or any(text in message for text in _STOPPED)


def status_after(error: Exception) -> int | None:
    """Return the exit status of Spark's Java after an error; None if Java runs, or this process started none."""
    gateway = SparkContext._gateway  # noqa: SLF001 - only the gateway has the process
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        # PySpark calls Java to convert an error of Java. If Java ends then, the error can be any.
        return None if java is None else java.wait(_END_S if is_end_of_java(error) else _UNKNOWN_END_S)
    except subprocess.TimeoutExpired:
        return None


def java_end_error(error: Exception, content: Mapping[str, Any], place: str) -> BackstreamError | None:
    """Return the error to raise if Spark's Java has ended; None if it runs, or there is none.

    Args:
        error: the error that a caller got.
        content: the keys of a definition; its calls of Java are the likeliest cause.
        place: the file of the definition, for messages.
    """
    status = status_after(error)
    if status is None:
        return None
    ended = f"the Java of Spark ended with status {status}"
    calls = dict(list_java_calls(content))
    if calls:
        named = ", ".join(f"{key} calls {name}" for key, name in calls.items())
        return SpecError(f"{ended}: {named} ({place})\n\nhint: remove the call, or call a method that returns")
    return JobError(
        f"{ended}, although it still had work ({place})\n\n"
        "hint: repeat the command; if the machine has no memory left, decrease BACKSTREAM_DRIVER_MEMORY",
        status,
    )


def list_java_calls(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted keys of a definition whose SQL calls Java, and the name of the function."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from list_java_calls(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield from list_java_calls({f"{key}[{at}]": each for at, each in enumerate(value)}, prefix)
        elif isinstance(value, str) and (match := _JAVA_CALL.search(value)):
            yield f"{prefix}{key}", match[1]
