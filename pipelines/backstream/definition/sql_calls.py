"""Find the function calls in Spark SQL, and edit the text of a call without touching the rest.

The text is not generated again from a syntax tree, because that could change it: sqlglot would write
`percentile_cont` as another function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from backstream.definition.spark_functions import words

_NO_FUNCTIONS = words(
    "all and as between by case char character dec decimal distinct div else escape filter from group ilike in"
    " interval is like not numeric on or order over regexp rlike select then using varchar when where within"
    " with"
)
"""Words before a parenthesis that are not functions: operators, clauses, and types with a length."""


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a text, half-open."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return this part of the text, without spaces around it."""
        return text[self.start : self.end].strip()


@dataclass(frozen=True, slots=True)
class Call:
    """A function call in a text.

    `closed_at` is the position after its parenthesis, and `whole` includes the clauses behind it.
    """

    name: str
    arguments: tuple[Span, ...]
    is_distinct: bool
    closed_at: int
    whole: Span
    order: Span | None
    """The content of `WITHIN GROUP (ORDER BY ..)`, without these words."""
    condition: Span | None
    """The content of `FILTER (WHERE ..)`, without these words."""
    is_over: bool
    """True if the call has the clause `OVER`."""
    enclosing: tuple[str, ...]
    """The names of the calls around it, the innermost first."""


def find_calls(text: str) -> list[Call]:
    """Return the function calls in a text, in the order of their names."""
    tokens = Spark().tokenize(text)
    closing = _closing_parentheses(tokens)
    calls: list[Call] = []
    around: list[tuple[int, str]] = []
    for position in range(len(tokens)):
        while around and position > around[-1][0]:
            around.pop()
        if position + 1 not in closing or not _is_function(tokens, position):
            continue
        close, name = closing[position + 1], _full_name(tokens, position)
        calls.append(_call(tokens, closing, position, close, tuple(name for _, name in reversed(around))))
        around.append((close, name))
    return calls


def replace_spans(text: str, replacements: Iterable[tuple[Span, str]]) -> str:
    """Return the text with some parts replaced; the parts must not overlap."""
    for span, new in sorted(replacements, key=lambda pair: pair[0].start, reverse=True):
        text = text[: span.start] + new + text[span.end :]
    return text


def add_condition(text: str, names: Collection[str], condition: str) -> str:
    """Return the text with a condition in the `FILTER` clause of each call of these functions."""
    return replace_spans(
        text,
        [_condition_edit(text, call, condition) for call in find_calls(text) if call.name in names],
    )


def _condition_edit(text: str, call: Call, condition: str) -> tuple[Span, str]:
    if call.condition:
        return call.condition, f"({call.condition.of(text)}) AND ({condition})"
    # `IGNORE NULLS` would follow the clause, but only functions that depend on the order of rows have it.
    return Span(call.whole.end, call.whole.end), f" FILTER (WHERE {condition})"


def _closing_parentheses(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the position of the closing parenthesis by that of the opening one."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for position, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(position)
        elif token.token_type is TokenType.R_PAREN and opened:
            closing[opened.pop()] = position
    return closing


def _is_function(tokens: Sequence[Token], position: int) -> bool:
    token = tokens[position]
    if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not (
        token.text[:1].isalpha() or token.text[:1] == "_"
    ):
        return False
    if token.token_type is TokenType.FILTER:
        # The function `filter` never follows a parenthesis, and the clause always does.
        return position == 0 or tokens[position - 1].token_type is not TokenType.R_PAREN
    if token.text.lower() in ("any", "some", "all") and position:
        return tokens[position - 1].text.lower() not in ("like", "ilike")
    return token.text.lower() not in _NO_FUNCTIONS


def _full_name(tokens: Sequence[Token], position: int) -> str:
    """Return the name of a function in lower case, with the schema before it."""
    name = tokens[position].text.lower()
    while position > 1 and tokens[position - 1].token_type is TokenType.DOT:
        position -= 2
        name = f"{tokens[position].text.lower()}.{name}"
    return name


def _call(
    tokens: Sequence[Token], closing: dict[int, int], first: int, close: int, enclosing: tuple[str, ...]
) -> Call:
    is_distinct = tokens[first + 2].token_type is TokenType.DISTINCT
    inner = range(first + (3 if is_distinct else 2), close)
    end, order, condition = close, None, None
    if _words(tokens, end + 1, 2) == "within group" and end + 3 in closing:
        start, end = end + 3, closing[end + 3]
        order = _span(tokens, start + _words_before(tokens, start, "order", "by"), end - 1)
    if _words(tokens, end + 1, 1) == "filter" and end + 2 in closing:
        start, end = end + 2, closing[end + 2]
        condition = _span(tokens, start + _words_before(tokens, start, "where"), end - 1)
    return Call(
        name=_full_name(tokens, first),
        arguments=tuple(_arguments(tokens, inner)),
        is_distinct=is_distinct,
        closed_at=tokens[close].end + 1,
        whole=Span(tokens[first].start, tokens[end].end + 1),
        order=order,
        condition=condition,
        is_over=_words(tokens, end + 1, 1) == "over",
        enclosing=enclosing,
    )


def _words(tokens: Sequence[Token], first: int, count: int) -> str:
    return " ".join(token.text.lower() for token in tokens[first : first + count])


def _words_before(tokens: Sequence[Token], opened: int, *words: str) -> int:
    """Return the distance from an opening parenthesis to its content after some words."""
    text = _words(tokens, opened + 1, len(words))
    # sqlglot has one token for ORDER BY.
    if text.startswith(" ".join(words)):
        return 1 + len(words) if tokens[opened + 1].text.lower() == words[0] else 2
    return 1


def _span(tokens: Sequence[Token], first: int, last: int) -> Span:
    return Span(tokens[first].start, tokens[last].end + 1)


def _arguments(tokens: Sequence[Token], inner: range) -> Iterable[Span]:
    """Yield the arguments between two parentheses."""
    depth, first = 0, inner.start
    for position in inner:
        kind = tokens[position].token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if kind is TokenType.COMMA and not depth:
            yield _span(tokens, first, position - 1)
            first = position + 1
    if inner:
        yield _span(tokens, first, inner.stop - 1)


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
