"""When Spark computes what the native engine could not."""

from __future__ import annotations

import re

from backstream.core.errors import BackstreamError
from backstream.definition.model import Definition
from backstream.native.run import FAILED
from backstream.spark.unreadable import REFUSALS

_CANCELLED = "cancelled"


def is_for_spark(definition: Definition, error: Exception) -> bool:
    """Return whether Spark is to try what the native engine could not compute.

    Not if the definition asks for the native engine, if somebody has cancelled the job, or if a disk refuses to be
    written; and counts that disagree are never tried another way.
    """
    if definition.backfill.engine != "auto" or isinstance(error, BackstreamError):
        return False
    said = str(error)
    return _CANCELLED not in said.lower() and not any(reason in said for reason in REFUSALS)


def in_words(error: Exception) -> str:
    """Return the sentence of a task's error, without the traces around it."""
    said = str(error)
    found = re.search(rf"{FAILED}[^\n]*", said) or re.search(r"\S[^\n]*", said)
    return found[0] if found else type(error).__name__
