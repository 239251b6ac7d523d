"""What a live system said: Parquet or CSV files, or a table of the lake's catalog."""

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
from backstream.lake.catalog import NAMESPACE, open_catalog_for_writing
from backstream.reconcile.frames import ColumnMappings, is_number_type
from backstream.runs.home import Home

_SUFFIXES = (".parquet", ".csv")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LiveOutput:
    """A live system's output before it is read: what it is called, its columns, and how to get some of them."""

    where: str
    names: Sequence[str]
    rows: Callable[[ColumnMappings, Mapping[str, pa.DataType]], pa.Table]


def load_live_output(against: str, home: Home) -> LiveOutput:
    """The files or the table of that name.

    Raises:
        SpecError: when there are none, or they cannot be read.
    """
    path = Path(against)
    if path.exists():
        return _of_files(path)
    with open_catalog_for_writing(home) as catalog:
        parts = against.split(".")
        with suppress(NoSuchTableError):
            table = catalog.load_table((NAMESPACE, parts[0]) if len(parts) == 1 else tuple(parts))

            def scanned(columns: ColumnMappings, _: Mapping[str, pa.DataType]) -> pa.Table:
                return table.scan(selected_fields=tuple(each.theirs for each in columns.all())).to_arrow()

            return LiveOutput(f"table {against}", table.schema().column_names, scanned)
    msg = f"--against names neither a file or folder nor a table of the lake: {against!r}"
    raise SpecError(msg)


def _of_files(path: Path) -> LiveOutput:
    files = _files(path)
    if files[0].suffix == ".csv":
        names = _guarded(files[0], lambda file: pacsv.open_csv(file).schema.names)
        return LiveOutput(
            str(path), names, lambda columns, types: _concatenated(files, _csv_reader(columns, types))
        )
    names = _guarded(files[0], lambda file: pq.read_schema(file).names)
    return LiveOutput(str(path), names, lambda columns, _: _concatenated(files, _parquet_reader(columns)))


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_data(each, path))
    if not found:
        msg = f"no .parquet or .csv file under {path} (--against)"
        raise SpecError(msg)
    kinds = {file.suffix for file in found}
    if len(kinds) > 1 or not kinds <= {*_SUFFIXES}:
        msg = f"--against must be .parquet or .csv files, got {', '.join(sorted(kinds)) or 'no suffix'} ({path})"
        raise SpecError(msg)
    return found


def _is_data(file: Path, root: Path) -> bool:
    parts = file.relative_to(root).parts
    return file.is_file() and file.suffix in _SUFFIXES and not any(part.startswith((".", "_")) for part in parts)


def _guarded(file: Path, read: Callable[[Path], Result]) -> Result:
    """What is wrong with a file, in words."""
    try:
        return read(file)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        msg = f"cannot read {file} (--against)\n  {error}"
        raise SpecError(msg) from None


def _parquet_reader(columns: ColumnMappings) -> Callable[[Path], pa.Table]:
    names = list(dict.fromkeys(each.theirs for each in columns.all()))
    return lambda file: pq.read_table(file, columns=names, partitioning=None)


def _csv_reader(columns: ColumnMappings, types: Mapping[str, pa.DataType]) -> Callable[[Path], pa.Table]:
    """With our types where text must stay text: a key `007` is not the number 7."""
    ours = {each.theirs: types[each.name] for each in (*columns.keys, *columns.aggregates)}
    kinds = {name: pa.float64() if is_number_type(kind) else kind for name, kind in ours.items()}
    names = list(dict.fromkeys(each.theirs for each in columns.all()))
    options = pacsv.ConvertOptions(column_types=kinds, include_columns=names)
    return lambda file: pacsv.read_csv(file, convert_options=options)


def _concatenated(files: Sequence[Path], read: Callable[[Path], pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables([_guarded(file, read) for file in files], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        msg = f"the files of --against do not have the same columns\n  {error}"
        raise SpecError(msg) from None
