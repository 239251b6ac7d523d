"""A lake in a temporary folder, with a replacement for the Spark job that writes staged files and manifests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table as IcebergTable
from tests.sources.rest_server import RestCatalog, serving
from tests.sources.tables import Archive

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_reading, open_catalog_for_writing
from backstream.lake.catalog_address import namespace, table_identifier
from backstream.lake.catalog_history import load_history
from backstream.lake.publication.planned_tables import create_tables, plan_tables
from backstream.lake.publication.publish import publish_range
from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import ArrivalOrder, Chunk, Mode, Plan
from backstream.runs.results import Publication
from backstream.runs.table_schemas import Column, Table, windows_table
from backstream.variables import CATALOG_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE

WINDOWS_TABLE = windows_table(
    [Column("carrier", "string", required=True)],
    [Column("departures", "long"), Column("mean_delay_min", "double")],
)
METRICS_TABLE = Table(
    "metrics",
    (
        Column("source_partition", "string", required=True),
        Column("events", "long", required=True),
        Column("run_id", "string", required=True),
    ),
)
ARROW_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True)
class Lake:
    """The lake under test."""

    home: Home
    is_rest: bool = False

    def plan(self, since: str, until: str, trigger: str = "test", tables: Sequence[Table] = ()) -> Plan:
        """Return a plan of daily chunks; the last one is shorter if the range ends within a day."""
        interval = Interval(instant_ms(since, "since"), instant_ms(until, "until"))
        with open_catalog_for_reading(self.home) as catalog:
            asked = None if load_history(self.home).snapshots else interval
            wanted = tables or [WINDOWS_TABLE, METRICS_TABLE]
            planned, bases, files = plan_tables(catalog, "flights", wanted, asked)
        chunks = tuple(
            Chunk(f"c{number}", day.start_ms, day.end_ms, day.end_ms, (), 0)
            for number, day in enumerate(interval.cut(DAY_MS), start=1)
        )
        return Plan(
            dataset="flights",
            definition={"source": {"key": ["carrier"]}},
            definition_hash="d1",
            definition_path="flights.toml",
            planned_by_version="0.1.0",
            mode=Mode.RECOMPUTE,
            arrival_order=ArrivalOrder.RECORDED,
            since_ms=interval.start_ms,
            until_ms=interval.end_ms,
            clock_start_ms=interval.start_ms,
            clock_end_ms=interval.end_ms,
            home_location=str(self.home.path),
            inputs=(),
            chunks=chunks,
            tables=planned,
            base_snapshots=bases,
            base_files={"": files} if files else {},
            triggered_by=trigger,
        )

    def make(self, plan: Plan) -> None:
        """Create the tables of a plan, as the job does before it stages files."""
        with open_catalog_for_writing(self.home) as catalog:
            create_tables(catalog, plan)

    def staged(
        self, plan: Plan, windows: Mapping[str, int], metrics: Sequence[tuple[str, int]] = ()
    ) -> list[Manifest]:
        """Stage departures (of one carrier) per window start, and return the manifests."""
        starts_ms = {instant_ms(start, "window start"): departures for start, departures in windows.items()}
        manifests = []
        for chunk in plan.chunks:
            owned = {ms: count for ms, count in starts_ms.items() if chunk.start_ms <= ms < chunk.end_ms}
            manifests.append(self.manifest(plan, chunk, owned, metrics if chunk is plan.chunks[0] else ()))
        return manifests

    def manifest(
        self, plan: Plan, chunk: Chunk, windows: Mapping[int, int], metrics: Sequence[tuple[str, int]]
    ) -> Manifest:
        """Stage a file per table with rows for one chunk, and return the manifest."""
        self.make(plan)
        content: dict[str, dict[str, Sequence[Any]]] = {
            "": {
                "window_start": [ms * 1_000 for ms in windows],
                "window_end": [(ms + 3_600_000) * 1_000 for ms in windows],
                "carrier": ["UA"] * len(windows),
                "departures": list(windows.values()),
                "mean_delay_min": [0.5] * len(windows),
                "record_count": list(windows.values()),
                "run_id": [plan.run_id] * len(windows),
            },
            "metrics": {
                "source_partition": [partition for partition, _ in metrics],
                "events": [events for _, events in metrics],
                "run_id": [plan.run_id] * len(metrics),
            },
        }
        files = {
            suffix: (self.file(plan, chunk.chunk_id, suffix, content[suffix]),)
            if len(content[suffix]["run_id"])
            else ()
            for suffix in plan.tables
        }
        events = sum(windows.values())
        return Manifest(plan.run_id, chunk.chunk_id, "0", events, {"EWR": {"on_time": events}}, files)

    def file(
        self,
        plan: Plan,
        chunk_id: str,
        suffix: str,
        content: Mapping[str, Sequence[Any]],
        field_ids: Mapping[str, int | None] | None = None,
    ) -> StagedFile:
        """Write one staged file, with the planned field ids unless other ids (None: no id) are given."""
        table = plan.tables[suffix]
        fields = []
        for name, kind, planned_id, _ in table.columns:
            field_id = (field_ids or {}).get(name, planned_id)
            metadata = None if field_id is None else {b"PARQUET:field_id": str(field_id).encode()}
            fields.append(pa.field(name, ARROW_TYPES[kind], metadata=metadata))
        path = plan.staging(suffix) / f"{chunk_id}-0" / "part-0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({name: content[name] for name in content}, schema=pa.schema(fields)), path)
        return StagedFile(str(path), path.stat().st_size, len(content["run_id"]))

    def publish(self, since: str, until: str, windows: Mapping[str, int], trigger: str = "test") -> Publication:
        """Plan, stage, and publish a range."""
        plan = self.plan(since, until, trigger)
        return publish_range(plan, self.staged(plan, windows))

    def departures(self, since: str = "2000-01-01", until: str = "2100-01-01") -> dict[str, int]:
        """Return the published departures by window start."""
        interval = Interval(instant_ms(since, "since"), instant_ms(until, "until"))
        return {
            _text(row["window_start"]): row["departures"]
            for row in load_rows(self.home, "flights", interval).to_pylist()
        }

    def table(self, name: str = "flights") -> IcebergTable:
        """Return the table from PyIceberg."""
        with open_catalog_for_writing(self.home) as catalog:
            return catalog.load_table(table_identifier(name))

    def drop(self, name: str = "flights") -> None:
        """Remove a table from the catalog, but keep its files."""
        with open_catalog_for_writing(self.home) as catalog:
            catalog.drop_table(table_identifier(name))

    def expire(self, publication: Publication) -> None:
        """Expire the snapshot of a run, after the removal of its tag, which protects it."""
        self.table().manage_snapshots().remove_tag(f"run/{publication.run_id}").commit()
        self.table().maintenance.expire_snapshots().by_id(publication.snapshots[""]).commit()


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%MZ")


KINDS = {
    "test_publish": ("sqlite", "postgres"),
    "test_conflicts": ("sqlite", "postgres"),
    "test_rollback": ("sqlite", "postgres"),
    "test_concurrency": ("sqlite", "postgres", "one"),
    "test_rest": ("rest",),
    "test_one_snapshot": ("one",),
    "test_store": ("s3",),
}
"""Catalogs or stores of a module's tests, SQLite if it is missing; `one` is a REST catalog without history."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of the lake on the catalogs of its module."""
    if "lake" in metafunc.fixturenames:
        kinds = KINDS.get(metafunc.module.__name__.rpartition(".")[2], ("sqlite",))
        metafunc.parametrize("lake", kinds, indirect=True)


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty lake, with the catalog database and the warehouse that the test requests."""
    if request.param == "s3":
        monkeypatch.setenv(WAREHOUSE_VARIABLE, request.getfixturevalue("s3").new_warehouse())
    if request.param in {"rest", "one"}:
        served = request.getfixturevalue("rest_catalog")
        monkeypatch.setenv(CATALOG_VARIABLE, f"{served.address}?header.X-Client=test")
        monkeypatch.setenv(NAMESPACE_VARIABLE, f"team.{uuid.uuid4().hex}")
        monkeypatch.setenv(WAREHOUSE_VARIABLE, str(tmp_path / "warehouse"))
        if request.param == "one":
            with open_catalog_for_writing(Home(tmp_path / "home")) as catalog:
                catalog.create_namespace((*namespace(), "one"), {"keeps": "one"})
            monkeypatch.setenv(NAMESPACE_VARIABLE, ".".join((*namespace(), "one")))
    elif request.param == "postgres":
        monkeypatch.setenv(CATALOG_VARIABLE, request.getfixturevalue("postgres").new_database())
    else:
        monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    return Lake(Home(tmp_path / "home"), request.param in {"rest", "one"})


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """One REST catalog for all tests that need it; each test has a namespace of its own."""
    folder = tmp_path_factory.mktemp("rest")
    archive = Archive(f"sqlite:///{folder}/server.db?timeout=60", f"file://{folder}/warehouse", {})
    with serving(archive, folder / "server.log") as served:
        yield served
