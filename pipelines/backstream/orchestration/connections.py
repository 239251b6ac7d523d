"""Read the addresses and keys of the catalog and the warehouse from Airflow connections, in tasks only."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from backstream.errors import SpecError
from backstream.orchestration.airflow_versions import AirflowNotFoundException
from backstream.orchestration.catalog_connections import catalog_uri
from backstream.runs.settings import misspelt_variables, provide_settings
from backstream.variables import (
    CATALOG_CONNECTION_VARIABLE,
    CATALOG_VARIABLE,
    WAREHOUSE_CONNECTION_VARIABLE,
    WAREHOUSE_VARIABLE,
)

log = logging.getLogger(__name__)

CATALOG_CONNECTION_ID = "backstream_catalog"
WAREHOUSE_CONNECTION_ID = "backstream_warehouse"
_STORES = ("aws", "generic")
"""Connection types of the warehouse; the form of Airflow offers `aws` only with the provider of Amazon."""
_OPTIONS = {"region_name": "region", "endpoint_url": "endpoint", "aws_session_token": "session_token"}
"""Keys of the extra of a connection, as in the provider of Amazon, and keys of the warehouse address."""
Load = Callable[[str], Any]
"""Function that returns an Airflow connection by its id, or raises `AirflowNotFoundException`."""


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
        os.environ[CATALOG_VARIABLE] = _mask_address(catalog_uri(connection))
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


def _warehouse_uri(connection: Any) -> tuple[str, list[str]]:
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


def _mask_address(address: tuple[str, list[str]]) -> str:
    """Return an address, after masking its quoted secrets in logs; Airflow masks the plain ones."""
    uri, secrets = address
    for secret in filter(None, secrets):
        mask_secret(secret)
    return uri
