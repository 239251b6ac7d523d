"""Load the output of a live system from Parquet or CSV files, or from a table of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError

from backstream.errors import SpecError
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.reconcile.frames import ColumnMappings, is_number_type
from backstream.runs.home import Home
from backstream.structured_streaming.file_sink import list_committed_names

_SUFFIXES = (".parquet", ".csv")

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class LiveOutput:
    """Output of a live system: its name, its columns, and a function that reads some of them."""

    where: str
    names: Sequence[str]
    rows: Callable[[ColumnMappings, Mapping[str, pa.DataType]], pa.Table]


def load_live_output(against: str, home: Home) -> LiveOutput:
    """Return the files or the table with that name.

    Raises:
        SpecError: when neither exists, or a file is not readable.
    """
    path = Path(against)
    if path.exists():
        return _output_of_files(path)
    with open_catalog_for_writing(home) as catalog, suppress(NoSuchTableError):
        table = catalog.load_table(table_identifier(against))

        def scan(columns: ColumnMappings, _: Mapping[str, pa.DataType]) -> pa.Table:
            return table.scan(selected_fields=tuple(column.theirs for column in columns.all())).to_arrow()

        return LiveOutput(f"table {against}", table.schema().column_names, scan)
    msg = f"--against must be a file, a folder, or a table of the lake, got {against!r}"
    raise SpecError(msg)


def _output_of_files(path: Path) -> LiveOutput:
    files = _list_files(path)
    if files[0].suffix == ".csv":
        names = _read_file(files[0], lambda file: pacsv.open_csv(file).schema.names)
        return LiveOutput(str(path), names, lambda columns, types: _read_files(files, _csv_reader(columns, types)))
    names = _read_file(files[0], lambda file: pq.read_schema(file).names)
    return LiveOutput(str(path), names, lambda columns, _: _read_files(files, _parquet_reader(columns)))


def _list_files(path: Path) -> list[Path]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_data(file, path))
    if not path.is_file() and (committed := list_committed_names(path)) is not None:
        files = [file for file in files if file.name in committed]
        if missing := sorted(committed - {file.name for file in files}):
            msg = f"{missing[0]} is missing, which the job has committed ({path / '_spark_metadata'}, --against)"
            raise SpecError(msg)
    if not files:
        msg = f"no .parquet or .csv file under {path} (--against)"
        raise SpecError(msg)
    suffixes = {file.suffix for file in files}
    if len(suffixes) > 1 or not suffixes <= {*_SUFFIXES}:
        names = ", ".join(sorted(suffixes)) or "no suffix"
        msg = f"--against must be .parquet or .csv files, got {names} ({path})"
        raise SpecError(msg)
    return files


def _is_data(file: Path, root: Path) -> bool:
    parts = file.relative_to(root).parts
    return file.is_file() and file.suffix in _SUFFIXES and not any(part.startswith((".", "_")) for part in parts)


def _read_file(file: Path, read: Callable[[Path], _Result]) -> _Result:
    """Return the result of `read`, with errors of Arrow as `SpecError`."""
    try:
        return read(file)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        msg = f"cannot read {file} (--against)\n  {error}"
        raise SpecError(msg) from None


def _parquet_reader(columns: ColumnMappings) -> Callable[[Path], pa.Table]:
    names = list(dict.fromkeys(column.theirs for column in columns.all()))
    return lambda file: pq.read_table(file, columns=names, partitioning=None)


def _csv_reader(columns: ColumnMappings, types: Mapping[str, pa.DataType]) -> Callable[[Path], pa.Table]:
    """Return a reader that uses our types, so that text stays text: a key `007` is not the number 7."""
    ours = {column.theirs: types[column.name] for column in (*columns.keys, *columns.aggregates)}
    kinds = {name: pa.float64() if is_number_type(kind) else kind for name, kind in ours.items()}
    names = list(dict.fromkeys(column.theirs for column in columns.all()))
    texts = [name for name in names if name in kinds and pa.types.is_string(kinds[name])]
    others = [name for name in names if name not in texts]
    # `show --format csv` writes nothing for null and "" for an empty text. `NULL` can be a text, but is no number;
    # Arrow has one list of such words for all columns, so that texts are read apart.
    text_options = pacsv.ConvertOptions(
        column_types=kinds,
        include_columns=texts,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    options = pacsv.ConvertOptions(column_types=kinds, include_columns=others)

    def read(file: Path) -> pa.Table:
        rows = pacsv.read_csv(file, convert_options=options)
        if texts:
            for column in zip(texts, pacsv.read_csv(file, convert_options=text_options).columns, strict=True):
                rows = rows.append_column(*column)
        return rows

    return read


def _read_files(files: Sequence[Path], read: Callable[[Path], pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables([_read_file(file, read) for file in files], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        msg = f"the files of --against have different columns\n  {error}"
        raise SpecError(msg) from None
