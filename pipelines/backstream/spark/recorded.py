"""Recorded events, read an interval of event time at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.core.errors import ContractError
from backstream.core.intervals import Interval
from backstream.core.plan import InputFile
from backstream.spark.arrays import IntervalColumns


@dataclass(frozen=True, slots=True)
class Recorded:
    """The events of files; of at least one."""

    spark: SparkSession
    files: Sequence[InputFile]
    read: Callable[[Sequence[str]], DataFrame]
    """Normalised events of the files at these paths, without those that cannot be read."""
    damaged: Sequence[InputFile] = ()
    """Files that cannot be read, with the bounds that they had: nobody may need them."""

    def all(self) -> DataFrame:
        """All of them."""
        return self.read([file.path for file in self.files])

    def between(self, interval: Interval) -> DataFrame:
        """Those of an interval."""
        is_inside = IntervalColumns.of(self.spark, interval).hold(F.col("event_time_ms"))
        return self.around(interval).where(is_inside)

    def around(self, interval: Interval) -> DataFrame:
        """Those of the files that may hold some of an interval."""
        # Where no file can hold an event, any one does: nothing of it is in the interval.
        return self.read(self.paths_of(interval) or [self.files[0].path])

    def paths_of(self, interval: Interval) -> list[str]:
        """The files that may hold an event of an interval.

        Raises:
            ContractError: when a damaged file is one of them.
        """
        if needed := [file for file in self.damaged if file.may_hold(interval)]:
            msg = (
                f"cannot read input file {needed[0].path}: it is damaged, and may hold an event of {interval}\n\n"
                'hint: put it back, move it away, or set source.corrupt_files = "skip"; then plan the range anew'
            )
            raise ContractError(msg)
        return [file.path for file in self.files if file.may_hold(interval)]
