"""Find out which Iceberg catalog an installation uses: its kind, its name, and its properties."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from backstream.errors import SetupError
from backstream.runs.home import Home
from backstream.variables import CATALOG_NAME_VARIABLE, CATALOG_VARIABLE, NAMESPACE_VARIABLE

CATALOG_NAME = "backstream"
"""The name of a catalog that an address describes; a database of PyIceberg may hold several catalogs."""
SQL, _REST, _HIVE, _GLUE = "sql", "rest", "hive", "glue"
_KINDS = {"http": _REST, "https": _REST, "thrift": _HIVE, "glue": _GLUE}
_SQLITE = "sqlite:///"
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PASSWORD = re.compile(r"(://[^:/@]*):[^@/]*@")


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """A catalog: its kind (as PyIceberg's `type`, empty for a class of the user), and PyIceberg's properties."""

    name: str
    kind: str
    properties: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_home(cls, home: Home) -> Self:
        """Return the catalog of a home: from PyIceberg's configuration if its name is set, or by its address.

        Raises:
            SetupError: if both are set, or PyIceberg has no configuration of the catalog.
        """
        name = os.environ.get(CATALOG_NAME_VARIABLE, "")
        if not name:
            return cls.from_uri(home.catalog_uri)
        if os.environ.get(CATALOG_VARIABLE):
            msg = f"{CATALOG_NAME_VARIABLE} and {CATALOG_VARIABLE} are both set\n\nhint: unset one of them"
            raise SetupError(msg)
        return cls._from_configuration(name)

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """Return the catalog at an address; the parameters of a service's address are properties of PyIceberg."""
        scheme = uri.partition("://")[0]
        if (kind := _KINDS.get(scheme, SQL)) == SQL:
            return cls(CATALOG_NAME, SQL, {"uri": uri})
        parts = urlsplit(uri)
        address = {} if kind == _GLUE else {"uri": parts._replace(query="", fragment="").geturl()}
        return cls(CATALOG_NAME, kind, dict(parse_qsl(parts.query)) | address)

    @classmethod
    def _from_configuration(cls, name: str) -> Self:
        from pyiceberg.utils.config import Config

        found = Config().get_catalog_config(name)
        if not found:
            msg = (
                f"PyIceberg has no configuration of the catalog {name!r} ({CATALOG_NAME_VARIABLE})\n\n"
                "hint: configure it in ~/.pyiceberg.yaml or by variables such as"
                f" PYICEBERG_CATALOG__{name.upper()}__URI"
            )
            raise SetupError(msg)
        properties = {key: value if isinstance(value, dict) else str(value) for key, value in found.items()}
        scheme = str(properties.get("uri", "")).partition("://")[0]
        kind = "" if "py-catalog-impl" in properties else properties.pop("type", _KINDS.get(scheme, SQL))
        return cls(name, str(kind).lower(), properties)

    @property
    def uri(self) -> str:
        """The URI of a database or service; empty if the catalog has none."""
        return str(self.properties.get("uri", ""))

    @property
    def display_text(self) -> str:
        """The address without passwords.

        Raises:
            SetupError: if it must be a database URI and is not.
        """
        if self.kind == SQL:
            return mask_password(self.uri)
        return _PASSWORD.sub(r"\1:***@", self.uri) or f"{self.name} ({self.kind or 'of a class'})"

    @property
    def warehouse(self) -> str:
        """The place of new tables in the catalog's own properties; empty if it is unknown, or only a name."""
        place = str(self.properties.get("warehouse", ""))
        return place if "://" in place or place.startswith("/") else ""

    @property
    def sqlite_file(self) -> Path | None:
        """The file of an SQLite catalog; None for another one, and for a database in memory."""
        path = self.uri.removeprefix(_SQLITE).partition("?")[0]
        if self.kind != SQL or not self.uri.startswith(_SQLITE) or path.startswith((":", "file:")):
            return None
        return Path(path) if path else None


def mask_password(uri: str) -> str:
    """Return the URI of a database without its password, as it may be displayed.

    Raises:
        SetupError: if it is not a database URI.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(uri).render_as_string(hide_password=True)
    except ArgumentError:
        msg = (
            "the catalog address must be a database URI such as sqlite:///catalog.db,"
            f" or https://, thrift:// or glue:// ({CATALOG_VARIABLE})"
        )
        raise SetupError(msg) from None  # the value may hold a password


def namespace() -> tuple[str, ...]:
    """Return the namespace of the installation's tables: `$BACKSTREAM_NAMESPACE`, by default `backstream`.

    Raises:
        SetupError: if it has other characters than letters, digits, `_` and `-`, with a dot between its levels.
    """
    text = os.environ.get(NAMESPACE_VARIABLE) or "backstream"
    if not _NAMESPACE.fullmatch(text):
        rule = "the namespace must be words joined by dots, such as sales.hourly"
        msg = f"{rule}, got {text!r} ({NAMESPACE_VARIABLE})"
        raise SetupError(msg)
    return tuple(text.split("."))


def table_identifier(name: str) -> tuple[str, ...]:
    """Return the identifier of a table; a name without dots is in the namespace of the installation."""
    return tuple(name.split(".")) if "." in name else (*namespace(), name)
