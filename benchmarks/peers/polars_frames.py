"""The tumbling job by Polars on Parquet, in an environment of its own; a JSON line on stdout.

python polars_frames.py --input FOLDER --threads 2 [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any


def main() -> None:
    """Run the job twice, and print the figures of the second run. The first run warms up the engine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", help="write the rows to this Parquet file, not into a frame")
    options = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(options.threads)  # Polars reads it once, at import
    import polars as pl

    for _ in range(2):
        begin = time.perf_counter()
        windows = _aggregate(options.input, options.out)
        seconds = time.perf_counter() - begin
    if options.out:
        windows = pl.read_parquet(options.out)
    facts = {"seconds": seconds, "version": pl.__version__, "windows": windows.height}
    sums = {name: int(windows[name].sum()) for name in ("events", "total")}
    print(json.dumps(facts | sums))


def _aggregate(folder: str, out: str | None) -> Any:
    import polars as pl

    minute = pl.col("event_time").dt.truncate("1m").alias("window_start")
    values = (pl.len().alias("events"), pl.col("value").sum().alias("total"))
    rows = pl.scan_parquet(f"{folder}/*.parquet")
    windows = rows.group_by("key", minute).agg(*values)
    if out:
        return windows.sink_parquet(out, compression="zstd", engine="streaming")
    return windows.collect(engine="streaming")


if __name__ == "__main__":
    main()
