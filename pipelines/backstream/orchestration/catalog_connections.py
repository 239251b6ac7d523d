"""Write an Airflow connection as the address of an Iceberg catalog: a database, REST, Hive, or Glue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from backstream.errors import SpecError

Address = tuple[str, list[str]]
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


def catalog_uri(connection: Any) -> Address:
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


def _database(connection: Any) -> Address:
    host = f"{connection.host}:{connection.port}" if connection.port else connection.host or ""
    password = quote(connection.password or "", safe="")
    user = f"{quote(connection.login or '', safe='')}:{password}"
    # The host of a Unix socket is a folder, which a URI can have only as a parameter.
    target = f"@/{connection.schema}?host={host}" if host.startswith("/") else f"@{host}/{connection.schema}"
    return f"postgresql+psycopg2://{user}{target}", [password]


def _sqlite(connection: Any) -> Address:
    return f"sqlite:///{_require_host(connection)}?timeout=60", []


def _rest(connection: Any) -> Address:
    host = _require_host(connection)
    base = host if "://" in host else f"{connection.schema or 'https'}://{host}"
    base += f":{connection.port}" if connection.port else ""
    properties = _extra(connection)
    if connection.login:
        properties["credential"] = f"{connection.login}:{connection.password or ''}"
    elif connection.password:
        properties["token"] = connection.password
    return _with_properties(base, properties)


def _hive(connection: Any) -> Address:
    base = f"thrift://{_require_host(connection)}:{connection.port or _HIVE_PORT}"
    return _with_properties(base, _extra(connection))


def _glue(connection: Any) -> Address:
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


def _with_properties(base: str, properties: Mapping[str, str]) -> Address:
    secrets = [quote(value, safe="") for name, value in properties.items() if _SECRET.search(name)]
    return base + (f"?{urlencode(properties, quote_via=quote, safe='')}" if properties else ""), secrets
