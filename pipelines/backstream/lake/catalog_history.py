"""Ask a catalog what it keeps of the earlier states of a table, by commits to a small table of its own.

PyIceberg itself writes the metadata for the catalogs of databases, Hive, and Glue. A REST server writes it by its
own rules: it may keep only the newest snapshot, and drop tags without an error.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backstream.errors import LedgerError
from backstream.lake.catalog import is_created, new_table_location, open_catalog_for_writing
from backstream.lake.catalog_address import SQL, CatalogAddress, namespace, table_identifier
from backstream.lake.commit import note_attempt
from backstream.lake.storage import is_on_disk, plain_path
from backstream.runs.file_summaries import load_summary, write_summary
from backstream.runs.home import Home
from backstream.text import text_logger

log = text_logger(__name__)
_WRITTEN_BY_PYICEBERG = {SQL, "hive", "glue"}
_ROWS = pa.table({"n": pa.array([1], pa.int64())})


@dataclass(frozen=True, slots=True)
class CatalogHistory:
    """The things that a catalog keeps: earlier snapshots of a table, and tags, which protect them from expiry."""

    snapshots: bool = True
    tags: bool = True

    @property
    def notice(self) -> str:
        """A sentence about what the catalog does not keep, and what needs it; empty if it keeps all."""
        if not self.snapshots:
            return "this catalog keeps no history: no as-of, no rollback, no diff of a run"
        if not self.tags:
            return "this catalog keeps no tags: as-of, rollback, and diff end if another program expires snapshots"
        return ""


def ask_history(home: Home) -> CatalogHistory:
    """Ask the catalog, and keep the answer in the home; before the first run has made the namespace, ask nothing.

    Raises:
        CatalogError: with the catalog, if it refuses a table or a commit.
        StorageError: with the warehouse, if it refuses a file.
    """
    if not is_created(home):
        return CatalogHistory()
    with open_catalog_for_writing(home) as catalog, _own_table(catalog) as table:
        table.append(_ROWS)
        first = table.metadata.current_snapshot_id or 0
        table.manage_snapshots().create_tag(first, "first").commit()
        table.append(_ROWS)
        found = catalog.load_table(table.name())
        history = CatalogHistory(found.snapshot_by_id(first) is not None, "first" in found.refs())
    write_summary(home.summary("catalog"), {"of": _identity(home), **asdict(history)})
    return history


def load_history(home: Home) -> CatalogHistory:
    """Return what the catalog keeps; it is asked once, and says once what is missing."""
    if CatalogAddress.from_home(home).kind in _WRITTEN_BY_PYICEBERG:
        return CatalogHistory()
    if (known := load_summary(home.summary("catalog"), "the catalog")) and known.get("of") == _identity(home):
        return CatalogHistory(known["snapshots"], known["tags"])
    with open_catalog_for_writing(home):  # the first plan makes the namespace
        pass
    history = ask_history(home)
    if history.notice:
        log.warning("notice: %s", history.notice)
    return history


def require_history(home: Home) -> None:
    """Check that the catalog keeps earlier snapshots.

    Raises:
        LedgerError: if it keeps none.
    """
    if not (history := load_history(home)).snapshots:
        msg = f"{history.notice}\n  {CatalogAddress.from_home(home).display_text}"
        raise LedgerError(msg)


def _identity(home: Home) -> str:
    return f"{CatalogAddress.from_home(home).display_text} {'.'.join(namespace())}"


@contextmanager
def _own_table(catalog: Catalog) -> Iterator[Table]:
    """Create a table, and remove it with its files when the block ends."""
    name = f"backstream_doctor_{uuid.uuid4().hex[:12]}"
    with note_attempt(f"try the table `{name}`"):
        table = catalog.create_table(table_identifier(name), _ROWS.schema, new_table_location(catalog, name))
        try:
            yield table
        finally:
            try:
                catalog.purge_table(table_identifier(name))
            finally:
                if is_on_disk(table.location()):
                    shutil.rmtree(plain_path(table.location()), ignore_errors=True)
