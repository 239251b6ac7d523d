"""Explain that the Java of Spark ended while a command used it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from backstream.errors import BackstreamError, JobError, SpecError
from backstream.text import list_values

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


def end_status() -> int | None:
    """Return the exit status of Spark's Java if it ends; None if it runs, or this process did not start it."""
    gateway = SparkContext._gateway  # noqa: SLF001 - only the gateway has the process
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or java is None or not _is_ending(gateway):
        return None
    try:
        return java.wait(_END_S)
    except subprocess.TimeoutExpired:
        return None


def _is_ending(gateway: JavaGateway) -> bool:
    """Return whether Java runs its shutdown hooks, or does not reply."""
    try:
        return bool(gateway.jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except (Py4JError, AttributeError, *_DISCONNECTED):  # py4j uses the attributes of a connection that is gone
        return True


def java_end_error(find_definition: Callable[[], tuple[Mapping[str, Any], str]]) -> BackstreamError | None:
    """Return the error to raise if Spark's Java has ended; None if it runs, or there is none.

    Args:
        find_definition: returns the keys of the definition, of which calls of Java are the likeliest cause,
            and its file.
    """
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no public name for it
    if gateway is None or not _is_ending(gateway):
        return None
    status = end_status()
    ended = "the Java of Spark ended" + ("" if status is None else f" with status {status}")
    content, place = find_definition()
    calls = dict(list_java_calls(content))
    if calls:
        named = ", ".join(f"{key} calls {name}" for key, name in calls.items())
        return SpecError(f"{ended}: {named} ({place})\n\nhint: remove the call, or call a method that returns")
    return JobError(
        f"{ended}, although it still had work ({place})\n\n"
        "hint: repeat the command; if the machine has no memory left, decrease BACKSTREAM_DRIVER_MEMORY",
        status,
    )


def list_java_calls(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the dotted keys of a definition whose SQL calls Java, and the name of the function."""
    for key, value in list_values(content):
        if match := _JAVA_CALL.search(str(value)):
            yield key, match[1]
