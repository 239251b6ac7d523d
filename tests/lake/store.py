"""A local S3 store with one user, by moto's server in a thread; it refuses all other users."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pyarrow.fs import FileSelector, S3FileSystem

BUCKET = "lake"
_REGION = "us-east-1"
_EVERYTHING_IN_S3 = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}


@dataclass(frozen=True)
class Store:
    """The store and the keys of its user."""

    endpoint: str
    key_id: str
    secret: str
    filesystem: Any = field(repr=False)

    def new_warehouse(self) -> str:
        """Return the address of an empty warehouse, with the keys."""
        return self.address(f"{BUCKET}/{uuid.uuid4().hex}")

    def address(self, place: str, secret: str | None = None) -> str:
        """Return the address of a place in the format of `BACKSTREAM_WAREHOUSE`."""
        keys = f"{quote(self.key_id, safe='')}:{quote(secret or self.secret, safe='')}"
        return f"s3://{keys}@{place}?endpoint={quote(self.endpoint, safe='')}"

    def keys(self, place: str) -> set[str]:
        """Return the objects below a place, without folder placeholders."""
        infos = self.filesystem.get_file_info(FileSelector(place, recursive=True, allow_not_found=True))
        return {info.path for info in infos if info.is_file}

    def content(self, key: str) -> bytes:
        """Return the content of an object."""
        with self.filesystem.open_input_file(key) as file:
            return bytes(file.read())

    def delete(self, key: str) -> None:
        """Delete an object directly."""
        self.filesystem.delete_file(key)


@contextmanager
def running() -> Iterator[Store]:
    """Run the store for the length of a block."""
    from moto.server import ThreadedMotoServer

    for name in ("werkzeug", "moto"):  # hides the log of the store
        logging.getLogger(name).setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield _with_user(f"http://127.0.0.1:{port}")
    finally:
        server.stop()


def _with_user(endpoint: str) -> Store:
    from moto import settings
    from moto.backends import get_backend
    from moto.core.models import DEFAULT_ACCOUNT_ID

    iam = get_backend("iam")[DEFAULT_ACCOUNT_ID]["aws"]
    iam.create_user(region_name=_REGION, user_name="backstream", tags=[])
    iam.put_user_policy("backstream", "s3", json.dumps(_EVERYTHING_IN_S3))
    key = iam.create_access_key("backstream")
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0.0  # the store checks keys and signatures from now on
    filesystem = S3FileSystem(
        access_key=key.access_key_id,
        secret_key=key.secret_access_key,
        endpoint_override=endpoint,
        region=_REGION,
        allow_bucket_creation=True,
    )
    filesystem.create_dir(BUCKET)
    return Store(endpoint, key.access_key_id, key.secret_access_key, filesystem)
