"""Read the addresses and keys of the catalog and the warehouse from Airflow connections, in tasks only."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from backstream.errors import SpecError
from backstream.orchestration.airflow_versions import AirflowNotFoundException
from backstream.runs.home import CATALOG_VARIABLE, WAREHOUSE_VARIABLE
from backstream.runs.settings import misspelt_variables, provide_settings

log = logging.getLogger(__name__)

CATALOG_CONNECTION_ID = "backstream_catalog"
WAREHOUSE_CONNECTION_ID = "backstream_warehouse"
_DIALECTS = {"postgres": "postgresql+psycopg2"}
_STORES = ("aws", "generic")
"""Connection types of the warehouse; the form of Airflow offers `aws` only with the provider of Amazon."""
_OPTIONS = {"region_name": "region", "endpoint_url": "endpoint", "aws_session_token": "session_token"}
"""Keys of the extra of a connection, as in the provider of Amazon, and keys of the warehouse address."""


def provide_environment(definition_path: Path) -> None:
    """Set the variables of the project of a definition, then those of the Airflow connections.

    Raises:
        SpecError: when the project file or a connection is not valid.
    """
    provide_settings(definition_path.parent)
    for sentence in misspelt_variables():
        log.warning("%s", sentence)
    provide_lake()


def provide_lake() -> None:
    """Set the environment variables of the catalog and the warehouse from Airflow connections, if these exist.

    Airflow masks the secrets of a connection in logs. A Spark driver inherits the variables; executors don't.

    Raises:
        SpecError: when a connection has a type that backstream does not support.
    """
    if connection := _load_connection(CATALOG_CONNECTION_ID, tuple(_DIALECTS)):
        os.environ[CATALOG_VARIABLE] = _catalog_uri(connection)
    if connection := _load_connection(WAREHOUSE_CONNECTION_ID, _STORES):
        os.environ[WAREHOUSE_VARIABLE] = _warehouse_uri(connection)


def _load_connection(connection_id: str, types: tuple[str, ...]) -> Connection | None:
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        return None
    if connection.conn_type not in types:
        msg = f"connection {connection_id!r} must be of type {' or '.join(types)}, got {connection.conn_type!r}"
        raise SpecError(msg)
    return connection


def _catalog_uri(connection: Connection) -> str:
    host = f"{connection.host}:{connection.port}" if connection.port else connection.host or ""
    user = f"{quote(connection.login or '', safe='')}:{_quote_secret(connection.password)}"
    # The host of a Unix socket is a folder, which a URI can have only as a parameter.
    target = f"@/{connection.schema}?host={host}" if host.startswith("/") else f"@{host}/{connection.schema}"
    return f"{_DIALECTS[str(connection.conn_type)]}://{user}{target}"


def _warehouse_uri(connection: Connection) -> str:
    scheme, _, location = (connection.host or "").rpartition("://")
    if scheme != "s3" or not location:
        host = connection.host
        msg = f"the host of connection {WAREHOUSE_CONNECTION_ID!r} must be s3://bucket/prefix, got {host!r}"
        raise SpecError(msg)
    keys = f"{quote(connection.login, safe='')}:{_quote_secret(connection.password)}@" if connection.login else ""
    extra = {name: value for key, name in _OPTIONS.items() if (value := connection.extra_dejson.get(key))}
    _quote_secret(extra.get("session_token"))
    return f"s3://{keys}{location}" + (f"?{urlencode(extra)}" if extra else "")


def _quote_secret(secret: str | None) -> str:
    """Return a secret quoted for an address, and mask this form in logs too."""
    quoted = quote(secret or "", safe="")
    if quoted:
        mask_secret(quoted)
    return quoted
