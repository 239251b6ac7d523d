"""Files that published runs read and that a source has no more: a range would silently lose their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backstream.errors import LedgerError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home, RunFolder, load_json, write_json
from backstream.runs.input_files import FileList
from backstream.runs.plan import Plan
from backstream.runs.results import Publication


def write_files_read(plan: Plan) -> None:
    """Write which files a run reads, chunk by chunk: a small file, where the plan lists all of the source.

    Names are within the source, so that a source that was moved as a whole is still the same.
    """
    root = plan.definition["source"]["path"]
    content = {
        "chunks": [
            [chunk.start_ms, chunk.end_ms, [_name(plan.inputs[number].path, root) for number in chunk.files]]
            for chunk in plan.chunks
            if chunk.files
        ]
    }
    write_json(plan.folder.files_read, content)


def find_removed_files(
    home: Home, dataset: str, source: str, paths: Sequence[Path], interval: Interval
) -> FileList:
    """Return the files that the newest published run of each day of a range read and that are not there now.

    Args:
        home: where state lies.
        dataset: whose runs.
        source: the path of its source.
        paths: the files that the source has now.
        interval: the range.
    """
    there = {_name(str(path), source) for path in paths}
    missing: set[str] = set()
    for folder, days in _newest_by_day(home.path / "runs" / dataset, interval):
        for start_ms, end_ms, names in _files_read(folder):
            if any(start_ms < day_ms + DAY_MS and end_ms > day_ms for day_ms in days):
                missing.update(name for name in names if name not in there)
    return FileList.from_paths(Path(source) / name for name in missing)


def _name(path: str, root: str) -> str:
    """The path within a source; of a source that is one file its name."""
    found = Path(path)
    return found.name if path == root else str(found.relative_to(root))


def _newest_by_day(runs: Path, interval: Interval) -> Iterator[tuple[RunFolder, list[int]]]:
    """The runs that were the last to publish days of a range, each with these days."""
    published = [
        (found, file.parent)
        for file in runs.glob("*/publication.json")
        if (found := _publication(file)) is not None
    ]
    left = set(range(interval.start_ms, interval.end_ms, DAY_MS))
    for found, folder in sorted(published, key=lambda each: each[0].published_at, reverse=True):
        days = [day_ms for day_ms in left if found.since_ms <= day_ms < found.until_ms]
        if days:
            yield RunFolder(folder), days
            left.difference_update(days)


def _publication(file: Path) -> Publication | None:
    try:
        return Publication.read(file)
    except (LedgerError, TypeError):  # another version's
        return None


def _files_read(folder: RunFolder) -> list[Any]:
    try:
        return list(load_json(folder.files_read, "files read")["chunks"])
    except (LedgerError, KeyError):
        return []
