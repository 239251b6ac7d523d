"""Guard the private classes of PyIceberg on which publications rely, when PyIceberg is upgraded."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

import backstream
from backstream.lake.snapshot_producers import OneTransaction, remove_manifests, stage_snapshot

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

PACKAGE = Path(backstream.__file__).parent
OWN = PACKAGE / "lake" / "snapshot_producers.py"


def private_imports(file: Path) -> list[str]:
    """Return the private names that a module imports from PyIceberg."""
    nodes = ast.walk(ast.parse(file.read_text()))
    imports = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg")
    ]
    return [alias.name for node in imports for alias in node.names if alias.name.startswith("_")]


def test_only_one_module_uses_private_names_of_pyiceberg() -> None:
    users = {file: found for file in PACKAGE.rglob("*.py") if (found := private_imports(file))}

    assert list(users) == [OWN]
    assert sorted(users[OWN]) == [
        "_MergeAppendFiles",
        "_OverwriteFiles",
        "_TableMetadataUpdateContext",
        "_apply_table_update",
        "_dataframe_to_data_files",
    ]


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (_OverwriteFiles._existing_manifests, ["self"]),  # noqa: SLF001 - the contract
        (_OverwriteFiles._clean_all_uncommitted, ["self"]),  # noqa: SLF001 - the contract
        (_OverwriteFiles.__init__, ["self", "operation", "transaction", "io"]),
        (_MergeAppendFiles.__init__, ["self", "operation", "transaction", "io"]),
        (Transaction._register_snapshot_producer, ["self", "producer"]),  # noqa: SLF001 - the contract
        (_dataframe_to_data_files, ["table_metadata", "df", "io"]),
    ],
)
def test_what_is_overridden_or_called_has_its_parameters(function: Any, first: list[str]) -> None:
    assert list(inspect.signature(function).parameters)[: len(first)] == first


def stage_empty(table: Table) -> tuple[OneTransaction, Any]:
    """Stage a snapshot without files."""
    transaction = OneTransaction(table)
    transaction.require_current_snapshot()
    return transaction, stage_snapshot(transaction, table, Operation.OVERWRITE, [], [], {})


def test_a_commit_that_is_overtaken_is_neither_retried_nor_cleaned_up_by_pyiceberg(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 1})
    table = lake.table()
    assert "commit.retry.num-retries" not in table.properties  # other programs try their commits again
    staged, producer = stage_empty(table)
    lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 2})

    with pytest.raises(CommitFailedException):
        staged.commit_transaction()

    manifest_list = table.location() + f"/metadata/snap-{producer.snapshot_id}-0-{producer.commit_uuid}.avro"
    assert table.io.new_input(manifest_list).exists()
    remove_manifests(producer)
    assert not table.io.new_input(manifest_list).exists()
    assert len(lake.table().snapshots()) == 2
