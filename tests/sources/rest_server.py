"""An Iceberg REST catalog over a SQL catalog, as a process of its own that can answer with errors.

It checks the requirements of a commit that the specification of the REST catalog names; it knows no others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate
from tests.sources.tables import Archive

REPOSITORY = Path(__file__).parents[2]
_OPTIONAL = {"location": None, "partition-spec": None, "write-order": None}
_CODES: dict[type[Exception], tuple[int, str]] = {
    CommitFailedException: (409, "CommitFailedException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NoSuchTableError: (404, "NoSuchTableException"),
}


@dataclass(frozen=True)
class RestCatalog:
    """A running server: its address, and the file with the faults of the next commits."""

    address: str
    faults: Path

    def fail_next(self, table: str, *answers: str) -> None:
        """Set the answers of the next commits to a table.

        `500` answers so without a commit. `applied 500` commits and answers so, `applied 409` as a proxy does that
        sends a request twice. `applied cut` commits and closes the connection within its answer. `overtaken 500`
        commits, lets another program commit to the table, and answers so.
        """
        self.faults.write_text(json.dumps({"table": table, "answers": answers}))


def make_app(archive: Archive, faults: Path) -> FastAPI:
    app = FastAPI()

    @app.exception_handler(Exception)
    def explain(_: Request, error: Exception) -> Response:
        code, kind = _CODES.get(type(error), (500, type(error).__name__))
        return _error(code, kind, str(error))

    for kind in _CODES:
        app.add_exception_handler(kind, explain)

    @app.get("/v1/config")
    def config() -> dict[str, Any]:
        return {"defaults": {}, "overrides": {}}

    _add_namespaces(app, archive)
    _add_tables(app, archive)
    _add_commits(app, archive, faults)
    return app


def _add_namespaces(app: FastAPI, archive: Archive) -> None:
    @app.get("/v1/namespaces")
    def list_namespaces() -> dict[str, Any]:
        with archive.catalog() as catalog:
            return {"namespaces": catalog.list_namespaces()}

    @app.post("/v1/namespaces")
    async def create_namespace(request: Request) -> dict[str, Any]:
        wanted = await request.json()
        properties = wanted.get("properties", {})
        with archive.catalog() as catalog:
            catalog.create_namespace(tuple(wanted["namespace"]), properties)
        return {"namespace": wanted["namespace"], "properties": properties}

    @app.get("/v1/namespaces/{namespace}")
    def load_namespace(namespace: str) -> dict[str, Any]:
        with archive.catalog() as catalog:
            properties = catalog.load_namespace_properties(_levels(namespace))
        return {"namespace": _levels(namespace), "properties": properties}

    @app.get("/v1/namespaces/{namespace}/tables")
    def list_tables(namespace: str) -> dict[str, Any]:
        with archive.catalog() as catalog:
            found = catalog.list_tables(_levels(namespace))
        return {"identifiers": [{"namespace": levels, "name": name} for *levels, name in found]}


def _add_tables(app: FastAPI, archive: Archive) -> None:
    @app.post("/v1/namespaces/{namespace}/tables")
    async def create_table(namespace: str, request: Request) -> dict[str, Any]:
        wanted = CreateTableRequest.model_validate(_OPTIONAL | await request.json())
        with archive.catalog() as catalog:
            optional: dict[str, Any] = {"partition_spec": wanted.partition_spec, "sort_order": wanted.write_order}
            created = catalog.create_table(
                (*_levels(namespace), wanted.name),
                wanted.table_schema,
                location=_choose_location(archive, namespace, wanted.name) or wanted.location,
                properties=wanted.properties,
                **{name: value for name, value in optional.items() if value is not None},
            )
        return _described(created)

    @app.head("/v1/namespaces/{namespace}/tables/{table}")
    def has_table(namespace: str, table: str) -> Response:
        with archive.catalog() as catalog:
            return Response(status_code=204 if catalog.table_exists((*_levels(namespace), table)) else 404)

    @app.delete("/v1/namespaces/{namespace}/tables/{table}")
    def drop_table(namespace: str, table: str) -> Response:
        with archive.catalog() as catalog:
            catalog.drop_table((*_levels(namespace), table))
        return Response(status_code=204)

    @app.get("/v1/namespaces/{namespace}/tables/{table}")
    def load_table(namespace: str, table: str) -> dict[str, Any]:
        with archive.catalog() as catalog:
            return _described(catalog.load_table((*_levels(namespace), table)))


def _choose_location(archive: Archive, namespace: str, table: str) -> str | None:
    """Return a place of the server's own choice, as Nessie's, if the namespace has the property `chooses`."""
    with archive.catalog() as catalog:
        properties = catalog.load_namespace_properties(_levels(namespace))
    place = properties.get("chooses")
    return f"{place}/{table}_{uuid4()}" if place else None


def _add_commits(app: FastAPI, archive: Archive, faults: Path) -> None:
    @app.post("/v1/namespaces/{namespace}/tables/{table}", response_model=None)
    async def commit(namespace: str, table: str, request: Request) -> Response | dict[str, Any]:
        try:
            wanted = CommitTableRequest.model_validate_json(await request.body())
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        answer = _next_answer(faults, table)
        if answer and answer.isdecimal():
            return _error(int(answer), "InternalServerError", "the server failed before the commit")
        with archive.catalog() as catalog:
            loaded = catalog.load_table((*_levels(namespace), table))
            catalog.commit_table(loaded, wanted.requirements, wanted.updates)
            if answer and answer.startswith("overtaken "):
                loaded.refresh()
                loaded.append(loaded.schema().as_arrow().empty_table())
            _forget_history(catalog, loaded.refresh())
            described = _described(catalog.load_table((*_levels(namespace), table)))
        if answer == "applied cut":
            return StreamingResponse(_cut(described), headers={"content-length": "1000000"})
        if answer:
            return _error(int(answer.split()[1]), "CommitFailedException", "the answer is wrong")
        return described


def _forget_history(catalog: Catalog, table: Table) -> None:
    """Remove tags and older snapshots, as Nessie does, if the namespace has the property `keeps` = `one`."""
    if catalog.load_namespace_properties(table.name()[:-1]).get("keeps") != "one":
        return
    tags = [name for name in table.refs() if name != "main"]
    updates = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in tags]
    current = table.metadata.current_snapshot_id
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != current]
    if tags or old:
        catalog.commit_table(table, (), (*updates, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old})))


def _cut(described: dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps(described)[:20].encode()
    msg = "the connection is cut"
    raise RuntimeError(msg)


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split("\x1f"))


def _described(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(code: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": code}}, code)


def _next_answer(faults: Path, table: str) -> str | None:
    content = json.loads(faults.read_text()) if faults.exists() else {"table": None}
    if content["table"] != table or not content["answers"]:
        return None
    answer, *rest = content["answers"]
    faults.write_text(json.dumps({"table": table, "answers": rest}))
    return str(answer)


@contextmanager
def serving(archive: Archive, log: Path) -> Iterator[RestCatalog]:
    """Serve a catalog on a free port."""
    faults = log.with_suffix(".faults")
    command = [sys.executable, "-m", "tests.sources.rest_server", archive.uri, archive.warehouse, str(faults)]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output)
        try:
            yield RestCatalog(_wait_for_address(process, log), faults)
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
    uri, warehouse, faults_file = sys.argv[1:]
    uvicorn.run(make_app(Archive(uri, warehouse, {}), Path(faults_file)), port=0, timeout_keep_alive=120)
