"""The tumbling job by DuckDB on Parquet, in an environment of its own; a JSON line on stdout.

python duckdb_sql.py --input FOLDER --threads 2 [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import time

import duckdb

_JOB = """
SELECT key, time_bucket(INTERVAL '1 minute', event_time) AS window_start, count(*) AS events, sum(value) AS total
FROM read_parquet('{input}/*.parquet')
GROUP BY ALL
"""


def main() -> None:
    """Run the job twice, and print the figures of the second run. The first run warms up the engine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", help="write the rows to this Parquet file, not into a table")
    options = parser.parse_args()
    duckdb.execute(f"SET threads = {options.threads}; SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
    job, rows = _JOB.format(input=options.input), "FROM counted"
    statement = f"CREATE OR REPLACE TEMP TABLE counted AS {job}"
    if options.out:
        rows = f"FROM read_parquet('{options.out}')"
        statement = f"COPY ({job}) TO '{options.out}' (FORMAT parquet, COMPRESSION zstd)"
    for _ in range(2):
        begin = time.perf_counter()
        duckdb.execute(statement)
        seconds = time.perf_counter() - begin
    sums = duckdb.execute(f"SELECT count(*), sum(events), sum(total) {rows}").fetchall()
    [(windows, events, total)] = sums
    facts = {"seconds": seconds, "version": duckdb.__version__}
    print(json.dumps({**facts, "windows": windows, "events": int(events), "total": int(total)}))


if __name__ == "__main__":
    main()
