"""The tumbling job by the functions of Arrow on Parquet; a JSON line on stdout.

python arrow_tables.py --input FOLDER --threads 1 --out FILE
"""

from __future__ import annotations

import argparse
import json
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def main() -> None:
    """Run the job twice, and print the figures of the second run. The first run warms up the engine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    pa.set_cpu_count(options.threads)
    for _ in range(2):
        begin = time.perf_counter()
        _aggregate(options.input, options.out, has_threads=options.threads > 1)
        seconds = time.perf_counter() - begin
    windows = pq.read_table(options.out)
    sums = {name: pc.sum(windows[name]).as_py() for name in ("events", "total")}
    print(json.dumps({"seconds": seconds, "version": pa.__version__, "windows": windows.num_rows} | sums))


def _aggregate(folder: str, out: str, *, has_threads: bool) -> None:
    rows = pq.read_table(folder, columns=["key", "event_time", "value"])
    minutes = pc.floor_temporal(rows["event_time"], unit="minute")
    rows = pa.table({"key": rows["key"], "window_start": minutes, "value": rows["value"]})
    groups = rows.group_by(["key", "window_start"], use_threads=has_threads)
    windows = groups.aggregate([([], "count_all"), ("value", "sum")])
    pq.write_table(windows.rename_columns(["key", "window_start", "events", "total"]), out, compression="zstd")


if __name__ == "__main__":
    main()
