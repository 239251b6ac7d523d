"""Count the numbers of text files that are stored with other digits, by reading their columns as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from backstream.chunks.preparation.settings import Preparation
from backstream.definition.prepared import list_read_paths
from backstream.definition.prepared_columns import FILE
from backstream.runs.input_files import InexactNumbers
from backstream.source.column_types import quote_column
from backstream.source.inexact_numbers import NUMBER, doubtful_pattern, stored_text
from backstream.source.raw_files import TEXT_FORMATS, path_of_uri
from backstream.spark.preparation.raw_records import load_raw_records
from backstream.spark.schemas import parse_type

_LEAF, _TEXT, _STORED = "leaf", "text", "stored"
_MAX_LENGTH = 60
"""Characters of an example."""
_Texts = Callable[[Column], Column]
"""Function from a column to an array of all texts in it."""


def find_inexact_numbers(
    spark: SparkSession, preparation: Preparation, paths: Sequence[str], limit: int | None = None
) -> tuple[InexactNumbers, ...]:
    """Return the numbers of each column whose type cannot hold them. Runs a job if there are such types.

    Args:
        spark: the session.
        preparation: the settings; the lines of its line files count, too.
        paths: raw files of the source.
        limit: the maximum number of records of each file; None: all records.
    """
    columns = preparation.source.columns
    if preparation.source.format not in TEXT_FORMATS or not (paths or preparation.line_files):
        return ()
    kinds = {name: parse_type(kind) for name, kind in columns.items()}
    read = list_read_paths(preparation.definition)
    leaves = [
        (".".join(path), plain, name, texts)
        for name, kind in kinds.items()
        for path, plain, texts in _list_leaves((name,), kind)
        if read is None or _is_read(path, read)
    ]
    if not leaves:
        return ()
    rows = load_raw_records(spark, _as_text(preparation, kinds, {name for _, _, name, _ in leaves}), paths, limit)
    texts = F.concat(
        *(
            _number_texts(number, texts(F.col(quote_column(name))))
            for number, (_, _, name, texts) in enumerate(leaves)
        )
    )
    doubtful = rows.select(FILE, F.inline(texts))
    inexact = _keep_inexact(doubtful, [kind for _, kind, _, _ in leaves])
    example = F.min(F.struct(FILE, _TEXT, _STORED)).alias("example")
    found = inexact.groupBy(_LEAF).agg(F.count(F.lit(1)).alias("count"), example).orderBy(_LEAF).collect()
    return tuple(
        InexactNumbers(
            leaves[row[_LEAF]][0],
            leaves[row[_LEAF]][1],
            row["count"],
            _shorten(row["example"][_TEXT]),
            _shorten(row["example"][_STORED]),
            path_of_uri(row["example"][FILE]),
        )
        for row in found
    )


def _is_read(path: Sequence[str], read: Sequence[Sequence[str]]) -> bool:
    """Return whether one of the paths is a field, a column around it, or a part of it."""
    names = ".".join(path).lower().split(".")  # names may have dots
    return any(all(map(str.__eq__, names, map(str.lower, other))) for other in read)


def _list_leaves(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[tuple[str, ...], str, _Texts]]:
    """Yield the numbers in a column whose type may not hold them: path, type, and the function to their texts."""
    match kind:
        case StructType():
            for field in kind:
                for inner, plain, texts in _list_leaves((*path, field.name), field.dataType):
                    yield inner, plain, _of_field(field.name, texts)
        case ArrayType() | MapType():
            element = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
            for inner, plain, texts in _list_leaves(path, element):
                yield inner, plain, _of_elements(texts, is_map=isinstance(kind, MapType))
        case _ if pattern := doubtful_pattern(kind.simpleString()):
            yield path, kind.simpleString(), _doubtful_text(pattern)


def _doubtful_text(pattern: str) -> _Texts:
    def texts(column: Column) -> Column:
        return F.filter(F.array(F.trim(column)), lambda text: text.rlike(f"^{NUMBER}$") & text.rlike(pattern))

    return texts


def _of_field(name: str, texts: _Texts) -> _Texts:
    return lambda column: texts(column.getField(name))


def _of_elements(texts: _Texts, *, is_map: bool) -> _Texts:
    def texts_of_elements(column: Column) -> Column:
        elements = F.map_values(column) if is_map else column
        found = F.flatten(F.transform(elements, texts))
        return F.coalesce(found, F.array().cast("array<string>"))

    return texts_of_elements


def _number_texts(number: int, texts: Column) -> Column:
    return F.transform(texts, lambda text: F.struct(F.lit(number).alias(_LEAF), text.alias(_TEXT)))


def _as_text(preparation: Preparation, kinds: Mapping[str, DataType], names: set[str]) -> Preparation:
    """Return settings that read the numbers in some of the columns as text."""
    definition = preparation.definition
    texts = {name: _text_type(kinds[name]) for name in names}
    source = definition.source.model_copy(update={"columns": {**definition.source.columns, **texts}})
    return replace(preparation, definition=definition.model_copy(update={"source": source}))


def _text_type(kind: DataType) -> str:
    match kind:
        case StructType():
            fields = (f"{quote_column(field.name)}: {_text_type(field.dataType)}" for field in kind)
            return f"struct<{', '.join(fields)}>"
        case ArrayType():
            return f"array<{_text_type(kind.elementType)}>"
        case MapType():
            return f"map<{kind.keyType.simpleString()}, {_text_type(kind.valueType)}>"
        case _:
            plain = kind.simpleString()
            return "string" if doubtful_pattern(plain) else plain


def _keep_inexact(doubtful: DataFrame, kinds: Sequence[str]) -> DataFrame:
    """Return the rows with an inexact number, and the stored number; Java cannot write all digits of a float."""

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts, leaves = batch[_TEXT].to_pylist(), batch[_LEAF].to_pylist()
            stored = [stored_text(text, kinds[leaf]) for text, leaf in zip(texts, leaves, strict=True)]
            column = pa.array(stored, pa.string())
            yield batch.append_column(_STORED, column).filter(column.is_valid())

    return doubtful.mapInArrow(keep, f"{FILE} string, {_LEAF} int, {_TEXT} string, {_STORED} string")


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
