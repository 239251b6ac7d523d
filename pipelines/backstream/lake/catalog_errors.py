"""Recognize the errors of catalogs: of a database, of a REST server, of Hive, and of Glue."""

from __future__ import annotations

from pyiceberg.exceptions import DynamoDbError, RESTError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

_CLIENTS = frozenset(("requests", "urllib3", "thrift", "hive_metastore", "botocore", "google"))
"""The packages with which PyIceberg calls the services of catalogs."""


def is_catalog_error(error: BaseException) -> bool:
    """Return whether an error is of a catalog, and not of a disk or an object store."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, SQLAlchemyError | RESTError | DynamoDbError) or package in _CLIENTS


def describe_cause(error: BaseException) -> str:
    """Return the message of the database or service itself, without the statement and its parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().replace("\n", "\n  ") or type(error).__name__
