"""Read the addresses and keys of the catalog and the warehouse from Airflow connections, in tasks only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from backstream.errors import SpecError
from backstream.orchestration.airflow_versions import AirflowNotFoundException
from backstream.runs.settings import misspelt_variables, provide_settings
from backstream.text import text_logger
from backstream.variables import (
    CATALOG_CONNECTION_VARIABLE,
    CATALOG_VARIABLE,
    WAREHOUSE_CONNECTION_VARIABLE,
    WAREHOUSE_VARIABLE,
)

log = text_logger(__name__)

CATALOG_CONNECTION_ID = "backstream_catalog"
WAREHOUSE_CONNECTION_ID = "backstream_warehouse"
_STORES = ("aws", "generic")
"""Connection types of the warehouse; the form of Airflow offers `aws` only with the provider of Amazon."""
_OPTIONS = {"region_name": "region", "endpoint_url": "endpoint", "aws_session_token": "session_token"}
"""Keys of the extra of a connection, as in the provider of Amazon, and keys of the warehouse address."""
Load = Callable[[str], Any]
"""Function that returns an Airflow connection by its id, or raises `AirflowNotFoundException`."""
_Address = tuple[str, list[str]]
"""An address, and the quoted secrets in it."""
_SECRET = re.compile(r"credential|password|secret|token|key", re.IGNORECASE)
_HIVE_PORT = 9083
_GLUE = {
    "region_name": "glue.region",
    "endpoint_url": "glue.endpoint",
    "aws_session_token": "glue.session-token",
    "profile_name": "glue.profile-name",
}
"""Keys of the extra of a connection to Amazon, and the properties of PyIceberg."""


def provide_environment(definition_path: Path) -> None:
    """Set the variables of the project of a definition, then those of the Airflow connections.

    Raises:
        SpecError: when the project file or a connection is not valid.
    """
    provide_settings(definition_path.parent)
    for sentence in misspelt_variables():
        log.warning("%s", sentence)
    provide_lake()


def provide_lake(load: Load = BaseHook.get_connection) -> None:
    """Set the environment variables of the catalog and the warehouse from Airflow connections, if these exist.

    Airflow masks the secrets of a connection in logs. A Spark driver inherits the variables; executors don't.

    Raises:
        SpecError: when a connection has a type that backstream does not support, or one that is set is missing.
    """
    if connection := _load_connection(CATALOG_CONNECTION_VARIABLE, CATALOG_CONNECTION_ID, load):
        os.environ[CATALOG_VARIABLE] = _mask_address(_catalog_uri(connection))
    if connection := _load_connection(WAREHOUSE_CONNECTION_VARIABLE, WAREHOUSE_CONNECTION_ID, load):
        os.environ[WAREHOUSE_VARIABLE] = _mask_address(_warehouse_uri(connection))


def _load_connection(variable: str, default_id: str, load: Load) -> Any:
    """Return the connection with the id that is set, or by default another one; None if that does not exist."""
    connection_id = os.environ.get(variable) or default_id
    try:
        return load(connection_id)
    except AirflowNotFoundException:
        if not os.environ.get(variable):
            return None
        hint = f"hint: airflow connections add {connection_id}, or unset {variable}"
        msg = f"no Airflow connection {connection_id!r} ({variable})\n\n{hint}"
        raise SpecError(msg) from None


def _warehouse_uri(connection: Any) -> _Address:
    """Return the address of the warehouse, and the secrets in it."""
    name = repr(connection.conn_id)
    if connection.conn_type not in _STORES:
        msg = f"connection {name} must be of type {' or '.join(_STORES)}, got {connection.conn_type!r}"
        raise SpecError(msg)
    scheme, _, location = (connection.host or "").rpartition("://")
    if scheme != "s3" or not location:
        msg = f"the host of connection {name} must be s3://bucket/prefix, got {connection.host!r}"
        raise SpecError(msg)
    password = quote(connection.password or "", safe="")
    keys = f"{quote(connection.login, safe='')}:{password}@" if connection.login else ""
    extra = {name: value for key, name in _OPTIONS.items() if (value := connection.extra_dejson.get(key))}
    secrets = [password, quote(str(extra.get("session_token") or ""), safe="")]
    return f"s3://{keys}{location}" + (f"?{urlencode(extra)}" if extra else ""), secrets


def _mask_address(address: _Address) -> str:
    """Return an address, after masking its quoted secrets in logs; Airflow masks the plain ones."""
    uri, secrets = address
    for secret in filter(None, secrets):
        mask_secret(secret)
    return uri


def _catalog_uri(connection: Any) -> _Address:
    """Return the address of the catalog of a connection. Texts in its extra are properties of PyIceberg.

    Raises:
        SpecError: when the connection has another type, or lacks its host.
    """
    write = _WRITERS.get(str(connection.conn_type))
    if write is None:
        types = ", ".join(sorted(_WRITERS))
        msg = f"connection {connection.conn_id!r} must be of type {types}, got {connection.conn_type!r}"
        raise SpecError(msg)
    return write(connection)


def _database(connection: Any) -> _Address:
    host = f"{connection.host}:{connection.port}" if connection.port else connection.host or ""
    password = quote(connection.password or "", safe="")
    user = f"{quote(connection.login or '', safe='')}:{password}"
    # The host of a Unix socket is a folder, which a URI can have only as a parameter.
    target = f"@/{connection.schema}?host={host}" if host.startswith("/") else f"@{host}/{connection.schema}"
    return f"postgresql+psycopg2://{user}{target}", [password]


def _sqlite(connection: Any) -> _Address:
    return f"sqlite:///{_require_host(connection)}?timeout=60", []


def _rest(connection: Any) -> _Address:
    host = _require_host(connection)
    base = host if "://" in host else f"{connection.schema or 'https'}://{host}"
    base += f":{connection.port}" if connection.port else ""
    properties = _extra(connection)
    if connection.login:
        properties["credential"] = f"{connection.login}:{connection.password or ''}"
    elif connection.password:
        properties["token"] = connection.password
    return _with_properties(base, properties)


def _hive(connection: Any) -> _Address:
    base = f"thrift://{_require_host(connection)}:{connection.port or _HIVE_PORT}"
    return _with_properties(base, _extra(connection))


def _glue(connection: Any) -> _Address:
    extra = _extra(connection)
    properties = {_GLUE.get(name, name): value for name, value in extra.items() if name in _GLUE or "." in name}
    if connection.login:
        properties |= {
            "glue.access-key-id": connection.login,
            "glue.secret-access-key": connection.password or "",
        }
    return _with_properties("glue://", properties)


_WRITERS = {
    "postgres": _database,
    "sqlite": _sqlite,
    "iceberg": _rest,
    "http": _rest,
    "hive_metastore": _hive,
    "aws": _glue,
}
"""Functions by the type of connection; Airflow has `iceberg`, `hive_metastore`, and `aws` only with providers."""


def _extra(connection: Any) -> dict[str, str]:
    extra: Mapping[str, Any] = connection.extra_dejson
    return {name: str(value) for name, value in extra.items() if isinstance(value, str | int | float)}


def _require_host(connection: Any) -> str:
    if not connection.host:
        msg = f"the host of connection {connection.conn_id!r} is missing"
        raise SpecError(msg)
    return str(connection.host)


def _with_properties(base: str, properties: Mapping[str, str]) -> _Address:
    secrets = [quote(value, safe="") for name, value in properties.items() if _SECRET.search(name)]
    return base + (f"?{urlencode(properties, quote_via=quote, safe='')}" if properties else ""), secrets
