"""Find files that published runs read and that were removed: a new run would silently lose their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from backstream.definition.loader import parse_definition
from backstream.definition.prepared import reads_prepared_files
from backstream.definition.source_section import Source
from backstream.errors import LedgerError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home, RunFolder
from backstream.runs.input_files import FileList
from backstream.runs.plan import Plan
from backstream.runs.results import Publication
from backstream.source.prepared import PreparedSource
from backstream.source.raw_files import root_of_paths
from backstream.storage.files import load_json, write_json
from backstream.storage.stores import is_in_store


def write_files_read(plan: Plan) -> None:
    """Write the files that each chunk reads; unlike the plan, this file is small.

    Paths are relative to the source, so a moved source has the same files.
    """
    names = _names_of_files(parse_definition(plan.definition, f"plan {plan.run_id}").source)
    content = {
        "chunks": [
            [
                chunk.start_ms,
                chunk.end_ms,
                sorted({name for number in chunk.files for name in names(plan.inputs[number].path)}),
            ]
            for chunk in plan.chunks
            if chunk.files
        ]
    }
    write_json(plan.folder.files_read, content)


def find_removed_files(
    home: Home, dataset: str, source: Source, paths: Sequence[str], interval: Interval
) -> FileList:
    """Return the files that the newest published run of each day read and that the source no longer has.

    Args:
        home: the folder that holds all state.
        dataset: the dataset of the runs.
        source: its source.
        paths: the current files of the source.
        interval: the range.
    """
    names = _names_of_files(source)
    present = {name for path in paths for name in names(path)}
    missing: set[str] = set()
    for folder, days in _find_newest_runs(home.path / "runs" / dataset, interval):
        for start_ms, end_ms, names in _load_files_read(folder):
            if any(start_ms < day_ms + DAY_MS and end_ms > day_ms for day_ms in days):
                missing.update(name for name in names if name not in present)
    root = root_of_paths(source.paths).rstrip("/")
    return FileList.from_paths(
        name if name.startswith("/") or is_in_store(name) else f"{root}/{name}" for name in missing
    )


def _names_of_files(source: Source) -> Callable[[str], Sequence[str]]:
    """Return a function from an input file to the names by which a later run recognizes its content.

    A prepared file is recognized by its raw files, because a batch may be prepared again.
    """
    if not reads_prepared_files(source):
        root = root_of_paths(source.paths)
        start = f"{root.rstrip('/')}/"
        return lambda path: [path.removeprefix(start) if path.startswith(start) else _relative_path(path, root)]
    batches = [batch for folder in source.paths for batch in PreparedSource.from_location(folder).batches()]
    raw_paths = {batch.location: [file.path for file in batch.files] for batch in batches}
    return lambda path: raw_paths.get(path.rpartition("/")[0], ())


def _relative_path(path: str, root: str) -> str:
    """Return a path relative to its source; if the source is one file, the name of the file."""
    return Path(path).name if path == root else str(Path(path).relative_to(root))


def _find_newest_runs(runs: Path, interval: Interval) -> Iterator[tuple[RunFolder, list[int]]]:
    """Yield the newest published runs of a range, each with the days for which it is the newest."""
    published = [
        (publication, file.parent)
        for file in runs.glob("*/publication.json")
        if (publication := _load_publication(file)) is not None
    ]
    remaining = set(range(interval.start_ms, interval.end_ms, DAY_MS))
    for publication, folder in sorted(published, key=lambda run: run[0].published_at, reverse=True):
        days = [day_ms for day_ms in remaining if publication.since_ms <= day_ms < publication.until_ms]
        if days:
            yield RunFolder(folder), days
            remaining.difference_update(days)


def _load_publication(file: Path) -> Publication | None:
    try:
        return Publication.read(file)
    except (LedgerError, TypeError):  # written by another version
        return None


def _load_files_read(folder: RunFolder) -> list[Any]:
    try:
        return list(load_json(folder.files_read, "files read")["chunks"])
    except (LedgerError, KeyError):
        return []
