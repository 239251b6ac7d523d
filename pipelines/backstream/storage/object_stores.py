"""Open the file systems of object stores, with keys and options from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from backstream.errors import SpecError, StorageError
from backstream.variables import WAREHOUSE_VARIABLE

S3_SCHEMES = ("s3", "s3a", "s3n")
_SCHEMES = (*S3_SCHEMES, "gs", "abfs", "abfss")
_DEFAULT_REGION = "us-east-1"
"""The region for stores with an endpoint: they ignore it, but without one PyArrow asks Amazon, which fails."""
STORE_OPTIONS = {"region": "s3.region", "endpoint": "s3.endpoint", "session_token": "s3.session-token"}
_VARIABLES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
_KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")
_READING_HINT = (
    "hint: keys are read from the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
    " GOOGLE_APPLICATION_CREDENTIALS, AZURE_CLIENT_ID), or from the machine's role; without AWS keys, also from"
    f" {WAREHOUSE_VARIABLE}"
)


def require_known_store(path: str, where: str) -> None:
    """Check the address of a source in an object store.

    Raises:
        SpecError: when the store is unknown, or the address contains a key.
    """
    scheme, _, rest = path.partition("://")
    if scheme not in _SCHEMES:
        msg = f"an object store must be one of {', '.join(_SCHEMES)}, got {scheme!r} ({where}, source.path)"
        raise SpecError(msg)
    if scheme in S3_SCHEMES and "@" in rest.partition("/")[0]:
        msg = (
            f"source.path must not contain keys, because plans and reports show it ({where})\n\n"
            "hint: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
        raise SpecError(msg)


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The keys and options of S3, as PyIceberg names them; tasks on other machines receive them from the driver.

    The file systems of Google and Azure read keys from the environment of each machine.
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls) -> StoreAccess:
        """Return the access by the usual variables; without keys there, those of the warehouse, if it has some."""
        address = warehouse_address()
        has_keys = any(os.environ.get(name) for name in _KEY_VARIABLES)
        if address.scheme in S3_SCHEMES and "@" in address.netloc and not has_keys:
            keys = address_keys(address.netloc.rpartition("@")[0])
            return cls(keys | store_options(dict(parse_qsl(address.query))))
        return cls(_keys_from_environment() | store_options({}))

    @classmethod
    def to_warehouse(cls) -> StoreAccess:
        """Return the access to the warehouse by its address; without keys there, by the usual variables."""
        address = warehouse_address()
        keys = address_keys(address.netloc.rpartition("@")[0])
        return cls((keys or _keys_from_environment()) | store_options(dict(parse_qsl(address.query))))

    def open(self, address: str) -> tuple[Any, str]:
        """Return PyArrow's file system of an address, and the path in it, which begins with the bucket."""
        from pyarrow.fs import FileSystem, LocalFileSystem

        scheme, separator, path = address.partition("://")
        if not separator or scheme == "file":
            return LocalFileSystem(), path if separator else address
        if scheme in S3_SCHEMES:
            return _open_s3(tuple(sorted(self.properties.items())), path.partition("/")[0]), path.rstrip("/")
        bucket, slash, key = path.partition("/")
        filesystem, root = FileSystem.from_uri(f"{scheme}://{bucket}")
        return filesystem, f"{root.rstrip('/')}{slash}{key}".rstrip("/")


def list_objects(filesystem: Any, root: str) -> Iterator[Any]:
    """Return PyArrow's description of each object below a path, without folder placeholders."""
    from pyarrow.fs import FileSelector

    selector = FileSelector(root, recursive=True, allow_not_found=True)
    return (info for info in filesystem.get_file_info(selector) if info.is_file)


@lru_cache(8)
def _open_s3(properties: tuple[tuple[str, str], ...], bucket: str) -> Any:
    """Return the file system of a bucket; it keeps its connections, so it is shared."""
    from pyarrow.fs import S3FileSystem, resolve_s3_region

    given = dict(properties)
    return S3FileSystem(
        access_key=given.get("s3.access-key-id"),
        secret_key=given.get("s3.secret-access-key"),
        session_token=given.get("s3.session-token"),
        endpoint_override=given.get("s3.endpoint"),
        region=given.get("s3.region") or resolve_s3_region(bucket),
    )


def warehouse_address() -> SplitResult:
    """Return the parts of the warehouse's address as configured; empty without one, and for an invalid one."""
    try:
        return urlsplit(os.environ.get(WAREHOUSE_VARIABLE, ""))
    except ValueError:  # another check reports it
        return urlsplit("")


def address_keys(user_info: str) -> dict[str, str]:
    """Return the keys before the `@` of an address as properties of PyIceberg; empty without keys."""
    user, _, secret = user_info.partition(":")
    keys = {"s3.access-key-id": unquote(user), "s3.secret-access-key": unquote(secret)}
    return keys if user_info else {}


def store_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return options as properties of PyIceberg: those of an address, and otherwise those of the environment."""
    options = {name: value for name in STORE_OPTIONS if (value := given.get(name) or _from_environment(name))}
    if "endpoint" in options:
        options.setdefault("region", _DEFAULT_REGION)
    return {STORE_OPTIONS[name]: value for name, value in options.items()}


def _keys_from_environment() -> dict[str, str]:
    names = {
        "s3.access-key-id": "AWS_ACCESS_KEY_ID",
        "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "s3.session-token": "AWS_SESSION_TOKEN",
    }
    return {name: value for name, variable in names.items() if (value := os.environ.get(variable))}


def _from_environment(option: str) -> str | None:
    """Return an option from the environment; PyArrow reads the keys from there, but not region or endpoint."""
    values = (os.environ.get(name) for name in _VARIABLES.get(option, ()))
    return next((value for value in values if value), None)


@contextmanager
def explain_store_errors(action: str, address: str) -> Iterator[None]:
    """Convert errors of an object store.

    Raises:
        StorageError: with the failed action and the address.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        msg = f"cannot {action} {address}: {describe_store_error(error)}\n\n{_READING_HINT}"
        raise StorageError(msg) from error


def is_from_store(error: OSError) -> bool:
    """Return whether an error is from an object store and not from a disk."""
    return "AWS Error" in str(error)


def describe_store_error(error: OSError) -> str:
    """Return the message of an object store without the id of the request."""
    message = re.sub(r"\s*\(Request ID: [^)]*\)", "", str(error))
    return message.removesuffix(".").removesuffix(": No response body")
