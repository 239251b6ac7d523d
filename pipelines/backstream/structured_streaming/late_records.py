"""Name the choices about late records of a job, which definitions need without the tables of its batches."""

from __future__ import annotations

from enum import StrEnum


class LateBy(StrEnum):
    """The batch whose watermark judges the records of a batch."""

    PREVIOUS = "previous_batch"
    """The batch before, since Spark 3.4."""
    OWN = "own_batch"
    """The batch itself: Spark 3.3, and later with `spark.sql.streaming.statefulOperator.allowMultiple = false`."""


class Undecided(StrEnum):
    """The fate of records of which lost logs do not show whether they were late."""

    COUNT = "count"
    """They count in their windows."""
    DROP = "drop"
    """They are dropped."""
