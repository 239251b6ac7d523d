"""Read a sample of the records of an archive, and of each format the text that cannot be read."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from backstream.errors import PlanError
from backstream.source.archive.csv_sample import read_csv, typed_cells
from backstream.source.archive.encodings import UNKNOWN, UTF_8, common_encoding, detect_encoding, readings_of
from backstream.source.archive.files import Archive, ArchiveFile, require_suffix_of_compression
from backstream.source.archive.json_sample import find_records_path, holds_records_by_name, read_json, records_at
from backstream.source.archive.logs import read_log
from backstream.source.archive.sampled import Record, Sample, Value, shown_text
from backstream.source.avro_files import read_avro

MAX_RECORDS = 20_000
_MAX_FILES = 50
_DETECTED_BYTES = 1 << 20
_MAX_FACTS = 3
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last instant that Python has, in microseconds since 1970: of the years 1 and 9999."""


def read_sample(archive: Archive, max_records: int = MAX_RECORDS) -> Sample:
    """Return up to `max_records` records, from the begin of up to 50 files that are spread over the archive.

    Raises:
        PlanError: when no file can be read, or no record, or a library for the compression is missing.
    """
    sample, files = Sample(), _spread(archive.files)
    quota = max(1, max_records // len(files))
    read, errors = _READERS.get(archive.format, read_log), list[str]()
    if archive.is_text:
        sample.encoding = common_encoding(_encodings(archive, files))
        if sample.encoding != UTF_8:
            sample.options["encoding"] = sample.encoding
    for number, file in enumerate(files):
        try:
            require_suffix_of_compression(archive, file)
            records = read(archive, file, sample)
            for record in islice(records, quota):
                sample.add(record, number)
            sample.is_complete &= next(records, None) is None
        except PlanError:
            raise  # the same cause holds for the other files
        except _damages() as error:
            errors.append(f"{file.path}: {shown_text(str(error))}")
            continue
        sample.files_read += 1
    sample.is_complete &= len(files) == len(archive.files)
    if archive.format == "json":
        _unpack_records(sample, quota)
    if not sample.records:
        facts = [*errors, *(f"{place}: {text}" for place, text in sample.unreadable)]
        shown = "".join(f"\n  {fact}" for fact in facts[:_MAX_FACTS])
        msg = f"no record in {archive.location} can be read as {archive.format} (--from){shown}"
        raise PlanError(msg)
    if archive.source_format == "csv":
        sample.records = typed_cells(sample.records)
    _add_folder_columns(archive, files, sample)
    return sample


def _encodings(archive: Archive, files: list[ArchiveFile]) -> Iterator[str | None]:
    for file in files:
        try:
            with archive.open(file) as stream:
                head = bytes(stream.read(_DETECTED_BYTES))
        except _damages():
            continue
        is_cut = len(head) == _DETECTED_BYTES
        lines = head[: head.rfind(b"\n") + 1] or head if is_cut else head
        encoding = detect_encoding(lines)
        if encoding == UNKNOWN:
            require_suffix_of_compression(archive, file)  # bytes of another compression are no text
            examples = ", ".join(readings_of(lines))
            msg = (
                f"the encoding of {file.path} is not known (--from): its bytes are not UTF-8, and read as"
                f" windows-1252, they are no text of Western Europe: {examples}\n\n"
                "hint: convert the files to UTF-8, e.g., by iconv -f SHIFT_JIS -t UTF-8; or write the definition"
                ' yourself, with source.options.encoding, e.g., encoding = "Shift_JIS"'
            )
            raise PlanError(msg)
        yield encoding


def _unpack_records(sample: Sample, quota: int) -> None:
    """Replace the objects that only hold an array of records by these records."""
    path = find_records_path(sample.records)
    if path is None:
        _require_no_records_by_name(sample)
        return
    sample.records_path = ".".join(path)
    pairs = [
        (record, number)
        for whole, number in zip(sample.records, sample.files, strict=True)
        for record in records_at(whole, path)
    ]
    counts = Counter[int]()
    sample.records, sample.files = [], []
    for record, number in pairs:
        counts[number] += 1
        if counts[number] <= quota:
            sample.add(record, number)
    sample.is_complete &= len(sample.records) == len(pairs)


def _require_no_records_by_name(sample: Sample) -> None:
    """Check that the objects of a sample are records.

    Raises:
        PlanError: when all fields of each object are records.
    """
    if sample.records and all(map(holds_records_by_name, sample.records)):
        name, count = shown_text(next(iter(sample.records[0]))), len(sample.records[0])
        msg = (
            f"each JSON value holds records by their names, e.g., {count:,} with {name!r} (--from); a run reads"
            " records on lines or in an array\n\nhint: write them on lines, e.g., by jq -c '.[]'"
        )
        raise PlanError(msg)


def _damages() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (OSError, ValueError, EOFError, csv.Error, pa.ArrowException)


def _spread(files: tuple[ArchiveFile, ...]) -> list[ArchiveFile]:
    """Return the first file, the last one, and others at equal distances between them."""
    if len(files) <= _MAX_FILES:
        return list(files)
    last = len(files) - 1
    return [files[number * last // (_MAX_FILES - 1)] for number in range(_MAX_FILES)]


def _add_folder_columns(archive: Archive, files: list[ArchiveFile], sample: Sample) -> None:
    names = archive.folder_columns
    if not names:
        return
    values = [dict(part.split("=", 1) for part in PurePosixPath(file.path).parts if "=" in part) for file in files]
    sample.records = [
        {**record, **{name: _folder_value(values[number][name]) for name in names}}
        for record, number in zip(sample.records, sample.files, strict=True)
    ]


def _folder_value(text: str) -> Value:
    return int(text) if text.isdecimal() and len(text) < 18 else text  # noqa: PLR2004 - digits of a long


def _read_parquet(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(archive.open_raw(file), coerce_int96_timestamp_unit="us")
    columns = [parquet.schema.column(number) for number in range(len(parquet.schema.names))]
    sample.instants |= {column.path for column in columns if column.physical_type == "INT96"}
    for batch in parquet.iter_batches(batch_size=1_000):
        yield from _batch_records(batch)


def _read_orc(archive: Archive, file: ArchiveFile, _: Sample) -> Iterator[Record]:
    from pyarrow import orc

    stripes = orc.ORCFile(archive.open_raw(file))
    for number in range(stripes.nstripes):
        yield from _batch_records(stripes.read_stripe(number))


def _batch_records(batch: Any) -> Iterator[Record]:
    """Yield rows as Python objects; nanoseconds are cut, and instants that Python has not are null."""
    import pyarrow as pa

    arrays = [_python_times(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    yield from pa.RecordBatch.from_arrays(arrays, batch.schema.names).to_pylist()


def _python_times(times: Any) -> Any:
    """Return instants in microseconds; those outside of the years 1 to 9999 are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = times.cast(pa.timestamp("us", times.type.tz), safe=False)
    numbers = values.cast(pa.int64())
    is_known = pc.and_(pc.greater_equal(numbers, _FIRST_US), pc.less_equal(numbers, _LAST_US))
    return pc.if_else(is_known, values, pa.scalar(None, values.type))


def _read_avro(archive: Archive, file: ArchiveFile, _: Sample) -> Iterator[Record]:
    with archive.open_raw(file) as stream:
        yield from (record for record in read_avro(stream, file.path) if isinstance(record, dict))


_READERS: Mapping[str, Callable[[Archive, ArchiveFile, Sample], Iterator[Record]]] = {
    "parquet": _read_parquet,
    "orc": _read_orc,
    "avro": _read_avro,
    "json": read_json,
    "csv": read_csv,
}
