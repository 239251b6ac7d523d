"""Which chunks the native engine runs."""

from __future__ import annotations

import re

from backstream.definition.model import Definition
from backstream.errors import BackstreamError
from backstream.native.supported import reason_not_native
from backstream.native.task_runner import FAILED
from backstream.spark.chunk_group import ChunkGroup
from backstream.spark.failures import REFUSALS


def is_native(work: ChunkGroup) -> bool:
    """Whether these chunks are for the native engine: as the definition says, or else if it knows all of that."""
    engine = work.definition.backfill.engine
    if engine != "auto":
        return engine == "native"
    return reason_not_native(work.definition, work.plan.columns) is None


_CANCELLED = "cancelled"


def can_fall_back(definition: Definition, error: Exception) -> bool:
    """Return whether Spark is to try what the native engine could not compute.

    Not if the definition asks for the native engine, if somebody has cancelled the job, or if a disk refuses to be
    written; and counts that disagree are never tried another way.
    """
    if definition.backfill.engine != "auto" or isinstance(error, BackstreamError):
        return False
    said = str(error)
    return _CANCELLED not in said.lower() and not any(reason in said for reason in REFUSALS)


def task_error_text(error: Exception) -> str:
    """Return the sentence of a task's error, without the traces around it."""
    said = str(error)
    found = re.search(rf"{FAILED}[^\n]*", said) or re.search(r"\S[^\n]*", said)
    return found[0] if found else type(error).__name__
