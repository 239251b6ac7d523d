"""Write what a person pastes into another engine to read a published table from where it is.

A text names the variables of secrets, and never contains one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from pyiceberg.table import Table
from sqlalchemy.engine import make_url

from backstream.errors import SetupError
from backstream.lake.catalog import load_table, open_catalog_for_reading
from backstream.lake.catalog_address import CATALOG_NAME, SQL, CatalogAddress
from backstream.lake.storage import Warehouse, is_on_disk, plain_path
from backstream.runs.home import Home
from backstream.text import ReadingEngine
from backstream.variables import CATALOG_VARIABLE

ICEBERG_FOR_SPARK = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_ICEBERG_FOR_AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
_JDBC_DRIVERS = {"sqlite": "org.xerial:sqlite-jdbc:3.50.3.0", "postgresql": "org.postgresql:postgresql:42.7.8"}
_SECRET = re.compile(r"password|secret|token|credential|access-key|\.key$", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def connection_text(home: Home, name: str, engine: ReadingEngine) -> str:
    """Return what to paste into an engine to read a table.

    Raises:
        LedgerError: if there is no such table.
        SetupError: if the engine cannot open the catalog.
    """
    with open_catalog_for_reading(home) as catalog:
        place = TablePlace.from_table(home, load_table(catalog, name))
    return engine_text(place, engine)


def engine_text(place: TablePlace, engine: ReadingEngine) -> str:
    """Return what to paste into an engine to read the table at a place.

    Raises:
        SetupError: if the engine cannot open the catalog.
    """
    return _TEXTS[engine](place)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The place of a table: its catalog, its identifier, its location, and its store.

    `metadata` is the location of its present metadata file. `store` has the region and the endpoint of an S3 store
    as properties of PyIceberg.
    """

    address: CatalogAddress
    warehouse: str
    identifier: tuple[str, ...]
    location: str
    metadata: str
    store: Mapping[str, str]

    @classmethod
    def from_table(cls, home: Home, table: Table) -> Self:
        """Return the place of a table in the catalog of a home."""
        known = table.io.properties
        found = {
            "s3.region": known.get("s3.region", known.get("client.region")),
            "s3.endpoint": known.get("s3.endpoint"),
        }
        store = {name: str(value) for name, value in found.items() if value}
        return cls(
            CatalogAddress.from_home(home),
            Warehouse.from_home(home).location,
            table.name(),
            table.location(),
            table.metadata_location,
            store if table.location().startswith("s3") else {},
        )

    @property
    def is_in_s3(self) -> bool:
        """Return whether its files are in an S3 store."""
        return self.location.startswith("s3")

    @property
    def url(self) -> str:
        """The address of the catalog without a password; empty if it has none."""
        return self.address.display_text if self.address.uri else ""

    @property
    def variables(self) -> list[str]:
        """The variables of the environment that hold secrets."""
        names = [key for key in self.address.properties if _SECRET.search(key)]
        prefix = f"PYICEBERG_CATALOG__{self.address.name.upper()}__"
        own = [f"{prefix}{name.upper().replace('-', '_').replace('.', '__')}" for name in names]
        return own + ([_KEYS] if self.is_in_s3 else [])

    def sql_name(self, quote: str) -> str:
        """Return the name of the table in the catalog, for SQL."""
        parts = (self.address.name, *self.identifier)
        return ".".join(part if _WORD.fullmatch(part) else f"{quote}{part}{quote}" for part in parts)


def _comment(mark: str, *sentences: str) -> str:
    return "".join(f"{mark} {sentence}\n" for sentence in sentences if sentence)


def _select(source: str) -> str:
    return f"SELECT * FROM {source}"  # noqa: S608 - the text is for a person


def _secrets(place: TablePlace) -> str:
    return f"set {', '.join(place.variables)}" if place.variables else ""


def _json_text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _load_table_text(place: TablePlace) -> str:
    """Return Python code that loads the table by PyIceberg."""
    address = place.address
    properties = {
        name: _json_text(value) for name, value in address.properties.items() if not _SECRET.search(name)
    }
    if file := address.sqlite_file:
        properties["uri"] = _json_text(f"sqlite:///{file.resolve()}")
    elif "***" in place.url:
        properties["uri"] = f'os.environ["{CATALOG_VARIABLE}"]'
    properties = {"type": _json_text(address.kind), **properties} if address.kind else properties
    # PyIceberg has its own configuration of a catalog with another name.
    given = properties if address.name == CATALOG_NAME else {}
    given |= {name: _json_text(value) for name, value in place.store.items()}
    lines = "".join(f'    "{name}": {value},\n' for name, value in given.items())
    return (
        _comment("#", _secrets(place))
        + ("import os\n\n" if "os.environ" in lines else "")
        + "from pyiceberg.catalog import load_catalog\n\n"
        + f'catalog = load_catalog("{address.name}", **{{\n{lines}}})\n'
        + f'table = catalog.load_table("{".".join(place.identifier)}")\n'
    )


def _pyiceberg_text(place: TablePlace) -> str:
    return f"{_load_table_text(place)}rows = table.scan().to_arrow()\n"


def _polars_text(place: TablePlace) -> str:
    stored = {name.replace("s3.", "aws_", 1): value for name, value in place.store.items()}
    if stored.get("aws_endpoint", "").startswith("http:"):
        stored["aws_allow_http"] = "true"
    options = f", storage_options={json.dumps(stored)}" if stored else ""
    return f"{_load_table_text(place)}\nimport polars as pl\n\nrows = pl.scan_iceberg(table{options}).collect()\n"


def _duckdb_text(place: TablePlace) -> str:
    if is_on_disk(place.location):
        listed = 'files = [re.sub("^file:/+", "/", task.file.file_path) for task in table.scan().plan_files()]\n'
        rows = "rows = duckdb.read_parquet(files, union_by_name=True)\n"
    else:
        listed = "batches = table.scan().to_arrow_batch_reader()\n"
        rows = "rows = duckdb.from_arrow(batches)\n"
    return f"{_load_table_text(place)}\nimport re\n\nimport duckdb\n\n{listed}{rows}"


def _clickhouse_text(place: TablePlace) -> str:
    metadata = place.metadata.removeprefix(f"{place.location}/")
    if is_on_disk(place.location):
        source = f"icebergLocal('{plain_path(place.location)}'"
    elif place.is_in_s3:
        bucket, _, key = place.location.partition("://")[2].partition("/")
        aws = f"https://s3.{place.store.get('s3.region', 'us-east-1')}.amazonaws.com"
        source = f"icebergS3('{place.store.get('s3.endpoint', aws).rstrip('/')}/{bucket}/{key}'"
    else:
        msg = f"ClickHouse reads tables of a disk or of S3, and this one is in {place.location}"
        raise SetupError(msg)
    state = "the present state of the table; print this again after a publication"
    source = f"{source}, SETTINGS iceberg_metadata_file_path = '{metadata}')"
    keys = f"set {_KEYS}" if place.is_in_s3 else "its folder must be in user_files_path, or in the working folder"
    return f"{_comment('--', state, keys)}{_select(source)}\n"


def _spark_text(place: TablePlace) -> str:
    """Return a command with the configuration of Spark, and SQL for its prompt."""
    address = place.address
    packages, catalog = [ICEBERG_FOR_SPARK], {"type": address.kind, "uri": place.url}
    if address.kind == SQL:
        url = make_url(address.uri)
        engine = url.get_backend_name()
        packages.append(_JDBC_DRIVERS.get(engine, f"<the JDBC driver of {engine}>"))
        catalog = {"type": "jdbc", **_jdbc_properties(address), "warehouse": place.warehouse}
    elif named := str(address.properties.get("warehouse", "")):
        catalog["warehouse"] = named
    if place.is_in_s3:
        packages.append(_ICEBERG_FOR_AWS)
        catalog["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
        if region := place.store.get("s3.region"):
            catalog["client.region"] = region
        if endpoint := place.store.get("s3.endpoint"):
            catalog |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
    catalog["cache-enabled"] = "false"  # else an open session does not see a later publication
    prefix = f"spark.sql.catalog.{address.name}"
    conf = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{name}": value for name, value in catalog.items() if value},
    }
    lines = [f"--packages {','.join(packages)}", *(f'--conf "{name}={value}"' for name, value in conf.items())]
    table, words = place.sql_name("`"), ".".join((address.name, *place.identifier))
    compaction = f"CALL {address.name}.system.rewrite_data_files(table => '{words}');"
    command = " \\\n  ".join(["spark-sql", *lines])
    return f"{_comment('#', _secrets(place))}{command}\n\n{_select(table)};\n{compaction}\n"


def _jdbc_properties(address: CatalogAddress) -> dict[str, str]:
    url = make_url(address.uri)
    if address.sqlite_file:
        return {
            "uri": f"jdbc:sqlite:{address.sqlite_file.resolve()}?busy_timeout=60000",
            "jdbc.schema-version": "V1",
        }
    port = f":{url.port}" if url.port else ""
    user = {"jdbc.user": url.username} if url.username else {}
    password = {"jdbc.password": "$CATALOG_PASSWORD"} if url.password else {}
    uri = f"jdbc:{url.get_backend_name()}://{url.host}{port}/{url.database}"
    return {"uri": uri, **user, **password, "jdbc.schema-version": "V1"}


def _trino_text(place: TablePlace) -> str:
    """Return a file with the properties of a catalog for Trino, and SQL."""
    address = place.address
    kinds = {SQL: "jdbc", "hive": "hive_metastore"}
    own = {"connector.name": "iceberg", "iceberg.catalog.type": kinds.get(address.kind, address.kind)}
    if address.kind == SQL:
        own |= _trino_database(place)
    elif address.kind == "rest":
        own["iceberg.rest-catalog.uri"] = place.url
        if named := str(address.properties.get("warehouse", "")):
            own["iceberg.rest-catalog.warehouse"] = named
        if "credential" in address.properties:
            own["iceberg.rest-catalog.security"] = "OAUTH2"
            own["iceberg.rest-catalog.oauth2.credential"] = f"${{ENV:{place.variables[0]}}}"
    elif address.kind == "hive":
        own["hive.metastore.uri"] = place.url
    if place.is_in_s3:
        own["fs.native-s3.enabled"] = "true"
        own |= {name: value for name, value in place.store.items() if name == "s3.region"}
        if endpoint := place.store.get("s3.endpoint"):
            own |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
    elif is_on_disk(place.location):
        own["fs.hadoop.enabled"] = "true"
    text = "".join(f"{name}={value}\n" for name, value in own.items())
    head = f"etc/catalog/{address.name}.properties"
    return f"{_comment('#', head, _secrets(place))}{text}\n{_select(place.sql_name(chr(34)))};\n"


def _trino_database(place: TablePlace) -> dict[str, str]:
    if place.address.sqlite_file:
        msg = (
            f"Trino cannot open the catalog {place.url}: it has no driver for SQLite\n\n"
            f"hint: set {CATALOG_VARIABLE} to a database of PostgreSQL or to a REST catalog"
        )
        raise SetupError(msg)
    jdbc = _jdbc_properties(place.address)
    return {
        "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
        "iceberg.jdbc-catalog.connection-url": jdbc["uri"],
        "iceberg.jdbc-catalog.connection-user": jdbc.get("jdbc.user", ""),
        "iceberg.jdbc-catalog.connection-password": "${ENV:CATALOG_PASSWORD}",
        "iceberg.jdbc-catalog.catalog-name": place.address.name,
        "iceberg.jdbc-catalog.default-warehouse-dir": place.warehouse,
    }


_TEXTS: Mapping[ReadingEngine, Callable[[TablePlace], str]] = {
    ReadingEngine.SPARK: _spark_text,
    ReadingEngine.TRINO: _trino_text,
    ReadingEngine.DUCKDB: _duckdb_text,
    ReadingEngine.POLARS: _polars_text,
    ReadingEngine.CLICKHOUSE: _clickhouse_text,
    ReadingEngine.PYICEBERG: _pyiceberg_text,
}
