"""Spark reads a table as a stream; the files of each batch are those that its checkpoint names for backstream."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from tests.engines.conftest import Orders, Spark

from backstream.lake.appended_files import list_appended_files
from backstream.storage.stores import Stores
from backstream.structured_streaming.checkpoint import read_checkpoint

pytestmark = pytest.mark.engines
TABLE = "streams.sales.clicks"
REWRITE = "CALL streams.system.rewrite_data_files(table => 'sales.clicks', options => map('rewrite-all','true'))"
INSERT = f"INSERT INTO {TABLE} SELECT /*+ REPARTITION({{files}}) */ id FROM range({{first}}, {{last}})"


def test_the_files_of_each_batch_are_those_of_spark(
    orders: Orders, spark41: Spark, record: Callable[[str, str, str], None]
) -> None:
    folder, prefix = orders.folder / "streams", "spark.sql.catalog.streams"
    folder.mkdir()
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/streams.db",
        f"{prefix}.warehouse": f"file://{folder}/warehouse",
        f"{prefix}.jdbc.schema-version": "V1",
    }
    assert "error" not in spark41.ask("CREATE NAMESPACE streams.sales", **settings)
    merging = "TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '3')"
    spark41.rows(f"CREATE TABLE {TABLE} (id bigint) USING iceberg {merging}")
    skipping = {"streaming_skip_overwrite_snapshots": "true", "streaming_skip_delete_snapshots": "true"}
    read = list[tuple[int, list[int]]]()
    for statements in (
        [INSERT.format(files=3, first=0, last=30), INSERT.format(files=2, first=30, last=50)],
        [INSERT.format(files=1, first=50, last=51), f"DELETE FROM {TABLE} WHERE id = 33"],
        [REWRITE, INSERT.format(files=5, first=60, last=100)],
    ):
        for statement in statements:
            spark41.rows(statement)
        read += spark41.read_stream(
            TABLE, folder / "checkpoint", streaming_max_files_per_micro_batch="2", **skipping
        )
    catalog = load_catalog("streams", type="sql", uri=f"sqlite:///{folder}/streams.db")
    table = catalog.load_table("sales.clicks")

    appends = list_appended_files(table, TABLE, None, "here").appends

    assert appends
    log = appends.name_files(read_checkpoint(str(folder / "checkpoint"), Stores()), "0")
    found: dict[int, list[int]] = {number: [] for number, _ in read}
    for file in (file for files in appends.snapshots.values() for file in files):
        batch = log.batch_of_file("0", file.path)
        assert batch is not None
        found[batch] += pq.read_table(file.path)["id"].to_pylist()
    assert [(number, sorted(ids)) for number, ids in found.items()] == read
    assert len(read) == 7
    record(f"spark {spark41.version}", "stream of a table", f"{len(read)} batches, files equal")
