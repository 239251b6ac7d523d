"""What a measured piece of work held: resident memory of processes, heap of a JVM, spill and results of Spark."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psutil
from pyspark.sql import SparkSession

MEGABYTE = 1_000_000
_PERIOD_S = 0.1
_SETTLED_S = 1.0


class ResidentPeak:
    """Greatest resident memory of a process and all its children together, sampled ten times a second.

    Also the processor time that they took, those that they have waited for included.
    """

    def __init__(self, process_id: int | None = None) -> None:
        self.peak_mb = self.processor_s = 0.0
        self._process = psutil.Process(process_id or os.getpid())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, sum(self._resident_bytes()) / MEGABYTE)
            # A child that nobody waits for, as Spark's Java, takes its time with it when it ends.
            self.processor_s = max(self.processor_s, sum(self._seconds()))
            if self._ended.wait(_PERIOD_S):
                return

    def _resident_bytes(self) -> Iterator[int]:
        with suppress(psutil.Error):
            yield self._process.memory_info().rss
            for process in self._process.children(recursive=True):
                with suppress(psutil.Error):  # it ended in between
                    # A JVM forks to call small programs, and until then the child shows the JVM's own memory.
                    if time.time() - process.create_time() > _SETTLED_S:
                        yield process.memory_info().rss

    def _seconds(self) -> Iterator[float]:
        with suppress(psutil.Error):
            yield sum(self._process.cpu_times()[:4])  # its own, and of the children that it has waited for
            for process in self._process.children(recursive=True):
                with suppress(psutil.Error):
                    yield sum(process.cpu_times()[:4])


@dataclass(frozen=True, slots=True)
class SparkUse:
    """What a piece of work used inside Spark.

    `heap_mb` is the peak, garbage included; `spilled_mb` went to disk; `collected_mb` came to the
    driver as results of tasks. `longest_task_share` is the part of the time of all tasks that the longest took.
    """

    heap_mb: float
    spilled_mb: float
    collected_mb: float
    longest_task_share: float


class SparkMeter:
    """Meters one piece of work after the other in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to the JVM
        self._context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the same
        self._pools = self._heap_pools()
        self._seen_stage = -1

    def begin(self) -> None:
        """Forget what was before, the garbage on the heap included."""
        self._gateway.jvm.System.gc()
        for pool in self._pools:
            pool.resetPeakUsage()
        self._seen_stage = max((int(stage.stageId()) for stage in self._stages()), default=self._seen_stage)

    def read(self) -> SparkUse:
        """What was used since it began."""
        # An upper bound: each pool had its peak at a moment of its own.
        peaks = sum(int(pool.getPeakUsage().getUsed()) for pool in self._pools)
        heap = min(peaks, int(self._gateway.jvm.java.lang.Runtime.getRuntime().maxMemory()))
        stages = list(self._stages())
        spilled = sum(int(stage.diskBytesSpilled()) for stage in stages)
        collected = sum(int(stage.resultSize()) for stage in stages)
        tasks_ms = [each_ms for stage in stages for each_ms in self._tasks_ms(stage)]
        share = max(tasks_ms, default=0) / max(1, sum(tasks_ms))
        return SparkUse(heap / MEGABYTE, spilled / MEGABYTE, collected / MEGABYTE, share)

    def _tasks_ms(self, stage: Any) -> Iterator[int]:
        """How long each task of a stage ran."""
        if not stage.numCompleteTasks():
            return
        tasks = self._context.statusStore().taskList(stage.stageId(), stage.attemptId(), stage.numTasks())
        for number in range(tasks.size()):
            metrics = tasks.apply(number).taskMetrics()
            if metrics.isDefined():
                yield int(metrics.get().executorRunTime())

    def _heap_pools(self) -> list[Any]:
        beans = self._gateway.jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        return [bean for bean in beans if bean.getType().toString() == "Heap memory"]

    def _stages(self) -> Iterator[Any]:
        """Stages since `begin`, newest first, as Spark's own store lists them."""
        self._context.listenerBus().waitUntilEmpty()
        jvm = self._gateway.jvm
        no_quantiles = self._gateway.new_array(jvm.double, 0)
        found = self._context.statusStore().stageList(None, False, False, no_quantiles, jvm.java.util.ArrayList())  # noqa: FBT003 - Scala knows no keywords from here
        for number in range(found.size()):
            stage = found.apply(number)
            if int(stage.stageId()) <= self._seen_stage:
                return
            yield stage
