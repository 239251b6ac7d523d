"""Prepare raw files in batches, natively where this is possible, and else with Spark."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from backstream.definition.model import Definition
from backstream.definition.prepared import list_code_hashes, transformation
from backstream.native.raw_contents import summarize_contents
from backstream.runs.input_files import InexactNumbers, SkippedFile
from backstream.source.folder_periods import FolderPeriods
from backstream.source.prepared import BatchCounts, PreparedBatch, PreparedSource, split_into_batches
from backstream.source.raw_files import RawFile
from backstream.workflow.inputs.raw_source import RawSource
from backstream.workflow.inputs.side_inputs import LoadedInputs
from backstream.workflow.runners import Runner

if TYPE_CHECKING:
    from backstream.chunks.preparation.native_files import NativeFiles
    from backstream.chunks.preparation.settings import Preparation
    from backstream.spark.preparation.raw_records import DamagedFileError
    from backstream.workflow.inputs.job_batches import JobBatches

_AT_ONCE = 2
"""Number of batches that are prepared at the same time: one is read while Spark plans the other."""


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """The result of a preparation: the number of raw files that were read, and their records.

    `native` is the number of files that were prepared natively, and `reasons` has why each other one was not.
    `lines` is the number of lines in native files that Spark prepared, and `line_reasons` has why.
    `inexact` are the numbers that a declared type cannot hold.
    """

    files: int
    counts: BatchCounts
    native: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)
    lines: int = 0
    line_reasons: Mapping[str, str] = field(default_factory=dict)
    inexact: tuple[InexactNumbers, ...] = ()

    @classmethod
    def sum(cls, results: Sequence[Self]) -> Self:
        """Return the result for all sources or batches together."""
        counts = BatchCounts.sum(result.counts for result in results)
        return cls(
            sum(result.files for result in results),
            counts,
            sum(result.native for result in results),
            {path: reason for result in results for path, reason in result.reasons.items()},
            sum(result.lines for result in results),
            {path: reason for result in results for path, reason in result.line_reasons.items()},
            InexactNumbers.sum(numbers for result in results for numbers in result.inexact),
        )

    def __str__(self) -> str:
        """Return the counts as text."""
        counts = self.counts
        transformed = f", {counts.returned:,} transformed" if counts.returned != counts.read else ""
        left_out = f", {counts.left_out:,} left out by source.where" if counts.left_out else ""
        unreadable = f", {counts.unreadable:,} unreadable" if counts.unreadable else ""
        inexact = "".join(f", {numbers}" for numbers in self.inexact)
        records = f"{counts.read:,} records{transformed}{left_out}{unreadable}{inexact}"
        engines = f"; {self._engines_text}" if self.files else ""
        return f"{self.files:,} new files, {records}{engines}"

    @property
    def _engines_text(self) -> str:
        texts = [f"natively {self.native:,}"]
        if self.line_reasons:
            path, reason = next(iter(self.line_reasons.items()))
            number = "1 line" if self.lines == 1 else f"{self.lines:,} lines"
            texts[0] += f" except {number}, because {reason}, e.g., in {path}"
        if self.reasons:
            path, reason = next(iter(self.reasons.items()))
            example = f", e.g., {path}" if self.native else ""
            texts.append(f"by Spark {self.files - self.native:,}, because {reason}{example}")
        return ", ".join(texts)


def prepare_batches(
    prepared: PreparedSource,
    files: Sequence[RawFile],
    source: RawSource,
    sides: LoadedInputs,
    runner: Runner,
    job: JobBatches | None = None,
) -> PreparedFiles:
    """Prepare raw files, and add a batch for each group of them.

    Raises:
        SpecError: when an expression or a column of the source is wrong.
        DamagedFileError: when a file is damaged, and the definition does not skip it.
    """
    code = transformation(source.definition.source)
    if code is not None:
        from backstream.spark.session import ship_package

        spark = runner.session(f"source.transform is your own code ({source.where})")
        ship_package(spark.sparkContext, code.target)

    made_with = _digest_of_code(source.definition, sides)

    def prepare_batch(batch: Sequence[RawFile]) -> PreparedFiles:
        with (
            source.local_files(batch, prepared.folder, runner) as local,
            prepared.new_batch() as draft,
        ):
            preparation = source.preparation(local, sides.rows)
            result, skipped = _prepare_batch(runner, preparation, local.paths, draft)
            periods = FolderPeriods(source.definition.source, source.where)
            is_promised = source.definition.source.partition_filter is not None
            records = job.assign(draft) if job else None
            misplaced = periods.find_misplaced(draft) if is_promised else []
            prepared.add_batch(
                PreparedBatch(
                    draft,
                    tuple(batch),
                    result.counts,
                    tuple(skipped),
                    sides.pinned,
                    tuple(misplaced),
                    result.inexact,
                    records,
                ),
                summarize_contents(draft, batch, made_with),
            )
            return result

    runner.tasks()  # it starts once, and in this thread, which knows a session that is already active
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return PreparedFiles.sum(list(pool.map(prepare_batch, split_into_batches(files))))


def _digest_of_code(definition: Definition, sides: LoadedInputs) -> str:
    """Return a digest of the code and the side inputs that change the records of a source."""
    pinned = {name: asdict(side) for name, side in sides.pinned.items()}
    content = json.dumps([list_code_hashes(definition), pinned], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _prepare_batch(
    runner: Runner, preparation: Preparation, paths: Mapping[RawFile, str], draft: Path
) -> tuple[PreparedFiles, list[SkippedFile]]:
    """Prepare raw files, given with their local paths; return the result, and the damaged files that are left out.

    Raises:
        DamagedFileError: when a file is damaged, and the definition does not skip it.
    """
    from backstream.chunks.preparation.native_files import prepare_native_files
    from backstream.native.preparation.prepared_files import join_unreadable_files

    scratch = draft.with_name(f"{draft.name}-native")
    try:
        native = prepare_native_files(
            runner.tasks(), partial(_find_folder_types, runner), preparation, sorted({*paths.values()}), scratch
        )
        counts, skipped, inexact = _prepare_with_spark(runner, paths, native, draft)
        outputs = [output.rename(draft / output.name) for output in native.outputs]
        if counts.unreadable:
            join_unreadable_files(draft, outputs)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    counts = BatchCounts.sum([counts, BatchCounts(native.rows, native.rows, 0, 0)])
    reasons, line_reasons = (
        {preparation.addresses.get(path, path): reason for path, reason in found.items()}
        for found in (native.reasons, native.line_reasons)
    )
    return PreparedFiles(
        len(paths), counts, len(native.paths), reasons, native.unusual_lines, line_reasons, inexact
    ), skipped


def _find_folder_types(
    runner: Runner, preparation: Preparation, paths: Sequence[str], names: Container[str]
) -> Mapping[str, str]:
    from backstream.spark.preparation.folder_types import find_folder_types

    spark = runner.session(f"columns of the source are in the names of its folders ({preparation.where})")
    return find_folder_types(spark, preparation, paths, names)


def _prepare_with_spark(
    runner: Runner, paths: Mapping[RawFile, str], native: NativeFiles, draft: Path
) -> tuple[BatchCounts, list[SkippedFile], tuple[InexactNumbers, ...]]:
    """Prepare the raw files and lines that remain; return the counts, the files left out, and inexact numbers."""
    remaining = {*paths.values()}.difference(native.paths)
    if not remaining and native.remaining.line_files is None:
        draft.mkdir(parents=True)
        return BatchCounts(0, 0, 0, 0), [], ()
    from backstream.spark.preparation.prepare import prepare_files
    from backstream.spark.preparation.raw_records import DamagedFileError

    path, reason = next(iter({**native.reasons, **native.line_reasons}.items()))
    spark, skipped = runner.session(f"{reason}, in {path}"), list[SkippedFile]()
    while True:
        left_out = {file.path for file in skipped}
        readable = sorted(
            {path for file, path in paths.items() if path in remaining and file.path not in left_out}
        )
        try:
            counts, inexact = prepare_files(spark, native.remaining, readable, draft)
        except DamagedFileError as error:
            if native.remaining.definition.source.corrupt_files == "fail":
                raise
            skipped.append(_skipped_file(paths, error))
            shutil.rmtree(draft, ignore_errors=True)
        else:
            return counts, skipped, inexact


def _skipped_file(batch: Iterable[RawFile], error: DamagedFileError) -> SkippedFile:
    (file,) = (file for file in batch if file.path == error.path)
    return SkippedFile(file.path, file.size_bytes, file.modified_ms, error.reason)
