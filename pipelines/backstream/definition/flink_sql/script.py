"""Read the statements of a Flink SQL script: tables, views, settings, and INSERTs, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from backstream.definition.flink_sql.types import FlinkType, read_type
from backstream.errors import SpecError

WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
"""The table functions that assign windows; the older group windows have the same names."""


@dataclass(frozen=True, slots=True)
class ScriptText:
    """The text of a script, and its name for messages."""

    text: str
    name: str

    def refuse(self, at: int, sentence: str, hint: str = "") -> NoReturn:
        """Raise the error of a statement that cannot be expressed, at an offset of the text."""
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        more = f"\n\nhint: {hint}" if hint else ""
        msg = f"{sentence} ({self.name}, line {line}, column {column}){more}"
        raise SpecError(msg)


class WindowTable(exp.Expression):
    """A call of a table function that assigns windows."""

    arg_types = {"this": True, "table": True, "partition_by": False, "arguments": False}


class _FlinkParser(Parser):
    """The queries of Flink SQL. Functions keep their names, because those of other systems have other rules."""

    FUNCTIONS = {}
    NO_PAREN_FUNCTIONS = {}
    FUNCTION_PARSERS = {
        **{name: Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM")},
        **{name: lambda self, name=name: self._parse_window_table(name) for name in WINDOW_FUNCTIONS},
    }

    def _parse_window_table(self, kind: str) -> exp.Expr:
        start = self._index
        if self._match_text_seq("DATA") and not self._match(TokenType.FARROW):
            self._retreat(start)
        if not self._match(TokenType.TABLE):
            plain = self._parse_csv(self._parse_disjunction)
            return self.expression(exp.Anonymous(this=kind, expressions=plain))
        table = self._parse_table_parts()
        keys = [self._parse_column()] if self._match(TokenType.PARTITION_BY) else []
        arguments: list[exp.Expr] = []
        while self._match(TokenType.COMMA):
            is_named = self._next.token_type == TokenType.FARROW
            if keys and not arguments and not is_named and self._curr.text.upper() != "DESCRIPTOR":
                keys.append(self._parse_column())
                continue
            name = exp.Identifier(this=self._curr.text.upper() if is_named else "")
            if is_named:
                self._advance(2)
            arguments.append(self.expression(exp.Kwarg(this=name, expression=self._parse_disjunction())))
        return self.expression(WindowTable(this=kind, table=table, partition_by=keys, arguments=arguments))


class _Flink(Dialect):
    """Flink SQL: names in backquotes, texts in quotes, and SESSION as the name of a function."""

    class Tokenizer(tokens.Tokenizer):
        """The tokens of Flink SQL."""

        IDENTIFIERS = ["`"]
        QUOTES = ["'"]
        KEYWORDS = {
            word: kind
            for word, kind in tokens.Tokenizer.KEYWORDS.items()
            if word not in ("SESSION", "/*+", "TUMBLE", "HOP")
        }

    Parser = _FlinkParser


_DIALECT = _Flink()


@dataclass(frozen=True, slots=True)
class ColumnOfTable:
    """A column of a table: a field of the record, Kafka's metadata (`metadata` is their key), or an expression."""

    name: str
    at: int
    kind: FlinkType | None = None
    metadata: str | None = None
    computed: exp.Expr | None = None


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table of a CREATE TABLE: its columns, its watermark (column and expression), and its options."""

    name: str
    at: int
    columns: Mapping[str, ColumnOfTable]
    options: Mapping[str, tuple[str, int]]
    watermark: tuple[str, exp.Expr, int] | None

    def option(self, key: str) -> str | None:
        """Return the value of an option in lower case; None if it is not set."""
        return self.options[key][0].strip().lower() if key in self.options else None


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """An INSERT: its table, the columns that it names, and its query."""

    sink: str
    columns: Sequence[str]
    query: exp.Expr
    at: int


@dataclass(frozen=True, slots=True)
class FlinkScript:
    """The statements of a script. `settings` are those of SET: a value and its place by key."""

    source: ScriptText
    tables: dict[str, DeclaredTable] = field(default_factory=dict)
    views: dict[str, exp.Expr] = field(default_factory=dict)
    settings: dict[str, tuple[str, int]] = field(default_factory=dict)
    inserts: list[InsertStatement] = field(default_factory=list)

    @classmethod
    def read(cls, source: ScriptText) -> FlinkScript:
        """Return the statements of a script.

        Raises:
            SpecError: with line and column of a statement that is not understood.
        """
        script = cls(source)
        if "/*+" in source.text:
            source.refuse(source.text.index("/*+"), "a hint is not possible", "write its options into the table")
        for statement in _split(source):
            script._add(TokenCursor(source, statement))
        return script

    def _add(self, cursor: TokenCursor) -> None:
        at = cursor.at
        if cursor.accept("SET"):
            self._add_setting(cursor, at)
        elif cursor.accept("CREATE"):
            self._add_created(cursor, at)
        elif cursor.accept("INSERT"):
            if not cursor.accept("INTO"):
                self.source.refuse(at, "INSERT OVERWRITE is not possible: a stream only adds rows")
            sink = cursor.name()
            columns = cursor.names() if cursor.peek("(") and not cursor.peek("SELECT", 1) else []
            self.inserts.append(InsertStatement(sink, columns, cursor.rest_as(exp.Query), at))
        elif not cursor.accept("USE", "SHOW", "EXPLAIN", "DESCRIBE", "DROP"):
            self.source.refuse(at, f"the statement {cursor.word()} is not possible")

    def _add_setting(self, cursor: TokenCursor, at: int) -> None:
        key, value = cursor.text_until("="), cursor.text_until("")
        self.settings[key] = (value, at)

    def _add_created(self, cursor: TokenCursor, at: int) -> None:
        cursor.accept("TEMPORARY")
        what = cursor.word()
        cursor.advance()
        if what in ("CATALOG", "DATABASE"):
            return
        if what not in ("TABLE", "VIEW"):
            self.source.refuse(at, f"CREATE {what} is not possible")
        for word in ("IF", "NOT", "EXISTS"):
            cursor.accept(word)
        name = cursor.name()
        if what == "TABLE":
            self.tables[name] = _read_table(cursor, name, at)
        else:
            if cursor.peek("("):
                self.source.refuse(
                    cursor.at, "names of a view's columns are not possible", "write AS in its query"
                )
            cursor.expect("AS")
            self.views[name] = cursor.rest_as(exp.Query)


def _split(source: ScriptText) -> Iterator[list[Token]]:
    """Yield the tokens of each statement; the frame of a statement set is left out."""
    try:
        found = _DIALECT.tokenize(source.text)
    except SqlglotError:
        source.refuse(0, "the script has a text, a name, or a comment without an end")
    statement: list[Token] = []
    for token in found:
        words = [*(each.text.upper() for each in statement), token.text.upper()]
        if token.token_type is TokenType.SEMICOLON:
            if statement and words[:-1] != ["END"]:
                yield statement
            statement = []
        elif words in (["EXECUTE", "STATEMENT", "SET", "BEGIN"], ["BEGIN", "STATEMENT", "SET"]):
            statement = []
        else:
            statement.append(token)
    if statement and [each.text.upper() for each in statement] != ["END"]:
        yield statement


class TokenCursor:
    """A place in the tokens of a statement."""

    def __init__(self, source: ScriptText, statement: Sequence[Token]) -> None:
        self._source, self._tokens, self._next = source, list(statement), 0

    @property
    def at(self) -> int:
        """The offset of the next token, or of the end."""
        return self._tokens[self._next].start if not self.is_at_end else self._tokens[-1].end + 1

    @property
    def is_at_end(self) -> bool:
        """Return whether no token is left."""
        return self._next >= len(self._tokens)

    def word(self, ahead: int = 0) -> str:
        """Return a token in capital letters; empty at the end, and for a text or a quoted name."""
        place = self._next + ahead
        if place >= len(self._tokens):
            return ""
        token = self._tokens[place]
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()

    def peek(self, word: str, ahead: int = 0) -> bool:
        """Return whether a token is a word."""
        return self.word(ahead) == word

    def advance(self) -> Token:
        """Return the next token, and go on."""
        if self.is_at_end:
            self._source.refuse(self.at, "the statement ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def accept(self, *words: str) -> bool:
        """Go on if the next token is one of some words, and return whether it is."""
        if self.word() in words:
            self._next += 1
            return True
        return False

    def expect(self, word: str) -> None:
        """Go on after a word that must be here."""
        if not self.accept(word):
            self._source.refuse(self.at, f"{word} is expected here")

    def name(self) -> str:
        """Return the name at this place, with its dots."""
        parts = [self.advance().text]
        while self.accept("."):
            parts.append(self.advance().text)
        return ".".join(parts)

    def names(self) -> list[str]:
        """Return the names in parentheses."""
        self.expect("(")
        found = [self.advance().text]
        while self.accept(","):
            found.append(self.advance().text)
        self.expect(")")
        return found

    def string(self) -> str:
        """Return the text in quotes at this place."""
        token = self.advance()
        if token.token_type is not TokenType.STRING:
            self._source.refuse(token.start, "a text in quotes is expected here")
        return token.text

    def text_until(self, word: str) -> str:
        """Return the written text before a word, or up to the end, without quotes around it."""
        start = self._next
        while not self.is_at_end and not (word and self.peek(word)):
            self._next += 1
        found = self._tokens[start : self._next]
        if word:
            self.expect(word)
        if not found:
            self._source.refuse(self.at, "SET needs a key and a value", "write SET 'key' = 'value'")
        if len(found) == 1:
            return found[0].text
        return self._source.text[found[0].start : found[-1].end + 1]

    def part(self) -> list[Token]:
        """Return the tokens up to the next comma or closing parenthesis outside of parentheses."""
        start, depth = self._next, 0
        while not self.is_at_end and (depth or not (self.peek(",") or self.peek(")"))):
            depth += self.peek("(") - self.peek(")")
            self._next += 1
        return self._tokens[start : self._next]

    def rest_as(self, kind: type[exp.Expr]) -> exp.Expr:
        """Return the rest of the statement as a query."""
        found, self._next = self._tokens[self._next :], len(self._tokens)
        return self.parse(found, kind)

    def parse(self, found: Sequence[Token], kind: type[exp.Expr]) -> exp.Expr:
        """Return tokens as a query or a condition."""
        if not found:
            self._source.refuse(self.at, "an expression is expected here")
        parser = _DIALECT.parser()
        try:
            is_query = kind is exp.Query
            trees: Any = (
                parser.parse(list(found), self._source.text)
                if is_query
                else parser.parse_into(kind, list(found), self._source.text)
            )
        except SqlglotError as error:
            errors = getattr(error, "errors", None) or [{}]
            line, column = errors[0].get("line"), errors[0].get("col")
            at = found[0].start
            if line:
                starts = [token.start for token in found if token.line == line and token.col == column]
                at = starts[0] if starts else at
            self._source.refuse(at, "this part of the statement is not understood")
        if len(trees) != 1 or trees[0] is None or (kind is exp.Query and not isinstance(trees[0], exp.Query)):
            self._source.refuse(found[0].start, "a query is expected here")
        found_tree: exp.Expr = trees[0]
        return found_tree

    def type(self) -> FlinkType:
        """Return the type at this place."""
        return read_type(self, self._source)


def _read_table(cursor: TokenCursor, name: str, at: int) -> DeclaredTable:
    columns: dict[str, ColumnOfTable] = {}
    watermark: tuple[str, exp.Expr, int] | None = None
    cursor.expect("(")
    while not cursor.accept(")"):
        place = cursor.at
        if cursor.peek("WATERMARK") and cursor.peek("FOR", 1):
            cursor.advance()
            cursor.advance()
            of = cursor.name()
            cursor.expect("AS")
            watermark = (of, cursor.parse(cursor.part(), exp.Condition), place)
        elif cursor.peek("PRIMARY") or cursor.peek("CONSTRAINT"):
            cursor.part()
        else:
            column = _read_column(cursor, place)
            columns[column.name] = column
        if not cursor.accept(","):
            cursor.expect(")")
            break
    if cursor.accept("COMMENT"):
        cursor.string()
    if cursor.accept("PARTITIONED"):
        cursor.expect("BY")
        cursor.names()
    options: dict[str, tuple[str, int]] = {}
    if cursor.accept("WITH"):
        cursor.expect("(")
        while not cursor.accept(")"):
            place, key = cursor.at, cursor.string()
            cursor.expect("=")
            options[key] = (cursor.string(), place)
            cursor.accept(",")
    if not cursor.is_at_end:
        cursor.expect("WITH")
    return DeclaredTable(name, at, columns, options, watermark)


def _read_column(cursor: TokenCursor, place: int) -> ColumnOfTable:
    name = cursor.advance().text
    if cursor.accept("AS"):
        found = cursor.part()
        for index, token in enumerate(found):
            if token.text.upper() == "COMMENT" and token.token_type is not TokenType.STRING:
                found = found[:index]
                break
        return ColumnOfTable(name, place, computed=cursor.parse(found, exp.Condition))
    kind, metadata = cursor.type(), None
    if cursor.accept("METADATA"):
        metadata = cursor.string() if cursor.accept("FROM") else name
    cursor.part()  # NOT NULL, VIRTUAL, PRIMARY KEY, and COMMENT change no value
    return ColumnOfTable(name, place, kind, metadata)
