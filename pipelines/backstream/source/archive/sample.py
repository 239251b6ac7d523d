"""Read a sample of the records of an archive, and of each format the text that cannot be read."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any

from backstream.errors import PlanError
from backstream.source.archive.files import ACCESS_LOG, Archive, ArchiveFile

MAX_RECORDS = 20_000
_MAX_FILES = 50
_SNIFFED_CHARACTERS = 65_536
_DELIMITERS = ",\t;|"
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
ACCESS_LOG_COLUMNS = (
    *("remote_host", "ident", "remote_user", "day", "zone"),
    *("request", "status", "size", "referer", "user_agent"),
)
"""Fields of the combined log format; the common log format has the first eight."""
COMMON_FIELDS = 8

Value = Any
Record = Mapping[str, Value]


@dataclass(slots=True)
class Sample:
    """Records of some files of an archive, in the order of the files.

    `options` are those of Spark's reader. `columns` are the names of a CSV file in their order. `instants` are the
    columns that Spark reads as instants although Arrow has no zone for them. `unreadable` has a file and a text
    per record that cannot be read.
    """

    records: list[Record] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    instants: set[str] = field(default_factory=set)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    files_read: int = 0
    is_complete: bool = True

    def add(self, record: Record, number: int) -> None:
        """Add a record of the file with this number."""
        self.records.append(record)
        self.files.append(number)


def read_sample(archive: Archive, max_records: int = MAX_RECORDS) -> Sample:
    """Return up to `max_records` records, from the begin of up to 50 files that are spread over the archive.

    Raises:
        PlanError: when no file can be read, or no record.
    """
    sample, files = Sample(), _spread(archive.files)
    quota = max(1, max_records // len(files))
    read, errors = _READERS[archive.format], list[str]()
    for number, file in enumerate(files):
        try:
            records = read(archive, file, sample)
            for record in islice(records, quota):
                sample.add(record, number)
            sample.is_complete &= next(records, None) is None
        except _damages() as error:
            errors.append(f"{file.path}: {' '.join(str(error).split())[:200]}")
            continue
        sample.files_read += 1
    sample.is_complete &= len(files) == len(archive.files)
    if not sample.records:
        facts = "".join(f"\n  {line}" for line in [*errors, *(text for _, text in sample.unreadable[:3])][:3])
        msg = f"no record in {archive.location} can be read as {archive.format} (--from){facts}"
        raise PlanError(msg)
    _add_folder_columns(archive, files, sample)
    return sample


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


def _read_orc(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    import pyarrow as pa
    from pyarrow import orc

    stripes = orc.ORCFile(archive.open_raw(file))
    # Spark reads ORC's timestamps as instants in its own zone, which is UTC here.
    sample.instants |= {each.name for each in stripes.schema if pa.types.is_timestamp(each.type)}
    for number in range(stripes.nstripes):
        yield from _batch_records(stripes.read_stripe(number))


def _batch_records(batch: Any) -> Iterator[Record]:
    """Yield rows as Python objects; nanoseconds are cut, because Python has microseconds."""
    import pyarrow as pa

    arrays = [
        column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_timestamp(column.type)
        else column
        for column in batch.columns
    ]
    yield from pa.RecordBatch.from_arrays(arrays, batch.schema.names).to_pylist()


def _read_avro(archive: Archive, file: ArchiveFile, _: Sample) -> Iterator[Record]:
    import fastavro

    with archive.open_raw(file) as stream:
        for record in fastavro.reader(stream):
            if isinstance(record, dict):
                yield record


def _read_json(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    with TextIOWrapper(archive.open(file), encoding="utf-8", errors="replace") as lines:
        first = next((line for line in lines if line.strip()), "")
        if first.lstrip().startswith("[") or first.strip() == "{":
            sample.options["multiLine"] = "true"
            yield from _array_records(first + lines.read())
            return
        for line in chain([first], lines):
            if record := _parse_line(line, file, sample):
                yield record


def _parse_line(line: str, file: ArchiveFile, sample: Sample) -> Record | None:
    if not line.strip():
        return None
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if isinstance(record, dict):
        return record
    sample.unreadable.append((file.path, line.strip()))
    return None


def _array_records(text: str) -> Iterator[Record]:
    """Yield the objects of a file that is one JSON array or one object."""
    content = json.loads(text)
    yield from (each for each in (content if isinstance(content, list) else [content]) if isinstance(each, dict))


def _read_csv(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    with TextIOWrapper(archive.open(file), encoding="utf-8-sig", errors="replace", newline="") as text:
        if not sample.columns:
            _detect_dialect(archive, file, sample)
        rows = csv.reader(text, delimiter=sample.options["sep"])
        columns = sample.columns
        if "header" in sample.options:
            columns = tuple(next(rows, ()))  # files can have their columns in another order
            sample.columns += tuple(name for name in columns if name not in sample.columns)
        for row in rows:
            if len(row) == len(columns):
                sample.options |= _quoting_options(row)
                yield {name: _csv_value(cell) for name, cell in zip(columns, row, strict=True)}
            elif row:
                sample.unreadable.append((file.path, sample.options["sep"].join(row)))


def _quoting_options(row: Sequence[str]) -> dict[str, str]:
    """Return the options that Spark needs for quotes within quotes, and for line breaks within quotes."""
    text = "".join(row)
    escape = {"escape": '"'} if '"' in text else {}
    return escape | ({"multiLine": "true"} if "\n" in text else {})


def _detect_dialect(archive: Archive, file: ArchiveFile, sample: Sample) -> None:
    """Set the separator, the header, and the columns by the first lines of a file."""
    with TextIOWrapper(archive.open(file), encoding="utf-8-sig", errors="replace", newline="") as text:
        lines = text.read(_SNIFFED_CHARACTERS).splitlines()[:100]
    counts = {each: min(line.count(each) for line in lines if line) for each in _DELIMITERS}
    separator = max(counts, key=lambda each: counts[each]) if any(counts.values()) else ","
    first = next(csv.reader(lines, delimiter=separator), [])
    sample.options["sep"] = separator
    if len(set(first)) == len(first) and all(_is_name(cell) for cell in first):
        sample.options["header"] = "true"
        sample.columns = tuple(first)
    else:
        sample.columns = tuple(f"column_{number}" for number in range(1, len(first) + 1))


def _is_name(cell: str) -> bool:
    return bool(cell) and isinstance(_csv_value(cell), str) and not cell[:1].isdigit()


def _csv_value(cell: str) -> Value:
    """Return a cell as a number or a boolean if it is written as one; numbers with leading zeros are text."""
    if not cell:
        return None
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    if _INTEGER.fullmatch(cell):
        return int(cell)
    return float(cell) if _NUMBER.fullmatch(cell) else cell


def _read_access_log(archive: Archive, file: ArchiveFile, sample: Sample) -> Iterator[Record]:
    sample.options |= {"sep": " ", "quote": '"', "escape": "\\", "nullValue": "-"}
    with TextIOWrapper(archive.open(file), encoding="utf-8", errors="replace") as lines:
        for line in lines:
            row = next(csv.reader([line.rstrip("\n")], delimiter=" ", escapechar="\\"), [])
            if len(row) in (COMMON_FIELDS, len(ACCESS_LOG_COLUMNS)):
                sample.columns = ACCESS_LOG_COLUMNS[: len(row)]
                cells = (None if cell == "-" else cell for cell in row)
                yield {name: _log_value(name, cell) for name, cell in zip(sample.columns, cells, strict=True)}
            elif line.strip():
                sample.unreadable.append((file.path, line.strip()))


def _log_value(name: str, cell: str | None) -> Value:
    return int(cell) if cell and cell.isdecimal() and name in ("status", "size") else cell


_READERS: Mapping[str, Callable[[Archive, ArchiveFile, Sample], Iterator[Record]]] = {
    "parquet": _read_parquet,
    "orc": _read_orc,
    "avro": _read_avro,
    "json": _read_json,
    "csv": _read_csv,
    ACCESS_LOG: _read_access_log,
}
