from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from backstream.errors import SetupError, StorageError
from backstream.lake.catalog import open_catalog_for_reading, open_catalog_for_writing
from backstream.lake.catalog_address import CatalogAddress, table_identifier
from backstream.lake.run_rows import list_runs
from backstream.lake.storage import StoreFolder, Warehouse
from backstream.runs.home import Home
from backstream.variables import CATALOG_NAME_VARIABLE, CATALOG_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE


@pytest.fixture(autouse=True)
def no_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset all settings of the catalog."""
    for name in (CATALOG_VARIABLE, CATALOG_NAME_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("uri", "kind", "properties"),
    [
        (
            "https://rest:8181/api?warehouse=lake&token=t",
            "rest",
            {"uri": "https://rest:8181/api", "warehouse": "lake", "token": "t"},
        ),
        (
            "thrift://hive:9083?hive.hive2-compatible=true",
            "hive",
            {"uri": "thrift://hive:9083", "hive.hive2-compatible": "true"},
        ),
        ("glue://?glue.region=eu-central-1&glue.id=12", "glue", {"glue.region": "eu-central-1", "glue.id": "12"}),
        ("postgresql://db/lake", "sql", {"uri": "postgresql://db/lake"}),
    ],
)
def test_the_parameters_of_an_address_are_properties(uri: str, kind: str, properties: dict[str, str]) -> None:
    address = CatalogAddress.from_uri(uri)

    assert (address.name, address.kind, address.properties) == ("backstream", kind, properties)


@pytest.mark.parametrize(
    ("uri", "package", "message"),
    [
        (
            "thrift://hive:9083",
            "hive_metastore",
            (
                "no client for the catalog thrift://hive:9083\n"
                "  Apache Hive support not installed: pip install 'pyiceberg[hive]'"
            ),
        ),
        (
            "glue://?glue.region=eu-central-1",
            "boto3",
            (
                "no client for the catalog backstream (glue)\n"
                "  AWS glue support not installed: pip install 'pyiceberg[glue]'"
            ),
        ),
    ],
)
def test_a_missing_package_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, package: str, message: str
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, uri)
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("pyiceberg.catalog.hive", "pyiceberg.catalog.glue"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    with pytest.raises(SetupError) as caught, open_catalog_for_writing(Home(tmp_path)):
        pass

    assert str(caught.value) == message


def test_a_catalog_of_pyiceberg_is_used_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CATALOG_NAME_VARIABLE, "theirs")
    monkeypatch.setenv("PYICEBERG_CATALOG__THEIRS__URI", f"sqlite:///{tmp_path}/theirs.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__THEIRS__WAREHOUSE", f"file://{tmp_path}/their_warehouse")
    monkeypatch.setenv(NAMESPACE_VARIABLE, "sales.hourly")
    home = Home(tmp_path / "home")

    with open_catalog_for_writing(home) as catalog:
        created = catalog.create_table(table_identifier("clicks"), pa.schema([("n", pa.int64())]))

    assert created.location().startswith(f"file://{tmp_path}/their_warehouse/")
    theirs = load_catalog("other", type="sql", uri=f"sqlite:///{tmp_path}/theirs.db")
    theirs.name = "theirs"
    assert theirs.list_tables("sales.hourly") == [("sales", "hourly", "clicks")]
    assert not (home.path / "catalog.db").exists()
    assert list_runs(home) == []


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {CATALOG_NAME_VARIABLE: "nobody"},
            (
                "PyIceberg has no configuration of the catalog 'nobody' (BACKSTREAM_CATALOG)\n\n"
                "hint: configure it in ~/.pyiceberg.yaml or by variables such as PYICEBERG_CATALOG__NOBODY__URI"
            ),
        ),
        (
            {CATALOG_NAME_VARIABLE: "theirs", CATALOG_VARIABLE: "sqlite://"},
            "BACKSTREAM_CATALOG and BACKSTREAM_CATALOG_URI are both set\n\nhint: unset one of them",
        ),
        (
            {NAMESPACE_VARIABLE: "sales..hourly"},
            (
                "the namespace must be words joined by dots, such as sales.hourly, got 'sales..hourly'"
                " (BACKSTREAM_NAMESPACE)"
            ),
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SetupError) as caught, open_catalog_for_writing(Home(tmp_path)):
        pass

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("address", "location", "properties"),
    [
        ("s3a://bucket/lake?region=eu", "s3://bucket/lake", {"s3.region": "eu"}),
        ("gs://bucket/lake?gcs.oauth2.token=t", "gs://bucket/lake", {"gcs.oauth2.token": "t"}),
        (
            "abfss://box@account.dfs.core.windows.net/lake?adls.account-key=k",
            "abfss://box@account.dfs.core.windows.net/lake",
            {"adls.account-key": "k"},
        ),
        ("hdfs://name:8020/lake?hdfs.user=me", "hdfs://name:8020/lake", {"hdfs.user": "me"}),
    ],
)
def test_warehouses_of_other_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, location: str, properties: dict[str, str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, address)

    warehouse = Warehouse.from_home(Home(tmp_path))

    assert (warehouse.location, warehouse.properties) == (location, properties)
    assert not warehouse.is_on_disk


def test_a_store_whose_library_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, "hdfs://name:8020/lake")
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))

    with pytest.raises((SetupError, StorageError)) as caught, open_catalog_for_reading(Home(tmp_path)):
        pass

    assert str(caught.value).startswith("cannot use the warehouse hdfs://name:8020/lake: ")


def test_the_address_of_an_object_begins_with_the_address_of_its_folder() -> None:
    """Otherwise `vacuum` would take each object of HDFS for an orphan."""
    from pyarrow.fs import FileInfo, FileType

    class Hadoop:
        def __init__(self) -> None:
            self.removed: list[str] = []

        def get_file_info(self, _: object) -> list[FileInfo]:
            return [FileInfo("/lake/clicks/data/run/a/part-0.parquet", FileType.File, size=3, mtime_ns=10**6)]

        def delete_file(self, path: str) -> None:
            self.removed.append(path)

    store = Hadoop()
    folder = StoreFolder(store, "/lake/clicks", "hdfs://name:8020/lake/clicks")
    (file,) = folder.files()

    assert (file.location, file.run_id) == ("hdfs://name:8020/lake/clicks/data/run/a/part-0.parquet", "run")
    assert folder.remove(file, 0)
    assert store.removed == ["/lake/clicks/data/run/a/part-0.parquet"]


def test_only_the_owner_can_read_the_catalog(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with open_catalog_for_writing(home):
        pass

    assert (home.path / "catalog.db").stat().st_mode & 0o777 == 0o600
