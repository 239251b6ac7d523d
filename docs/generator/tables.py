"""Describe the tables of the lake, from their schemas."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

from backstream.lake import ledger
from backstream.runs import table_schemas
from backstream.runs.table_schemas import Column, Table
from docs.generator.docstrings import module_docstrings
from docs.generator.markdown import code, document, prose, table

_INTRODUCTION = """\
Each dataset has its own tables. All datasets share the tables of the ledger. A name in `<...>` is a placeholder:
for the name of the dataset, or for one column per key or aggregate of the definition. The types are those of
Iceberg."""
_BY_DEFINITION = "by definition"


def page() -> str:
    """Return the page."""
    dataset = [block for title, text, found in _tables(table_schemas) for block in _described(title, text, found)]
    shared = [block for title, text, found in _ledger() for block in _described(title, text, found)]
    return document("Tables", _INTRODUCTION, "## Tables of a dataset", *dataset, "## Ledger", *shared)


def _tables(module: ModuleType) -> Iterator[tuple[str, str, Table]]:
    """Yield the name, the docstring, and the schema of each table; functions get placeholders as columns."""
    docstrings = module_docstrings(module)
    for name, member in vars(module).items():
        if isinstance(member, Table):
            yield member.name("<dataset>"), docstrings.get(name, ""), member
        elif inspect.isfunction(member) and member.__annotations__.get("return") == Table.__name__:
            parameters = inspect.signature(member).parameters
            schema: Table = member(*([Column(f"<{parameter}>", _BY_DEFINITION)] for parameter in parameters))
            yield schema.name("<dataset>"), inspect.getdoc(member) or "", schema


def _ledger() -> Iterator[tuple[str, str, Table]]:
    """Yield the tables of the ledger: the constant `RUNS` is the name of `RUNS_TABLE`."""
    docstrings = module_docstrings(ledger)
    for name, member in vars(ledger).items():
        if isinstance(member, Table):
            yield getattr(ledger, name.removesuffix("_TABLE")), docstrings.get(name, ""), member


def _described(title: str, text: str, schema: Table) -> Iterator[str]:
    yield f"### {code(title)}"
    yield prose(text)
    yield table(["column", "type", "nullable"], (_row(column) for column in schema.columns))
    if schema.day_column:
        yield f"Partitioned by the UTC day of `{schema.day_column}`."


def _row(column: Column) -> tuple[str, str, str]:
    return code(column.name), column.type, "no" if column.required else "yes"
