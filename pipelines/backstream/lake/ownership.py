"""Whose table it is: the definition that writes a dataset, and the keys its published rows have."""

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
    """A definition that wants to write a dataset; the path is absolute."""

    dataset: str
    definition: Path
    keys: tuple[str, ...]

    @classmethod
    def from_plan(cls, plan: Plan) -> Self:
        """Return the claim of a plan's definition."""
        keys = plan.definition.get("source", {}).get("key", ())
        return cls(plan.dataset, Path(plan.definition_path), tuple(keys))

    @property
    def properties(self) -> dict[str, str]:
        """What the table of the windows notes of it."""
        return {DEFINITION: str(self.definition), KEYS: json.dumps(self.keys)}


def require_ownable(catalog: Catalog, claim: TableOwner) -> None:
    """Check that no other definition writes the dataset, and that its published rows have the same keys.

    A definition whose file is gone, or says another name now, has given the dataset up.

    Raises:
        PlanError: naming both definitions, or both lists of keys.
    """
    try:
        table = catalog.load_table((NAMESPACE, claim.dataset))
    except NoSuchTableError:
        return
    _require_claimable(table, claim)


def list_former_tables(catalog: Catalog, claim: TableOwner) -> list[str]:
    """The tables that this definition's file wrote under other names, when it has none under the present one."""
    if catalog.table_exists((NAMESPACE, claim.dataset)):
        return []
    written = {table.name()[-1]: table.properties.get(DEFINITION) for table in list_datasets(catalog)}
    here = claim.definition.resolve()
    return [name for name, writer in written.items() if writer is not None and Path(writer).resolve() == here]


def record_owner(table: Table, claim: TableOwner) -> None:
    """Note in the table of the windows whose it is.

    Raises:
        PlanError: when another definition writes it, or its published rows have other keys.
        CommitFailedException: when somebody else noted or published something meanwhile; nothing was noted.
    """
    _require_claimable(table, claim)
    if any(table.properties.get(name) != value for name, value in claim.properties.items()):
        transaction = OneTransaction(table)
        transaction.require_unchanged(claim.properties)
        with transaction:
            transaction.set_properties(claim.properties)


def _require_claimable(table: Table, claim: TableOwner) -> None:
    _require_only_writer(table, claim)
    _require_same_keys(table, claim)


def _require_only_writer(table: Table, claim: TableOwner) -> None:
    writer = table.properties.get(DEFINITION)
    if writer is None or Path(writer).resolve() == claim.definition.resolve():
        return
    if _name_in(Path(writer)) == claim.dataset:
        msg = (
            f"two definitions have the name {claim.dataset!r}, and one table cannot be written by both\n"
            f"  {writer}\n  {claim.definition}\n\n"
            "hint: give one of them another name; its table will be a new one"
        )
        raise PlanError(msg)


def _require_same_keys(table: Table, claim: TableOwner) -> None:
    if table.metadata.current_snapshot_id is None:
        return  # nothing was published: there is nothing to be mixed up
    keys = _keys_of(table, claim)
    if set(keys) != set(claim.keys):
        where = claim.definition
        msg = (
            f"the key of {claim.dataset!r} changed, and its table cannot hold rows of both keys ({where})\n"
            f"  published by {_listed(keys)}\n  source.key is {_listed(claim.keys)}\n\n"
            "hint: give the definition another name; its table will be a new one, and the old one stays as it is"
        )
        raise PlanError(msg)


def _keys_of(table: Table, claim: TableOwner) -> Sequence[str]:
    """The keys of what is published; a table that never noted them lacks those that are new."""
    if (said := table.properties.get(KEYS)) is not None:
        return list(json.loads(said))
    return [name for name in claim.keys if name in table.schema().column_names]


def _name_in(definition: Path) -> str | None:
    """The dataset that a file defines; None when it is gone or defines nothing."""
    try:
        name = tomllib.loads(definition.read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):
        return None
    return name if isinstance(name, str) else None


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "no key"
