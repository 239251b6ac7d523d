"""Provide faults that break the chain between an input file and a committed row."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backstream.chunks import staged
from backstream.chunks.attempt import Attempt
from backstream.eventtime.records import Fate
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Plan
from backstream.spark import staging
from backstream.spark.counted_writes import write_parquet
from backstream.spark.windows import fate_counts

Change = Callable[[Path], None]
NAMES = {"": "windows", "metrics": "metrics", "panes": "panes"}


@dataclass(frozen=True, slots=True)
class Staged:
    """A run with finished chunks, with files of another run and of its own earlier attempt."""

    plan: Plan
    manifests: list[Manifest]
    of_another_run: dict[str, Path]
    of_an_earlier_attempt: dict[str, Path]

    def largest(self, suffix: str) -> StagedFile:
        """Return the file of a table with the most rows."""
        return max(
            (file for manifest in self.manifests for file in manifest.files[suffix]), key=lambda file: file.rows
        )


# --- faults between the job and the publication ---------------------------------------------------------------


def remove(staged: Staged, suffix: str) -> None:
    """Remove a file."""
    Path(staged.largest(suffix).path).unlink()


def truncate(staged: Staged, suffix: str) -> None:
    """Truncate a file."""
    path = Path(staged.largest(suffix).path)
    path.write_bytes(path.read_bytes()[:-100])


def list_twice(staged: Staged, suffix: str) -> None:
    """List a file twice in its manifest."""
    for manifest in staged.manifests:
        files = manifest.files[suffix]
        if staged.largest(suffix) in files:
            changed = replace(manifest, files={**manifest.files, suffix: (*files, staged.largest(suffix))})
            changed.write(staged.plan.folder.manifest(manifest.chunk_id))


def swap_with_another_run(staged: Staged, suffix: str) -> None:
    """Replace a file by one of another run."""
    shutil.copyfile(staged.of_another_run[suffix], staged.largest(suffix).path)


def swap_with_an_earlier_attempt(staged: Staged, suffix: str) -> None:
    """Replace a file by one of an earlier attempt of the same chunks."""
    shutil.copyfile(staged.of_an_earlier_attempt[suffix], staged.largest(suffix).path)


def drop_a_row(staged: Staged, suffix: str) -> None:
    """Rewrite a file without its last row."""
    path = staged.largest(suffix).path
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(0, rows.num_rows - 1), path)


def drop_a_row_group(staged: Staged, suffix: str) -> None:
    """Rewrite a file without the second half of its rows."""
    path = staged.largest(suffix).path
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(0, rows.num_rows // 2), path)


def change_a_value(staged: Staged, suffix: str) -> None:
    """Rewrite a file with another number in one row, and the same number of rows."""
    path = staged.largest(suffix).path
    rows = pq.ParquetFile(path).read()
    name = {"": "record_count", "metrics": "on_time", "panes": "record_count__final"}[suffix]
    position, values = rows.column_names.index(name), rows[name].to_pylist()
    changed = rows.set_column(position, rows.schema.field(name), [[values[0] + 1, *values[1:]]])
    pq.write_table(changed, path)


AFTER = {
    "a staged file removed": remove,
    "a staged file truncated": truncate,
    "a staged file listed twice": list_twice,
    "a staged file swapped with another run's": swap_with_another_run,
    "a staged file swapped with an earlier attempt's": swap_with_an_earlier_attempt,
    "a row dropped": drop_a_row,
    "a row group dropped": drop_a_row_group,
    "a value changed": change_a_value,
}
"""The faults of a table's files between the job and the publication."""


def flip_a_fate(staged: Staged) -> None:
    """Count one on-time record as late in a manifest."""
    manifest = next(manifest for manifest in staged.manifests if manifest.fates)
    file = staged.plan.folder.manifest(manifest.chunk_id)
    text = file.read_text(encoding="utf-8")
    partition, counts = next((name, counts) for name, counts in manifest.fates.items() if counts.get("on_time"))
    changed = {**counts, "on_time": counts["on_time"] - 1, "late": counts.get("late", 0) + 1}
    replace(manifest, fates={**manifest.fates, partition: changed}).write(file)
    assert file.read_text(encoding="utf-8") != text


# --- faults within the job ------------------------------------------------------------------------------------


@contextmanager
def broken_write(suffix: str, change: Change) -> Iterator[None]:
    """Change the largest file of a table after its tasks have written it, before the job checks it."""
    table_path, write = f"__{suffix}/" if suffix else "/events/", write_parquet

    def broken(*args: object) -> object:
        result = write(*args)  # type: ignore[arg-type] # the arguments are passed on unchanged
        folder = Path(str(args[2]))
        if table_path in f"{folder}/":
            files = [path for path in folder.rglob("part-*.parquet") if pq.read_metadata(path).num_rows]
            change(max(files, key=lambda path: path.stat().st_size))
        return result

    with patch("backstream.spark.staging.write_parquet", broken):
        yield


def lose(path: Path) -> None:
    """Remove a file, as if its task had written it to the disk of another machine."""
    path.unlink()


def write_twice(path: Path) -> None:
    """Add the file of a second attempt of the same task."""
    task, _, rest = path.name.removeprefix("part-").partition("-")
    shutil.copyfile(path, path.with_name(f"part-{task}-{uuid.uuid4()}{rest[36:]}"))


def cut_short(path: Path) -> None:
    """Truncate a file, as if its end had not been written to the disk."""
    path.write_bytes(path.read_bytes()[:-100])


WITHIN = {
    "a file on a disk that the driver does not see": lose,
    "a task whose second attempt writes too": write_twice,
    "a file that is cut short when it is written": cut_short,
}


@contextmanager
def lost_row(suffix: str) -> Iterator[None]:
    """Lose one row of a table before it is written."""
    write = staging.write_staged_files

    def broken(rows: DataFrame, table: str, attempt: Attempt) -> staged.Staged:
        if table == suffix:
            count = {"panes": "record_count__final", "metrics": "events", "": "record_count"}[suffix]
            rows = rows.exceptAll(rows.where(F.col(count) > 0).limit(1))
        return write(rows, table, attempt)

    with patch("backstream.spark.engine.write_staged_files", broken):
        yield


@contextmanager
def flipped_fate() -> Iterator[None]:
    """Count some on-time records as late."""
    by_chunk = fate_counts.FateCounts.by_chunk
    metrics = fate_counts.FateCounts.metrics

    def flipped(counts: fate_counts.FateCounts) -> fate_counts.FateCounts:
        on_time = counts.rows.where(F.col("fate") == F.lit(Fate.ON_TIME)).orderBy(*counts.rows.columns)
        return replace(
            counts,
            rows=counts.rows.exceptAll(on_time.limit(1)).unionByName(
                on_time.limit(1).withColumn("fate", F.lit(Fate.LATE))
            ),
        )

    with (
        patch.object(fate_counts.FateCounts, "by_chunk", lambda counts: by_chunk(flipped(counts))),
        patch.object(fate_counts.FateCounts, "metrics", lambda counts: metrics(flipped(counts))),
    ):
        yield
