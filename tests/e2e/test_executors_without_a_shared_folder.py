"""Runs on a Spark standalone cluster: workers and drivers share an object store, and drivers a catalog."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chain.job import KINDS, LENIENT, publish
from tests.e2e.standalone import cluster_in, require_mount_namespaces
from tests.lake.store import BUCKET, Store
from tests.spark.histories import Expected, days, definition_of, random_history, write_history
from tests.spark.runs import in_ms, toml_value

from backstream.definition.loader import parse_definition
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.reader import load_published_rows, load_rows
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, CheckOutcome
from backstream.variables import CACHE_VARIABLE, CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

pytestmark = pytest.mark.e2e
HISTORY = random_history(seed=7, rows=900, days=4)
RUNS = {
    "none": ("recomputed", "tumbling", Mode.RECOMPUTE),
    "an executor killed in the middle": ("replayed", "sliding", Mode.REPLAY),
    "the driver killed after a chunk": ("resumed", "cumulate", Mode.REPLAY),
}
"""The dataset, window, and mode by fault."""


def plan_in_store(driver: Path, source: str, name: str, kind: str, mode: Mode) -> Plan:
    """Plan four days of a dataset whose input is in the store, with a job for each day."""
    backfill = {"engine": "auto", "chunk": "1d", "max_events_per_job": 1}
    content = definition_of(driver, window=KINDS[kind], quality=LENIENT | {"verify": 1_000}, backfill=backfill)
    content |= {"name": name, "source": content["source"] | {"path": source}}
    path = driver / f"{name}.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    return plan_run(PlanRequest(path, days(0, 4), mode=mode, trigger="test", home=Home.from_environment()))


def write_objects(s3: Store, folder: Path) -> str:
    """Write the history and an unreadable record into the store, and return the address."""
    write_history(folder, HISTORY)
    unreadable = {"arrived_at": [days(1, 2).start_ms * 1_000], "origin": ["A"], "seq": [10**6], "key": ["x"]}
    schema = pq.read_schema(next(folder.rglob("*.parquet"))).remove_metadata()
    columns = {name: unreadable.get(name, [None]) for name in schema.names}
    pq.write_table(pa.table(columns, schema=schema), folder / "unreadable.parquet")
    for file in folder.rglob("*.parquet"):
        with s3.filesystem.open_output_stream(f"{BUCKET}/archive/{file.relative_to(folder)}") as stream:
            stream.write(file.read_bytes())
    return f"s3://{BUCKET}/archive"


@pytest.mark.long
def test_a_run_needs_no_shared_folder_and_survives_its_executors_and_driver(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_mount_namespaces()
    source, driver = write_objects(s3, tmp_path / "history"), tmp_path / "driver"
    driver.mkdir()
    without_keys = {
        name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "BACKSTREAM_"))
    }
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    monkeypatch.setenv(CATALOG_VARIABLE, f"sqlite:///{driver / 'catalog.db'}")
    monkeypatch.setenv(HOME_VARIABLE, f"s3://{BUCKET}/executors/home")
    monkeypatch.setenv(CACHE_VARIABLE, str(driver / "machine"))
    plans = {fault: plan_in_store(driver, source, *run) for fault, run in RUNS.items()}
    with cluster_in(tmp_path / "cluster", without_keys) as cluster:
        for number in (1, 2):
            cluster.add_worker(number, hidden=driver)
        *unharmed, resumed = plans.items()
        ends = cluster.submit(*unharmed)
        killed = cluster.run(resumed)
        shutil.rmtree(driver / "machine")
        monkeypatch.setenv(CACHE_VARIABLE, str(driver / "another machine"))
        done = load_manifests(Plan.load(resumed[1].location))
        ends += cluster.submit(("none", resumed[1]))

    for status, said in ends:
        assert status == 0, said
    assert "executors lost: 1" in ends[1][1]
    assert killed.returncode != 0
    assert 0 < len(done) < len(resumed[1].chunks)
    assert all(manifest in load_manifests(resumed[1]) for manifest in done)
    assert not list(driver.rglob("*.parquet.draft")) + list(driver.rglob("part-*.parquet"))
    Home.from_environment()
    for plan in plans.values():
        require_published(plan, s3)


def require_published(plan: Plan, s3: Store) -> None:
    """Check that a run publishes its staged objects where they are, and that they have the expected rows."""
    home, manifests = plan.home, load_manifests(plan)
    staged = {suffix: {file.path for each in manifests for file in each.files[suffix]} for suffix in plan.tables}
    assert {path.removeprefix("s3://") for paths in staged.values() for path in paths} <= s3.keys(BUCKET)

    publish(plan)

    for suffix, table in plan.tables.items():
        with open_catalog_for_writing(home) as catalog:
            files = catalog.load_table(table_identifier(table.name)).scan().plan_files()
            assert {task.file.file_path for task in files} == staged[suffix]
    expected = Expected(HISTORY, parse_definition(plan.definition, "plan"), plan.range).published()
    assert published_values(load_rows(home, plan.dataset).to_pylist()) == expected
    (quarantined,) = load_published_rows(home, plan.dataset, "quarantine").to_pylist()
    assert quarantined["file"].endswith("/archive/unreadable.parquet")
    assert {name: quarantined[name] for name in ("reason", "source_partition", "arrival_time", "record")} == {
        "reason": "null_event_time",
        "source_partition": "A",
        "arrival_time": "2024-03-02 00:00:00",
        "record": '{"happened_at":null,"arrived_at":"2024-03-02T00:00:00.000Z","origin":"A","seq":1000000,'
        '"key":"x","value":null,"device":null,"counter":null}',
    }
    checks = {check.expectation: check for check in Audit.read(plan.folder.audit_result).checks}
    assert checks["verify"].outcome is CheckOutcome.PASS
    assert checks["verify"].element_count > 100


def published_values(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Return the number of events and their total by key and window; no window has two rows."""
    values = {in_ms(row): (row["events"], row["total"]) for row in rows}
    assert len(values) == len(rows)
    return dict(sorted(values.items()))
