"""Record which definition writes a dataset, and refuse another definition or other key columns."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from backstream.errors import PlanError
from backstream.lake.catalog import DEFINITION, KEYS, NAMESPACE
from backstream.lake.commit import OneTransaction
from backstream.lake.published_runs import list_datasets
from backstream.runs.plan import Plan


@dataclass(frozen=True, slots=True)
class TableOwner:
    """A definition that is about to write a dataset; the path is absolute."""

    dataset: str
    definition: Path
    keys: tuple[str, ...]

    @classmethod
    def from_plan(cls, plan: Plan) -> Self:
        """Return the owner from a plan's definition."""
        keys = plan.definition.get("source", {}).get("key", ())
        return cls(plan.dataset, Path(plan.definition_path), tuple(keys))

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that record the owner."""
        return {DEFINITION: str(self.definition), KEYS: json.dumps(self.keys)}


def require_ownable(catalog: Catalog, owner: TableOwner) -> None:
    """Check that no other definition writes the dataset, and that its published rows have the same key columns.

    A definition whose file is missing, or has another dataset name now, no longer owns the dataset.

    Raises:
        PlanError: with both definitions, or both lists of key columns.
    """
    try:
        table = catalog.load_table((NAMESPACE, owner.dataset))
    except NoSuchTableError:
        return
    _require_owner(table, owner)


def list_former_tables(catalog: Catalog, owner: TableOwner) -> list[str]:
    """Return the tables that this definition's file wrote under other names; none if its present table exists."""
    if catalog.table_exists((NAMESPACE, owner.dataset)):
        return []
    writers = {table.name()[-1]: table.properties.get(DEFINITION) for table in list_datasets(catalog)}
    path = owner.definition.resolve()
    return [name for name, writer in writers.items() if writer is not None and Path(writer).resolve() == path]


def record_owner(table: Table, owner: TableOwner) -> None:
    """Record the owner in the properties of the table of windows.

    Raises:
        PlanError: if another definition writes the table, or its published rows have other key columns.
        CommitFailedException: if properties or rows changed since the table was loaded; nothing is recorded.
    """
    _require_owner(table, owner)
    if any(table.properties.get(name) != value for name, value in owner.properties.items()):
        transaction = OneTransaction(table)
        transaction.require_unchanged(owner.properties)
        with transaction:
            transaction.set_properties(owner.properties)


def _require_owner(table: Table, owner: TableOwner) -> None:
    _require_only_writer(table, owner)
    _require_same_keys(table, owner)


def _require_only_writer(table: Table, owner: TableOwner) -> None:
    writer = table.properties.get(DEFINITION)
    if writer is None or Path(writer).resolve() == owner.definition.resolve():
        return
    if _dataset_of_file(Path(writer)) == owner.dataset:
        msg = (
            f"two definitions have the name {owner.dataset!r}, and only one can write the table\n"
            f"  {writer}\n  {owner.definition}\n\n"
            "hint: give one of them another name; its rows will be written to a new table"
        )
        raise PlanError(msg)


def _require_same_keys(table: Table, owner: TableOwner) -> None:
    if table.metadata.current_snapshot_id is None:
        return  # a table without rows can take any key
    keys = _published_keys(table, owner)
    if set(keys) != set(owner.keys):
        path = owner.definition
        msg = (
            f"the key of {owner.dataset!r} changed, and one table cannot hold rows of both keys ({path})\n"
            f"  published by {_keys_text(keys)}\n  source.key is {_keys_text(owner.keys)}\n\n"
            "hint: give the definition another name; it will write to a new table, and the old one stays unchanged"
        )
        raise PlanError(msg)


def _published_keys(table: Table, owner: TableOwner) -> Sequence[str]:
    """Return the keys of the published rows; without a recorded key, those that the table has as columns."""
    if (recorded := table.properties.get(KEYS)) is not None:
        return list(json.loads(recorded))
    return [name for name in owner.keys if name in table.schema().column_names]


def _dataset_of_file(definition: Path) -> str | None:
    """Return the dataset that a file defines; None if the file is missing or is not a definition."""
    try:
        name = tomllib.loads(definition.read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):
        return None
    return name if isinstance(name, str) else None


def _keys_text(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "no key"
