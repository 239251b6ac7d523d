"""An Iceberg REST catalog over a SQL catalog, with only what a reader asks; it runs as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pyiceberg.exceptions import NoSuchTableError
from tests.sources.tables import Archive

REPOSITORY = Path(__file__).parents[2]


def make_app(archive: Archive) -> FastAPI:
    app = FastAPI()

    @app.get("/v1/config")
    def config() -> dict[str, Any]:
        return {"defaults": {}, "overrides": {}}

    @app.get("/v1/namespaces/{namespace}/tables/{table}")
    def load_table(namespace: str, table: str) -> dict[str, Any]:
        try:
            with archive.catalog() as catalog:
                loaded = catalog.load_table((namespace, table))
        except NoSuchTableError as error:
            raise HTTPException(404) from error
        metadata = json.loads(loaded.metadata.model_dump_json())
        return {"metadata-location": loaded.metadata_location, "metadata": metadata, "config": {}}

    return app


@contextmanager
def serving(archive: Archive, log: Path) -> Iterator[str]:
    """Serve a catalog on a free port, and yield its address."""
    command = [sys.executable, "-m", "tests.sources.rest_server", archive.uri, archive.warehouse]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output)
        try:
            yield _wait_for_address(process, log)
        finally:
            process.terminate()
            process.wait(10)


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        _, found, rest = log.read_text().partition("running on ")
        if found and " " in rest:
            address = rest.split(" ", 1)[0]
            urllib.request.urlopen(f"{address}/v1/config", timeout=10)  # noqa: S310 - a local address
            return address
        time.sleep(0.1)
    raise AssertionError(log.read_text())


if __name__ == "__main__":
    uri, warehouse = sys.argv[1:]
    uvicorn.run(make_app(Archive(uri, warehouse, {})), port=0)
