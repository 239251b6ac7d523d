"""Find files that published runs read and that were removed: a new run would silently lose their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from backstream.runs.plan import InputFile, Plan
from backstream.runs.results import Publication
from backstream.runs.store import Runs
from backstream.source.prepared import PreparedSource
from backstream.source.raw_files import root_of_paths
from backstream.storage.files import load_json, write_json
from backstream.storage.stores import is_in_store


def write_files_read(plan: Plan) -> None:
    """Write the files that each chunk reads, and their versions; unlike the plan, this file is small.

    Paths are relative to the source, so a moved source has the same files.
    """
    versions_of = _find_versions(parse_definition(plan.definition, f"plan {plan.run_id}").source)
    files = [versions_of(file.path, file) for file in plan.inputs]
    content = {
        "chunks": [
            [chunk.start_ms, chunk.end_ms, sorted({name for number in chunk.files for name in files[number]})]
            for chunk in plan.chunks
            if chunk.files
        ],
        "versions": {name: version for number in _numbers_read(plan) for name, version in files[number].items()},
    }
    write_json(plan.folder.files_read, content)


def _numbers_read(plan: Plan) -> list[int]:
    return sorted({number for chunk in plan.chunks for number in chunk.files})


def find_removed_files(
    home: Home, dataset: str, source: Source, files: Mapping[str, InputFile | None], interval: Interval
) -> FileList:
    """Return the files that the newest published run of each day read and that the source no longer has.

    A file that was only renamed is not removed: a new one has its size and its time of modification.

    Args:
        home: the folder that holds all state.
        dataset: the dataset of the runs.
        source: its source.
        files: the current files of the source by path; None for a damaged one.
        interval: the range.
    """
    versions_of = _find_versions(source)
    present = {name: version for path, file in files.items() for name, version in versions_of(path, file).items()}
    lost, known = dict[str, str](), set[str]()
    for folder, days in _find_newest_runs(Runs(home).of_dataset(dataset), interval):
        chunks, versions = _load_files_read(folder)
        known.update(versions)
        for start_ms, end_ms, names in chunks:
            if any(start_ms < day_ms + DAY_MS and end_ms > day_ms for day_ms in days):
                lost |= {name: versions[name] for name in names if name not in present}
    new = Counter(version for name, version in present.items() if name not in known)
    missing = [name for name, version in sorted(lost.items()) if not _take(new, version)]
    root = root_of_paths(source.paths).rstrip("/")
    return FileList.from_paths(
        name if name.startswith("/") or is_in_store(name) else f"{root}/{name}" for name in missing
    )


def _take(counts: Counter[str], value: str) -> bool:
    """Return whether a value is left, and count it as used."""
    counts[value] -= 1
    return counts[value] >= 0


def _find_versions(source: Source) -> Callable[[str, InputFile | None], Mapping[str, str]]:
    """Return a function from an input file to the names by which a later run recognizes its content.

    Each name has the version of its file. A prepared file is recognized by its raw files, because a batch may be
    prepared again.
    """
    if not reads_prepared_files(source):
        root = root_of_paths(source.paths)
        start = f"{root.rstrip('/')}/"

        def version_in_place(path: str, file: InputFile | None) -> Mapping[str, str]:
            name = path.removeprefix(start) if path.startswith(start) else _relative_path(path, root)
            if file is None:
                return {name: ""}
            bounds = (file.min_event_ms, file.max_event_ms, file.min_arrival_ms, file.max_arrival_ms)
            return {name: f"{file.size_bytes} {file.modified_ms} {file.rows} {bounds}"}

        return version_in_place
    batches = [batch for folder in source.paths for batch in PreparedSource.from_location(folder).batches()]
    raw = {
        batch.location: {file.path: f"{file.size_bytes} {file.modified_ms}" for file in batch.files}
        for batch in batches
    }
    return lambda path, _: raw.get(path.rpartition("/")[0], {})


def _relative_path(path: str, root: str) -> str:
    """Return a path relative to its source; if the source is one file, the name of the file."""
    return Path(path).name if path == root else str(Path(path).relative_to(root))


def _find_newest_runs(folders: Sequence[RunFolder], interval: Interval) -> Iterator[tuple[RunFolder, list[int]]]:
    """Yield the newest published runs of a range, each with the days for which it is the newest."""
    published = [
        (publication, folder)
        for folder in folders
        if (publication := _load_publication(folder.publication)) is not None
    ]
    remaining = set(range(interval.start_ms, interval.end_ms, DAY_MS))
    for publication, folder in sorted(published, key=lambda run: run[0].published_at, reverse=True):
        days = [day_ms for day_ms in remaining if publication.since_ms <= day_ms < publication.until_ms]
        if days:
            yield folder, days
            remaining.difference_update(days)


def _load_publication(file: Path) -> Publication | None:
    try:
        return Publication.read(file)
    except (LedgerError, TypeError):  # there is none, or another version wrote it
        return None


def _load_files_read(folder: RunFolder) -> tuple[list[Any], dict[str, str]]:
    """Return the chunks of a run with the names of their files, and the version by name."""
    try:
        content = load_json(folder.files_read, "files read")
        return list(content["chunks"]), dict(content["versions"])
    except (LedgerError, KeyError):
        return [], {}
