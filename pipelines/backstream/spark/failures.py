"""What Spark fails of, said without Java's traces."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from backstream.errors import ContractError, HeapError
from backstream.runs.home import write_text
from backstream.runs.plan import Plan
from backstream.spark.heap import OUT_OF_MEMORY_STATUS, SETTING
from backstream.spark.source import file_uri

_ERROR = "java.lang.OutOfMemoryError"
_STOPPED = (
    "SparkContext was shut down",
    "stopped SparkContext",
    'SparkContext.dagScheduler()" is null',  # that of a context which stops just now
    "Java side is empty",
    "Java server",
)
"""What is said to whoever waits for a Java that ends."""
_END_S = 15.0


def silence_java_traces(spark: SparkSession) -> None:
    """Have Java print no traces: whoever waits in this process is raised what fails."""
    spark.sparkContext.setLogLevel("OFF")


@contextmanager
def explain_heap_errors(spark: SparkSession, plan: Plan, by: str = SETTING) -> Iterator[None]:
    """A Java that has no memory left is said in words, and how it gets more; `by` is what sets the heap.

    Raises:
        HeapError: naming the heap.
    """
    size = spark.sparkContext.getConf().get(SETTING, "1g")
    try:
        yield
    except Exception as error:
        if not _is_of_memory(error):
            raise
        msg = (
            f"could not run the chunks of {plan.run_id}: Spark's Java has no memory left\n"
            f"  its heap was {size}\n\n"
            f"hint: give it more with {by}, and run the same again: what was finished is kept"
        )
        raise HeapError(msg) from error


def _is_of_memory(error: Exception) -> bool:
    """Whether Java said so, or has ended for it: it may be gone before it could say anything."""
    if _ERROR in str(error):
        return True
    is_told = isinstance(error, (Py4JNetworkError, ConnectionError))
    if not is_told and not any(each in str(error) for each in _STOPPED):
        return False
    gateway = SparkContext._gateway  # noqa: SLF001 - knows the process, and nobody else does
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        return java is not None and java.wait(_END_S) == OUT_OF_MEMORY_STATUS
    except subprocess.TimeoutExpired:
        return False


REFUSALS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
"""What Java and DuckDB pass on, word for word, of an operating system that does not let them write."""
_SAID = re.compile(r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (file:.+?)\.\s+(.*)")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*[\w$]+: (.+)$", re.MULTILINE)
_WHY = {
    "NO_HINT": "its pages are damaged",
    "CANNOT_READ_FILE_FOOTER": "its footer is damaged",
    "FILE_NOT_EXIST": "it is gone",
}


def unreadable_file_error(said: str, plan: Plan) -> ContractError | None:
    """Return the error to raise for what Spark said, after keeping its words in the run's folder.

    None: no input file of the plan is to blame.
    """
    found = _SAID.search(said)
    if found is None:
        return None
    kind, uri, rest = found.groups()
    path = _path_of(uri, plan)
    if path is None:
        return None
    account = plan.folder.errors / f"{uuid.uuid4().hex[:8]}.txt"
    write_text(account, said)
    why = _WHY.get(kind) or rest.partition(" SQLSTATE")[0].rstrip(".")
    causes = _CAUSE.findall(said)
    fact = f"\n  {_short(causes[0])}" if causes else ""
    return ContractError(
        f"cannot read input file {path}: {why}{fact}\n  what Spark said is in {account}\n\n"
        'hint: put it back, move it away, or set source.corrupt_files = "skip"; then plan the range anew'
    )


def _path_of(uri: str, plan: Plan) -> str | None:
    """The input file that Spark means; it writes two slashes more or less, and may quote or not."""
    known = {
        _plain(name): file.path for file in plan.inputs for name in (file_uri(file.path), f"file:{file.path}")
    }
    return known.get(_plain(uri))


def _plain(uri: str) -> str:
    return "/" + uri.removeprefix("file:").lstrip("/")


def _short(text: str) -> str:
    """A line of Java's: what follows a colon or goes on for long is for its own file."""
    longest = 160
    line = text.strip()
    return line if len(line) <= longest else f"{line[:longest]}.."
