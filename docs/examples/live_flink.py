"""Continue a recorded stream in PyFlink: load the state of a bundle, then read the records after its positions.

python live_flink.py --records FOLDER --output FILE [--bundle FOLDER]

The job counts and sums the values of each key per tumbling window. Without a bundle, it reads the whole stream.
It needs the packages apache-flink and pyarrow, and no package of backstream.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyflink.common import Duration, Types, WatermarkStrategy  # type: ignore[import-not-found]
from pyflink.common.watermark_strategy import TimestampAssigner  # type: ignore[import-not-found]
from pyflink.datastream import (  # type: ignore[import-not-found]
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor  # type: ignore[import-not-found]

SIZE_MS, DELAY_MS, LATENESS_MS = 3_600_000, 600_000, 3_600_000
"""The window and the watermark of this job: those of the definition, which `bundle.json` repeats."""
STATE, RECORD = "state", "record"
ELEMENT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG(), Types.BOOLEAN()])
"""Kind, key, event time, count and total, and whether the window is pending; a record has a count of 1."""
Element = tuple[str, str, int, int, int, bool]
RESULT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])


class EventTime(TimestampAssigner):  # type: ignore[misc]
    """The event time of records; restored windows have the greatest event time before the cut.

    So the generator of watermarks starts with the greatest event time, as step 2 of the guide requires.
    """

    def __init__(self, greatest_ms: int) -> None:
        self._greatest_ms = greatest_ms

    def extract_timestamp(self, value: Element, record_timestamp: int) -> int:
        """Return the event time of an element in milliseconds."""
        del record_timestamp
        return self._greatest_ms if value[0] == STATE else value[2]


class Windows(KeyedProcessFunction):  # type: ignore[misc]
    """Tumbling windows with state that a bundle can fill."""

    def __init__(self, restored_watermark_ms: int) -> None:
        self._restored_watermark_ms = restored_watermark_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        """Create the state: count and total by the end of a window."""
        value = Types.TUPLE([Types.LONG(), Types.LONG()])
        self._windows = runtime_context.get_map_state(MapStateDescriptor("windows", Types.LONG(), value))

    def process_element(self, value: Element, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Restore a window, or add a record to its window."""
        kind, key, event_ms, count, total, is_pending = value
        timers = ctx.timer_service()
        if kind == STATE:
            # Step 3 and 4 of the guide: partial aggregates and timers. The element has the end of the window.
            self._windows.put(event_ms, (count, total))
            if is_pending:
                timers.register_event_time_timer(event_ms - 1)
            timers.register_event_time_timer(event_ms - 1 + LATENESS_MS)
            return
        end_ms = event_ms - event_ms % SIZE_MS + SIZE_MS
        # Flink emits watermarks every 200 ms; until then, the watermark of the cut counts.
        watermark_ms = max(timers.current_watermark(), self._restored_watermark_ms)
        if end_ms - 1 + LATENESS_MS <= watermark_ms:
            return
        old = self._windows.get(end_ms) or (0, 0)
        self._windows.put(end_ms, (old[0] + count, old[1] + total))
        timers.register_event_time_timer(end_ms - 1 + LATENESS_MS)
        if end_ms - 1 <= watermark_ms:
            yield key, end_ms, old[0] + count, old[1] + total
        else:
            timers.register_event_time_timer(end_ms - 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """Fire a window at its end, and remove its state after the allowed lateness."""
        window = self._windows.get(timestamp + 1)
        if window is not None:
            yield ctx.get_current_key(), timestamp + 1, *window
        self._windows.remove(timestamp + 1 - LATENESS_MS)


def load_state(bundle: Path) -> tuple[list[Element], int]:
    """Return the open windows of a bundle, and its watermark."""
    manifest = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    if (manifest["schema_version"], manifest["window"]["size_ms"]) != (1, SIZE_MS):
        sys.exit("this job reads bundles of version 1 with windows of one hour")
    rows = pq.read_table(bundle / "windows.parquet").to_pylist()
    state = [
        (STATE, row["key"], row["window_end_ms"], row["events"], row["total"] or 0, row["is_pending"])
        for row in rows
    ]
    return state, manifest["watermark_ms"]


def load_records(folder: Path, bundle: Path | None) -> list[Element]:
    """Return the records from the positions of a bundle on, or all records, in arrival order."""
    records = pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("*.parquet"))])
    if bundle is not None:
        # Step 1 of the guide: each partition begins at its next position.
        positions = pq.read_table(bundle / "partitions.parquet").to_pylist()
        parts = [
            records.filter(
                pc.and_(
                    pc.equal(records["partition"], row["source_partition"]),
                    pc.greater_equal(records["seq"], row["next_seq"]),
                )
            )
            for row in positions
        ]
        records = pa.concat_tables(parts)
    ordered = records.sort_by([("arrival_time", "ascending"), ("seq", "ascending")])
    times_ms = pc.cast(ordered["event_time"], pa.int64()).to_pylist()
    columns: Iterable[Any] = zip(ordered["key"].to_pylist(), times_ms, ordered["value"].to_pylist(), strict=True)
    return [(RECORD, key, time_us // 1000, 1, value, True) for key, time_us, value in columns]


def main() -> None:
    """Run the job, and write its firings as JSON: key, end of the window, count, and total."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--bundle", type=Path)
    options = parser.parse_args()
    state, watermark_ms = load_state(options.bundle) if options.bundle else ([], -(2**63))
    records = load_records(options.records, options.bundle)
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_parallelism(1)
    environment.set_python_executable(sys.executable)
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DELAY_MS))
    timed = bounded.with_timestamp_assigner(EventTime(watermark_ms + DELAY_MS + 1))
    # The state comes before the records, in one stream.
    elements = environment.from_collection([*state, *records], ELEMENT).assign_timestamps_and_watermarks(timed)
    firings = elements.key_by(lambda element: element[1], Types.STRING()).process(Windows(watermark_ms), RESULT)
    with firings.execute_and_collect() as found:
        rows = sorted(list(each) for each in found)
    options.output.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
