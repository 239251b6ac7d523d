"""Raise a sentence in place of any unexpected error if the Java of Spark has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from backstream.errors import BackstreamError


@contextmanager
def explain_java_end(find_definition: Callable[[], tuple[Mapping[str, Any], str]]) -> Iterator[None]:
    """Raise a readable error in place of any that is unexpected, if Spark's Java has ended.

    Args:
        find_definition: returns the keys of the definition, which can call Java, and the file for messages.
    """
    try:
        yield
    except BackstreamError:
        raise
    except Exception:
        if sys.modules.get("pyspark") is None:  # the local runner forbids its import by a None
            raise
        from backstream.spark.java_end import java_end_error

        ended = java_end_error(find_definition)
        if ended is None:
            raise
        raise ended from None
