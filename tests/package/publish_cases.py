"""Publish small cases by `import backstream`, and print a hash of the published rows of each, as JSON.

`python publish_cases.py FOLDER CASE..` runs in any environment with the package. A case is, e.g.,
`sliding replay native`: kind of window, mode, engine. The last line is an object with the hash of each case, and
the version of Spark.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import backstream
from backstream.installed_spark import spark_version

WINDOWS = {
    "tumbling": 'kind = "tumbling"\nsize = "1h"',
    "sliding": 'kind = "sliding"\nsize = "2h"\nslide = "30m"',
    "session": 'kind = "session"\ngap = "10m"',
}
DEFINITION = """\
name = "{window}_{engine}"

[source]
path = "{folder}/events"
event_time = "at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["shop"]

[window]
{lines}

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"

[lateness]
allowed = "1h"

[aggregates]
events = "count(*)"
amount = "sum(amount)"
largest = "max(amount)"

[backfill]
engine = "{engine}"
"""
RANGE = ("2024-03-01", "2024-03-04")
SEED = 7
ROWS_PER_ORIGIN = 1_500


def write_events(folder: Path) -> None:
    """Write two source partitions of three days; some events arrive up to three hours late."""
    numbers = random.Random(SEED)  # noqa: S311 - data, not secrets
    folder.mkdir()
    for origin in ("east", "west"):
        rows = []
        for seq in range(ROWS_PER_ORIGIN):
            at = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(seconds=numbers.randrange(3 * 86_400))
            delay_s = 9_000 if numbers.random() < 0.005 else numbers.choice((1, 60, 300, 500, 900))
            rows.append(
                (at, at + timedelta(seconds=delay_s), origin, seq, f"s{seq % 5}", numbers.randrange(1_000))
            )
        rows.sort(key=lambda row: row[1])
        columns = dict(
            zip(("at", "arrived_at", "origin", "seq", "shop", "amount"), zip(*rows, strict=True), strict=True)
        )
        times = {name: pa.array(columns.pop(name), pa.timestamp("us", "UTC")) for name in ("at", "arrived_at")}
        pq.write_table(pa.table(times | columns), folder / f"{origin}.parquet")


def publish(folder: Path, window: str, mode: str, engine: str) -> str:
    """Publish the whole history, and return a hash of all columns of the result but the run id."""
    definition = folder / f"{window}_{engine}.toml"
    definition.write_text(DEFINITION.format(folder=folder, window=window, engine=engine, lines=WINDOWS[window]))
    backstream.run(definition, *RANGE, mode=mode, home=folder / "home", reason="case", allow_unsealed=True)
    rows = backstream.read(f"{window}_{engine}", home=folder / "home")
    texts = sorted(map(str, rows.drop_columns(["run_id"]).to_pylist()))
    assert texts
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:10]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write_events(place / "events")
    found = {case: publish(place, *case.split()) for case in sys.argv[2:]}
    print(json.dumps({"spark": spark_version(), "hashes": found}))
