"""Prepare Parquet files without Spark, if an engine could read them where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from backstream.chunks.preparation.settings import Preparation, raw_file_uri
from backstream.chunks.tasks import Tasks
from backstream.definition.prepared import column_of_path, list_paths, reason_to_convert
from backstream.native.preparation.parquet_files import CopyResult, ParquetCopies, run_copy_task
from backstream.native.task import task_file_path

_TASK_BYTES = 64 * 2**20


def are_copied(preparation: Preparation) -> bool:
    """Return whether a source has Parquet files that need no preparation but the batches of a job.

    The fetched files of an Iceberg table are Parquet files, too.
    """
    definition = preparation.definition
    watermark = definition.watermark.model_copy(update={"checkpoint": (), "progress": (), "event_log": ()})
    source = definition.source
    has_plain_names = all(column_of_path(path) == path for path in list_paths(definition))
    return (
        source.format in {"parquet", "iceberg"}
        and source.name is None
        and definition.backfill.engine != "spark"
        and bool(definition.watermark.job_logs)
        and reason_to_convert(definition.model_copy(update={"watermark": watermark})) is None
        and has_plain_names
        and not definition.reads_all_columns
    )


def copy_parquet_files(
    tasks: Tasks, preparation: Preparation, paths: Sequence[str], folder: Path
) -> list[CopyResult]:
    """Write copies of Parquet files into a folder, which must not exist; files left out have a reason."""
    source, definition = preparation.source, preparation.definition
    position = [name for name in (source.partition, source.sequence) if name]
    folder.mkdir(parents=True)
    planned = [
        ParquetCopies(
            {path: raw_file_uri(path, preparation) for path in group},
            source.event_time.strip(),
            list_paths(definition),
            position,
            task_file_path(folder, number, "native"),
        )
        for number, group in enumerate(_group(paths))
    ]
    return tasks.run(run_copy_task, planned)


def _group(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the files of each task."""
    group: list[str] = []
    size = 0
    for path in paths:
        own = Path(path).stat().st_size
        if group and size + own > _TASK_BYTES:
            yield group
            group, size = [], 0
        group.append(path)
        size += own
    if group:
        yield group
