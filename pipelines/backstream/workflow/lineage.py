"""Describe the lineage of a run: the data that it reads, the tables that it writes, and the columns in between."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from backstream.definition.column_lineage import ColumnLineage, find_origins
from backstream.definition.loader import parse_definition
from backstream.definition.model import Definition
from backstream.definition.prepared import list_single_sources
from backstream.definition.source_section import StoredRecords
from backstream.errors import BackstreamError
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import CatalogAddress, table_identifier
from backstream.lake.publication.target_table import TargetTable
from backstream.lake.source_tables import open_source_table
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Publication
from backstream.runs.table_schemas import WINDOWS

_WILDCARD = re.compile(r"[*?\[{]")
_USER = re.compile(r"://[^/@]*@")
_S3 = ("s3", "s3a", "s3n")
_WITH_ROOT = ("", "file", "hdfs")
"""Schemes of file systems, whose paths begin with a slash; keys of an object store do not."""


@dataclass(frozen=True, slots=True)
class Address:
    """A dataset by OpenLineage's rules for names: the store or file system, and the folder or prefix in it."""

    namespace: str
    name: str

    @classmethod
    def from_location(cls, location: str) -> Address:
        """Return the address of a folder or of a table; wildcards and what follows them are left out."""
        parts = urlsplit(location)
        scheme = "s3" if parts.scheme in _S3 else parts.scheme
        host = parts.netloc.rpartition("@")[2] if scheme == "s3" else parts.netloc
        folder = PurePosixPath(parts.path)
        while _WILDCARD.search(str(folder)):
            folder = folder.parent
        namespace = f"{scheme}://{host}" if scheme not in {"", "file"} else "file"
        return cls(namespace, str(folder) if scheme in _WITH_ROOT else str(folder).lstrip("/"))


@dataclass(frozen=True, slots=True)
class LineageInput:
    """Data that a run reads; `size_bytes` and `files` are None if the run reads prepared files instead.

    `lineage` is None if it is unknown which columns of the result come from it.
    """

    address: Address
    columns: Mapping[str, str] = field(default_factory=dict)
    lineage: ColumnLineage | None = None
    files: int | None = None
    size_bytes: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class LineageOutput:
    """A table that a run writes; `columns` maps its columns to types, `names` the columns of the result to it."""

    address: Address
    table: str
    columns: Mapping[str, str]
    names: Mapping[str, str]
    version: str = ""


@dataclass(frozen=True, slots=True)
class RunLineage:
    """The lineage of a run. The first output is the table of the dataset."""

    plan: Plan
    description: str
    catalog: str
    inputs: tuple[LineageInput, ...]
    outputs: tuple[LineageOutput, ...]
    publication: Publication | None
    size_bytes: int


def describe_lineage(plan: Plan) -> RunLineage:
    """Return the lineage of a run, from its plan and the files that it has written so far."""
    definition, home = parse_definition(plan.definition, plan.definition_path), plan.home
    publication = Publication.find(plan.folder.publication)
    staged = [file for manifest in load_manifests(plan) for file in manifest.files.get(WINDOWS, ())]
    return RunLineage(
        plan,
        definition.description,
        _catalog_name(home),
        tuple(_inputs(plan, definition, home)),
        tuple(_outputs(plan, home, publication)),
        publication,
        sum(file.size_bytes for file in staged),
    )


def _catalog_name(home: Home) -> str:
    """Return the address of the catalog without user, password, and parameters; else its name."""
    address = CatalogAddress.from_home(home)
    return _USER.sub("://", address.uri).partition("?")[0] or address.name


def _inputs(plan: Plan, definition: Definition, home: Home) -> Iterator[LineageInput]:
    for single in list_single_sources(definition):
        lineage = find_origins(single, is_replay=plan.mode is Mode.REPLAY, known=plan.columns)
        is_read_in_place = not plan.prepared and not definition.source.parts
        columns = plan.columns if is_read_in_place else single.source.columns
        for address, version in _addresses(single.source, plan, home):
            files, size_bytes = _count_files(plan, address) if is_read_in_place else (None, None)
            yield LineageInput(address, columns, lineage, files, size_bytes, version)
    for side in definition.inputs.values():
        for address, version in _addresses(side, plan, home):
            yield LineageInput(address, side.columns, version=version)


def _addresses(records: StoredRecords, plan: Plan, home: Home) -> Iterator[tuple[Address, str]]:
    """Yield the folders of records, or the table with its snapshot."""
    if records.format != "iceberg":
        yield from ((Address.from_location(path), "") for path in records.paths)
        return
    name = records.paths[0]
    catalog, _, identifier = name.partition(".")
    try:
        with open_source_table(name, home, plan.definition_path) as table:
            address = Address.from_location(table.location())
    except BackstreamError:
        address = Address(catalog, identifier)
    snapshot = plan.source_snapshots.get(name)
    yield address, "" if snapshot is None else str(snapshot)


def _count_files(plan: Plan, address: Address) -> tuple[int, int]:
    """Return how many files the chunks read in a folder, and their bytes."""
    positions = {position for chunk in plan.chunks for position in chunk.files}
    files = [plan.inputs[position] for position in positions]
    folder = address.name.rstrip("/")
    root = folder if address.namespace == "file" else f"{address.namespace}/{folder.lstrip('/')}"
    inside = [file for file in files if file.path.startswith(root)]
    return len(inside), sum(file.size_bytes for file in inside)


def _outputs(plan: Plan, home: Home, publication: Publication | None) -> Iterator[LineageOutput]:
    table = plan.tables[WINDOWS]
    columns = {name: kind for name, kind, *_ in table.columns}
    version = str(publication.snapshots[WINDOWS]) if publication else ""
    name = ".".join(table_identifier(table.name))
    yield LineageOutput(
        Address.from_location(table.location), name, columns, dict(zip(columns, columns, strict=True)), version
    )
    target = TargetTable.from_definition(plan.definition)
    if target is None:
        return
    with open_catalog_for_reading(home) as catalog:
        location = target.load(catalog).location()
    names = {column: target.name_of(column) for column in columns}
    yield LineageOutput(
        Address.from_location(location), target.table, {names[each]: kind for each, kind in columns.items()}, names
    )
