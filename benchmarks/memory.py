"""The memory of measured work: resident memory of processes, the heap of a JVM, and spill and results of Spark."""

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
    """The greatest resident memory of a process and all its children together, from ten samples per second.

    It also has the processor time of these processes. This includes the ended children that they waited for.
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
            # If no process waits for a child, its time is lost at its end. Java under Spark is such a child.
            self.processor_s = max(self.processor_s, sum(self._seconds()))
            if self._ended.wait(_PERIOD_S):
                return

    def _resident_bytes(self) -> Iterator[int]:
        with suppress(psutil.Error):
            yield self._process.memory_info().rss
            for process in self._process.children(recursive=True):
                with suppress(psutil.Error):  # the child ended in between
                    # A JVM forks to call small programs, and until then the child shows the JVM's own memory.
                    if time.time() - process.create_time() > _SETTLED_S:
                        yield process.memory_info().rss

    def _seconds(self) -> Iterator[float]:
        with suppress(psutil.Error):
            # This is the time of the process, and of the children that it waited for.
            yield sum(self._process.cpu_times()[:4])
            for process in self._process.children(recursive=True):
                with suppress(psutil.Error):
                    yield sum(process.cpu_times()[:4])


@dataclass(frozen=True, slots=True)
class SparkUse:
    """The memory and the tasks of a piece of work inside Spark.

    `heap_mb` is the peak with garbage. `spilled_mb` is the spill to disk. `collected_mb` is the size of the task
    results on the driver. `longest_task_share` is the time of the longest task as a part of the time of all tasks.
    """

    heap_mb: float
    spilled_mb: float
    collected_mb: float
    longest_task_share: float


class SparkMeter:
    """A meter for consecutive pieces of work in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to the JVM
        self._context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the same
        self._pools = self._heap_pools()
        self._last_stage_id = -1

    def begin(self) -> None:
        """Start a measurement without earlier stages, peaks and garbage on the heap."""
        self._gateway.jvm.System.gc()
        for pool in self._pools:
            pool.resetPeakUsage()
        self._last_stage_id = max((int(stage.stageId()) for stage in self._stages()), default=self._last_stage_id)

    def read(self) -> SparkUse:
        """Return the use since `begin`."""
        # This is an upper bound, because the pools have their peaks at different moments.
        peaks = sum(int(pool.getPeakUsage().getUsed()) for pool in self._pools)
        heap_bytes = min(peaks, int(self._gateway.jvm.java.lang.Runtime.getRuntime().maxMemory()))
        stages = list(self._stages())
        spill_bytes = sum(int(stage.diskBytesSpilled()) for stage in stages)
        result_bytes = sum(int(stage.resultSize()) for stage in stages)
        tasks_ms = [task_ms for stage in stages for task_ms in self._tasks_ms(stage)]
        share = max(tasks_ms, default=0) / max(1, sum(tasks_ms))
        return SparkUse(heap_bytes / MEGABYTE, spill_bytes / MEGABYTE, result_bytes / MEGABYTE, share)

    def _tasks_ms(self, stage: Any) -> Iterator[int]:
        """Yield the run time of each task of a stage."""
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
        """Yield the stages since `begin`, the newest first, in the order of Spark's own store."""
        self._context.listenerBus().waitUntilEmpty()
        jvm = self._gateway.jvm
        no_quantiles = self._gateway.new_array(jvm.double, 0)
        stages = self._context.statusStore().stageList(None, False, False, no_quantiles, jvm.java.util.ArrayList())  # noqa: FBT003 - Scala knows no keywords from here
        for number in range(stages.size()):
            stage = stages.apply(number)
            if int(stage.stageId()) <= self._last_stage_id:
                return
            yield stage
