"""Record which definition writes a dataset, and refuse another definition or other key columns.

A table records an id of the definition's file, and no path of a machine; each home keeps the paths by id. The
early check reads the properties of the table. The check that holds in a race reads the snapshots: each publication
records its definition and keys in its snapshot, and its commit fails if another snapshot was added meanwhile.
"""

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
from pyiceberg.table.snapshots import Snapshot

from backstream.errors import PlanError
from backstream.lake import snapshots
from backstream.lake.catalog_address import table_identifier
from backstream.lake.published_runs import list_datasets
from backstream.lake.snapshot_producers import OneTransaction
from backstream.runs.home import Home
from backstream.runs.plan import Plan, definition_id
from backstream.runs.table_schemas import ROW_POSITION
from backstream.storage.files import write_text


@dataclass(frozen=True, slots=True)
class TableOwner:
    """A definition that is about to write a dataset; the path is absolute."""

    home: Home
    dataset: str
    definition: Path
    keys: tuple[str, ...]

    @classmethod
    def from_plan(cls, plan: Plan) -> Self:
        """Return the owner from a plan's definition."""
        keys = plan.definition.get("source", {}).get("key", ())
        return cls(plan.home, plan.dataset, Path(plan.definition_path), tuple(keys))

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that record the owner."""
        return {snapshots.DEFINITION: definition_id(self.definition), snapshots.KEYS: json.dumps(self.keys)}


def require_ownable(catalog: Catalog, owner: TableOwner) -> None:
    """Check that no other definition writes the dataset, and that its published rows have the same key columns.

    A definition whose file is missing, or has another dataset name now, no longer owns the dataset. Neither does
    one that this home does not know.

    Raises:
        PlanError: with both definitions, or both lists of key columns.
    """
    try:
        table = catalog.load_table(table_identifier(owner.dataset))
    except NoSuchTableError:
        return
    _require_owner(table, owner)


def list_former_tables(catalog: Catalog, owner: TableOwner) -> list[str]:
    """Return the tables that this definition's file wrote under other names; none if its present table exists."""
    if catalog.table_exists(table_identifier(owner.dataset)):
        return []
    own_id = definition_id(owner.definition)
    writers = {table.name()[-1]: table.properties.get(snapshots.DEFINITION) for table in list_datasets(catalog)}
    return [name for name, writer in writers.items() if writer == own_id]


def record_owner(table: Table, owner: TableOwner) -> None:
    """Record the owner in the properties of the table of windows.

    Raises:
        PlanError: if another definition writes the table, or its published rows have other key columns.
        CommitFailedException: if the rows, or the owner in a catalog other than REST, changed since the table was
            loaded; nothing is recorded.
    """
    _require_owner(table, owner)
    if any(table.properties.get(name) != value for name, value in owner.properties.items()):
        transaction = OneTransaction(table)
        transaction.require_current_snapshot(owner.properties)
        with transaction:
            transaction.set_properties(owner.properties)


def remember_definition(owner: TableOwner) -> None:
    """Keep the path of the definition in the home, by its id."""
    path = owner.home.definition_path(definition_id(owner.definition))
    if not path.exists():
        write_text(path, str(owner.definition.resolve()))


def _require_owner(table: Table, owner: TableOwner) -> None:
    """Check a loaded table, as `require_ownable` does.

    Raises:
        PlanError: with both definitions, or both lists of key columns.
    """
    published = _find_latest_publication(table)
    _require_only_writer(table, owner, published)
    _require_same_keys(table, owner, published)


def _find_latest_publication(table: Table) -> Snapshot | None:
    """Return the newest snapshot of a run; a foreign one in between changes neither owner nor keys."""
    ancestors = snapshots.list_ancestors(table)
    return next((one for one in ancestors if snapshots.summary_property(one, snapshots.RUN_ID)), None)


def _require_only_writer(table: Table, owner: TableOwner, published: Snapshot | None) -> None:
    own_id = definition_id(owner.definition)
    recorded = table.properties.get(snapshots.DEFINITION)
    if recorded != own_id:
        _require_inactive(recorded, owner)
    elif published and (writer := snapshots.summary_property(published, snapshots.DEFINITION)) != own_id:
        _require_inactive(writer, owner)


def _require_inactive(writer_id: str | None, owner: TableOwner) -> None:
    """Check that the definition with an id has no file any more, or another dataset name."""
    file = owner.home.definition_path(writer_id) if writer_id else None
    if file is None or not file.is_file():
        return
    writer = Path(file.read_text(encoding="utf-8"))
    if _dataset_of_file(writer) == owner.dataset:
        msg = (
            f"two definitions have the name {owner.dataset!r}, and only one can write the table\n"
            f"  {writer}\n  {owner.definition}\n\n"
            "hint: give one of them another name; its rows will be written to a new table"
        )
        raise PlanError(msg)


def _require_same_keys(table: Table, owner: TableOwner, published: Snapshot | None) -> None:
    if table.metadata.current_snapshot_id is None:
        return  # a table without rows can take any key
    keys = _published_keys(table, owner, published)
    if set(keys) != set(owner.keys):
        path = owner.definition
        msg = (
            f"the key of {owner.dataset!r} changed, and one table cannot hold rows of both keys ({path})\n"
            f"  published by {_keys_text(keys)}\n  source.key is {_keys_text(owner.keys)}\n\n"
            "hint: give the definition another name; it will write to a new table, and the old one stays unchanged"
        )
        raise PlanError(msg)


def _published_keys(table: Table, owner: TableOwner, published: Snapshot | None) -> Sequence[str]:
    """Return the keys of the published rows; without recorded keys, those that the table has as columns."""
    if published is not None:
        keys = snapshots.key_columns_of_snapshot(published)
        return [name for name in keys if name not in ROW_POSITION or name in owner.keys]
    if (recorded := table.properties.get(snapshots.KEYS)) is not None:
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
