"""Decide whether the native engine runs a chunk group, and whether Spark runs it after an error."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping

from backstream.chunks.stream_reader import reason_no_watermarks
from backstream.definition.model import Definition
from backstream.definition.prepared import list_single_sources
from backstream.errors import BackstreamError, SpecError
from backstream.installed_spark import QUERIES_SINCE, find_older_spark
from backstream.native.supported import reason_not_native
from backstream.native.task_runner import FAILED
from backstream.runs.home import Home
from backstream.runs.plan import Mode

REFUSALS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
"""The messages of an operating system that denies a write; Java and DuckDB include them unchanged."""
_CANCELLED = "cancelled"
_NATIVE_FORMATS = ("parquet", "json", "iceberg")


def is_native(definition: Definition, columns: Mapping[str, str]) -> bool:
    """Return whether the native engine computes a definition: it can, or `backfill.engine` requires it."""
    if definition.backfill.engine != "auto":
        return definition.backfill.engine == "native"
    return reason_not_native(definition, columns) is None


def reason_for_spark(definition: Definition, columns: Mapping[str, str], mode: Mode) -> str | None:
    """Return why the runs of a definition need Spark; None if native tasks compute all of their tables."""
    return next(_list_reasons(definition, columns, mode), None)


def _list_reasons(definition: Definition, columns: Mapping[str, str], mode: Mode) -> Iterator[str]:
    if definition.backfill.engine == "spark":
        yield 'backfill.engine is "spark"'
    if reason := reason_not_native(definition, columns):
        yield reason
    if definition.derive_after:
        yield "Spark computes [derive_after]"
    if definition.having:
        yield "Spark evaluates [having]"
    if definition.top:
        yield "Spark ranks the rows of [top]"
    if mode is Mode.RECOMPUTE:
        return
    if definition.backfill.keep_firings:
        yield "Spark computes the firings (backfill.keep_firings)"
    if reason := reason_no_watermarks(definition, columns):
        yield reason


def has_spark_sections(definition: Definition) -> bool:
    """Return whether a definition needs Spark whatever the columns of its source are."""
    return bool(
        definition.backfill.engine == "spark"
        or definition.backfill.keep_firings
        or definition.derive_after
        or definition.withholds_rows
        or definition.job
        or definition.process
        or definition.source.transform
        or any(single.source.format not in _NATIVE_FORMATS for single in list_single_sources(definition))
    )


def needs_spark_error(reason: str, where: str = "") -> SpecError:
    """Return the error of the local runner for work that only Spark can do; `where` is the definition's file."""
    place = f" ({where})" if where else ""
    return SpecError(
        f'the runner "local" has no Spark, which is needed: {reason}{place}\n\n'
        'hint: use `--runner spark`, or set backfill.runner = "spark"; it needs `backstream[spark]` and Java 17'
    )


def can_fall_back(definition: Definition, error: Exception) -> bool:
    """Return whether Spark computes the chunks after this error of the native engine.

    It doesn't if the definition requires the native engine, if Spark is too old, if a user canceled the job, if a
    disk is full or read-only, if counts disagree, or if executors don't share the home.
    """
    if definition.backfill.engine != "auto" or isinstance(error, BackstreamError):
        return False
    if find_older_spark(QUERIES_SINCE):
        return False
    if not Home.from_environment().is_shared:
        return False
    message = str(error)
    return _CANCELLED not in message.lower() and not any(reason in message for reason in REFUSALS)


def task_error_text(error: Exception) -> str:
    """Return the sentence of a task's error without the traces around it."""
    message = str(error)
    sentence = re.search(rf"{FAILED}[^\n]*", message) or re.search(r"\S[^\n]*", message)
    return sentence[0] if sentence else type(error).__name__
