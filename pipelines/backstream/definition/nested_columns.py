"""Find the fields of structs in SQL, and write plain columns in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from backstream.definition.result_types import column_path
from backstream.definition.sql_calls import Span, replace_spans


def replace_paths(text: str, paths: Mapping[str, str]) -> str:
    """Return the SQL with plain columns in place of the fields of structs."""
    return replace_spans(
        text, [(span, _quote_name(paths[path])) for span, path in _find_names(text) if path in paths]
    )


def paths_of(text: str) -> set[tuple[str, ...]]:
    """Return the columns of a SQL expression, each with the fields behind it."""
    parsed = sqlglot.parse_one(text, dialect="spark")
    whole = {node: path for node in parsed.find_all(exp.Column, exp.Dot) if (path := column_path(node))}
    return {path for node, path in whole.items() if node.parent not in whole}


def _find_names(text: str) -> Iterator[tuple[Span, str]]:
    """Yield the names in a text, each with the names of fields behind it."""
    tokens = Spark().tokenize(text)
    position = 0
    while position < len(tokens):
        last = position
        while _is_dot(tokens, last + 1) and _is_name(tokens, last + 2):
            last += 2
        if _is_name(tokens, position) and not _is_dot(tokens, position - 1):
            names = [token.text for token in tokens[position : last + 1 : 2]]
            yield Span(tokens[position].start, tokens[last].end + 1), ".".join(names)
        position = last + 1


def _is_dot(tokens: Sequence[Token], position: int) -> bool:
    return 0 <= position < len(tokens) and tokens[position].token_type is TokenType.DOT


def _is_name(tokens: Sequence[Token], position: int) -> bool:
    if position >= len(tokens) or tokens[position].token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return tokens[position].token_type is TokenType.IDENTIFIER or tokens[position].text.isidentifier()


def _quote_name(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"
