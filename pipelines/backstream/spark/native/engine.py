"""Decide whether the native engine runs a chunk group, and whether Spark runs it after an error."""

from __future__ import annotations

import re

from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.native.supported import reason_not_native
from backstream.native.task_runner import FAILED
from backstream.runs.home import Home
from backstream.spark.chunk_group import ChunkGroup
from backstream.spark.failures import REFUSALS


def is_native(group: ChunkGroup) -> bool:
    """Return whether the native engine runs these chunks: it supports them, or `backfill.engine` requires it."""
    engine = group.definition.backfill.engine
    if engine != "auto":
        return engine == "native"
    return reason_not_native(group.definition, group.plan.columns) is None


_CANCELLED = "cancelled"


def can_fall_back(definition: Definition, error: Exception) -> bool:
    """Return whether Spark computes the chunks after this error of the native engine.

    It doesn't if the definition requires the native engine, if a user canceled the job, if a disk is full or
    read-only, if counts disagree, or if executors don't share the home.
    """
    if definition.backfill.engine != "auto" or isinstance(error, BackstreamError):
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
