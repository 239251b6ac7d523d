"""Vacuum: files that no snapshot reaches any more are removed, once nobody can be about to publish them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from backstream.core.errors import LedgerError
from backstream.core.folders import Home, drafts
from backstream.core.instants import SECOND_MS, moment
from backstream.core.manifest import Manifest
from backstream.core.tables import RESTATEMENTS, TABLES
from backstream.lake.catalog import NAMESPACE, loaded, opened
from backstream.lake.commits import with_retries
from backstream.lake.retention import let_go
from backstream.lake.schemas import plain_path

_DATA = "data"
_ASIDE = "vacuumed"


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was removed from one table's folder, or would be; `(drafts)`: of what no table holds."""

    table: str
    files: int
    size_bytes: int
    kept_files: int
    expired_snapshots: int


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size_bytes: int
    modified_ms: int


def vacuumed(
    home: Home,
    dataset: str,
    grace_ms: int,
    *,
    expire_before_ms: int | None = None,
    keep_runs: int | None = None,
    dry_run: bool = False,
) -> list[Vacuumed]:
    """Remove what no retained snapshot and no tag reaches in the folders of a dataset's tables.

    Drafts that killed writers have left beside plans, manifests and what is known of input files go too.

    Files younger than the grace period stay, and so do older ones of a run that staged something within it: that
    run may publish yet. Publishing makes its staged files young.

    Args:
        home: where the lake lies.
        dataset: whose tables.
        grace_ms: how old a file must be.
        expire_before_ms: first expire the snapshots of the windows that are older and have no tag.
        keep_runs: first let go of all but the newest runs: their tags, and the snapshots before what these found.
        dry_run: only tell.

    Raises:
        LedgerError: when there is no such dataset.
    """
    with opened(home) as catalog:
        names = [f"{dataset}__{suffix}" if suffix else dataset for suffix in (*TABLES, RESTATEMENTS)]
        there = [name for name in names if catalog.table_exists((NAMESPACE, name))]
        if dataset not in there:
            msg = f"no dataset `{dataset}` in {home.path}"
            raise LedgerError(msg)
        expired = 0 if expire_before_ms is None else _expired(catalog, dataset, expire_before_ms, dry_run=dry_run)
        if keep_runs is not None:
            expired += let_go(home, catalog, dataset, keep_runs, dry_run=dry_run)
        listed = {name: list(_files_under(_root(loaded(catalog, name)))) for name in there}
        young = _young_runs([(_root(loaded(catalog, name)), files) for name, files in listed.items()], grace_ms)
        swept = [
            _swept(loaded(catalog, name), files, young, grace_ms, 0 if name != dataset else expired, dry_run)
            for name, files in listed.items()
        ]
    return [*swept, *_drafts_removed(home, dataset, grace_ms, dry_run=dry_run)]


def keep_from_vacuum(manifests: Sequence[Manifest]) -> None:
    """Make staged files young, so that no vacuum takes them for left over while they are published."""
    for manifest in manifests:
        for files in manifest.files.values():
            for file in files:
                with suppress(FileNotFoundError):  # which the checks of the files say in words
                    os.utime(file.path)


def reachable(table: Table) -> set[str]:
    """Every file that a retained snapshot or the table's metadata names, as plain paths."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    found |= manifests.keys()
    for manifest in manifests.values():  # each once: snapshots share them
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found |= {entry.data_file.file_path for entry in entries}
    return {plain_path(location) for location in found}


def _expired(catalog: Catalog, name: str, before_ms: int, *, dry_run: bool) -> int:
    """Only of the windows: the snapshots of the other tables say which runs have written their rows."""

    def attempt() -> int:
        table = loaded(catalog, name)
        kept = {ref.snapshot_id for ref in table.refs().values()}
        older = (each.snapshot_id for each in table.snapshots() if each.timestamp_ms < before_ms)
        old = [snapshot_id for snapshot_id in older if snapshot_id not in kept]
        if old and not dry_run:
            table.maintenance.expire_snapshots().older_than(moment(before_ms)).commit()
        return len(old)

    return with_retries(f"expire snapshots of table `{name}`", attempt)


def _swept(
    table: Table, files: Sequence[_File], young: set[str], grace_ms: int, expired: int, dry_run: bool
) -> Vacuumed:
    """The files were listed before the table was loaded: what was committed in between is reachable."""
    root, reached = _root(table), reachable(table)
    garbage = [
        file
        for file in files
        if str(_owner(file.path)) not in reached
        and _is_old(file.modified_ms, grace_ms)
        and _run_of(root, file.path) not in young
    ]
    removed = garbage if dry_run else [file for file in garbage if _is_removed(file, root, grace_ms)]
    size_bytes = sum(file.size_bytes for file in removed)
    return Vacuumed(table.name()[-1], len(removed), size_bytes, len(files) - len(removed), expired)


def _drafts_removed(home: Home, dataset: str, grace_ms: int, *, dry_run: bool) -> Iterator[Vacuumed]:
    """Nothing where there are none: hardly ever is a writer killed at that very moment."""
    folders = (home.path / name / dataset for name in ("runs", "arrivals"))
    found = list(_there(draft for folder in folders for draft in drafts(folder)))
    old = [draft for draft in found if _is_old(draft.modified_ms, grace_ms)]
    for draft in () if dry_run else old:
        draft.path.unlink(missing_ok=True)
    if old:
        size_bytes = sum(draft.size_bytes for draft in old)
        yield Vacuumed("(drafts)", len(old), size_bytes, len(found) - len(old), 0)


def _is_removed(file: _File, root: Path, grace_ms: int) -> bool:
    """Looks again: a publication that began meanwhile has made its files young.

    The file is moved aside first. What made it young before that is seen, and it is put back; who comes after that
    finds no file and publishes nothing.
    """
    aside = file.path.with_name(f".{file.path.name}.{_ASIDE}")
    try:
        if not _is_old(_modified_ms(file.path.stat()), grace_ms):
            return False
        file.path.rename(aside)
        if not _is_old(_modified_ms(aside.stat()), grace_ms):
            aside.rename(file.path)
            return False
        aside.unlink()
    except FileNotFoundError:
        return False
    if _run_of(root, file.path):
        with suppress(OSError):  # not empty yet
            file.path.parent.rmdir()
    return True


def _young_runs(tables: Sequence[tuple[Path, Sequence[_File]]], grace_ms: int) -> set[str]:
    """Runs that wrote a file within the grace period, into whichever table."""
    return {
        run
        for root, files in tables
        for file in files
        if not _is_old(file.modified_ms, grace_ms) and (run := _run_of(root, file.path))
    }


def _run_of(root: Path, path: Path) -> str:
    """The run in whose folder a data file lies: `data/<run>/<attempt>/<file>`; empty for any other file."""
    parts = path.relative_to(root).parts
    return parts[1] if len(parts) > 2 and parts[0] == _DATA else ""  # noqa: PLR2004 - folder, run, and more


def _owner(path: Path) -> Path:
    """The file itself; of a checksum that Hadoop wrote beside a file, that file."""
    name = path.name
    is_checksum = name.startswith(".") and name.endswith(".crc")
    return path.with_name(name.removeprefix(".").removesuffix(".crc")) if is_checksum else path


def _files_under(root: Path) -> Iterator[_File]:
    return _there(Path(folder, name) for folder, _, names in os.walk(root) for name in names)


def _there(paths: Iterable[Path]) -> Iterator[_File]:
    for path in paths:
        with suppress(FileNotFoundError):  # renamed meanwhile, as Spark's committer does
            found = path.stat()
            yield _File(path, found.st_size, _modified_ms(found))


def _root(table: Table) -> Path:
    return Path(plain_path(table.location()))


def _modified_ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000


def _is_old(modified_ms: int, grace_ms: int) -> bool:
    return int(time.time() * SECOND_MS) - modified_ms >= grace_ms
