"""The tumbling job by Flink SQL on CSV, batch or streaming, in an environment of its own; a JSON line on stdout.

python flink_sql.py --input FOLDER --mode batch|streaming --threads 2 --heap-mb 3000 --managed-mb 3000
"""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib.metadata import version
from typing import Any

_EVENTS = """
CREATE TABLE events (
  key BIGINT, `value` BIGINT, event_time_ms BIGINT,
  event_time AS TO_TIMESTAMP_LTZ(event_time_ms, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '1' MINUTE
) WITH ('connector' = 'filesystem', 'path' = 'file://{input}', 'format' = 'csv')
"""
_SINK = """
CREATE TABLE nowhere (
  key BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), events BIGINT, total BIGINT
) WITH ('connector' = 'blackhole')
"""
_QUERY = """
SELECT key, window_start, window_end, COUNT(*) AS events, SUM(`value`) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
GROUP BY key, window_start, window_end
"""
_SUMS = f"SELECT COUNT(*), SUM(events), SUM(total) FROM ({_QUERY})"  # noqa: S608 - all parts of the query are constants
# Without mini-batches, a stream emits the running sums after every window. With them, it emits after many windows.
_MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "10 s",
    "table.exec.mini-batch.size": "10000000",
}


def main() -> None:
    """Sum the result to warm up the engine. Then run the job, and print its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--mode", choices=["batch", "streaming"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--heap-mb", type=int, required=True)
    parser.add_argument("--managed-mb", type=int, required=True)
    parser.add_argument("--java", default="", help="more options of Java")
    options = parser.parse_args()
    heap = f"{options.heap_mb}m"
    os.environ["JVM_ARGS"] = f"-Xms{heap} -Xmx{heap} -XX:+AlwaysPreTouch {options.java}".strip()
    tables = _tables(options)
    windows, events, total = _sums(tables)
    begin = time.perf_counter()
    tables.execute_sql(f"INSERT INTO nowhere {_QUERY}").wait()
    seconds = time.perf_counter() - begin
    facts = {"seconds": seconds, "version": version("apache-flink")}
    print(json.dumps({**facts, "windows": windows, "events": events, "total": total}))


def _tables(options: argparse.Namespace) -> Any:
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    settings = EnvironmentSettings.new_instance()
    settings = settings.in_batch_mode() if options.mode == "batch" else settings.in_streaming_mode()
    configuration = Configuration()
    configuration.set_string("parallelism.default", str(options.threads))
    configuration.set_string("taskmanager.memory.managed.size", f"{options.managed_mb}m")
    configuration.set_string("table.local-time-zone", "UTC")
    tables = TableEnvironment.create(settings.with_configuration(configuration).build())
    tables.execute_sql(_EVENTS.format(input=options.input))
    tables.execute_sql(_SINK)
    return tables


def _sums(tables: Any) -> tuple[int, int, int]:
    """Return the last of the running sums."""
    for key, value in _MINI_BATCH.items():
        tables.get_config().set(key, value)
    windows, events, total = list(tables.execute_sql(_SUMS).collect())[-1]
    tables.get_config().set("table.exec.mini-batch.enabled", "false")
    return windows, events, total


if __name__ == "__main__":
    main()
