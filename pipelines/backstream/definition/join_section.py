"""Define the section `[join]`, and the process function that computes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from backstream.definition.result_sections import (
    CumulateWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
)
from backstream.definition.values import Duration, Name, PositiveDuration, Section, Sql
from backstream.definition.watermark_sections import LatenessSection
from backstream.eventtime.instants import duration_text
from backstream.eventtime.joins.join_function import JoinFunction, JoinKind, JoinSemantics
from backstream.eventtime.joins.rule import SIDE, Comparison, JoinType
from backstream.eventtime.windows import Session

if TYPE_CHECKING:
    from sqlglot import exp

FUNCTION = f"{JoinFunction.__module__}:{JoinFunction.__name__}"
"""The process function that computes joins."""
_BOUND_KEYS = ("lower", "upper", "lower_exclusive", "upper_exclusive")
_OPERATORS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
"""The operators of SQL by the names of its parser."""
_NUMBER = re.compile(r"tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ALLOWED_TYPES = {
    (JoinKind.INTERVAL, JoinSemantics.FLINK_DATASTREAM): (JoinType.INNER,),
    (JoinKind.INTERVAL, JoinSemantics.FLINK_SQL): (JoinType.INNER, JoinType.LEFT, JoinType.RIGHT, JoinType.FULL),
    (JoinKind.TEMPORAL, JoinSemantics.FLINK_SQL): (JoinType.INNER, JoinType.LEFT),
}
"""The types of joins that Flink has; those of windows have all types."""


class JoinSection(Section):
    """Join of two sources by their `key`: the first `[[source]]` is the left side, the second the right side."""

    kind: JoinKind
    """The relation between the times of partners."""
    type: JoinType = JoinType.INNER
    """The rows: pairs, or also records without a partner."""
    semantics: JoinSemantics
    """The system whose rules decide which rows the live job emitted."""
    left: Annotated[dict[Name, str], Field(min_length=1)]
    """The columns of the left side in a row: a name and a type of Spark SQL, e.g., `amount = "bigint"`."""
    right: dict[Name, str] = {}
    """The columns of the right side in a row; their names differ from those of the left side. With `semi` and
    `anti`, a row has the left columns only, and `where` can use the right ones."""
    where: Sql | None = None
    """A further condition: comparisons of a left with a right column, joined by `AND`, e.g., `amount < credit`."""
    lower: Duration | None = None
    """For an interval join: the least difference of the right event time minus the left one, e.g., `"-10m"`."""
    upper: Duration | None = None
    """For an interval join: the greatest difference."""
    lower_exclusive: bool = False
    """`true`: the difference must be greater than `lower`."""
    upper_exclusive: bool = False
    """`true`: the difference must be less than `upper`."""
    window: Annotated[
        TumblingWindow | SlidingWindow | SessionWindow | CumulateWindow | None, Field(discriminator="kind")
    ] = None
    """The windows of a window join, by default those of `[window]`. A row is published in the window of `[window]`
    that contains their last millisecond."""
    state_reach: PositiveDuration | None = None
    """For a temporal join and the interval join of Flink SQL: records that are further from a chunk have no effect
    on its rows. By default there is no limit, and each run reads the whole source."""

    def __str__(self) -> str:
        return f"{self.type.value} {self.kind.value} join ({self.semantics.value})"

    @model_validator(mode="after")
    def _check_keys(self) -> JoinSection:
        for problem in self._list_problems():
            raise ValueError(problem)
        return self

    def _list_problems(self) -> Iterator[str]:
        kind, semantics = self.kind, self.semantics
        if kind is JoinKind.TEMPORAL and semantics is not JoinSemantics.FLINK_SQL:
            yield f"semantics must be 'flink_sql' with kind = 'temporal', got {semantics.value!r}"
        allowed = _ALLOWED_TYPES.get((kind, semantics), tuple(JoinType))
        if self.type not in allowed:
            names = ", ".join(repr(each.value) for each in allowed)
            place = f"kind = {kind.value!r} and semantics = {semantics.value!r}"
            yield f"type must be one of {names} with {place}, got {self.type.value!r}"
        yield from self._list_bound_problems()
        if self.window and kind is not JoinKind.WINDOW:
            yield f"window is for kind = 'window', got {kind.value!r}"
        if isinstance(self.window, SessionWindow) and semantics is JoinSemantics.FLINK_SQL:
            yield "window.kind must not be 'session' with semantics = 'flink_sql': both sides have other sessions"
        if self.state_reach is not None and self.exact_reach_ms(0) is not None:
            yield f"state_reach has no meaning with kind = {kind.value!r}: the reach follows from its times"
        if twice := sorted(self.left.keys() & self.right.keys()):
            yield f"right.{twice[0]} has the name of a left column: derive another name in its source"
        if SIDE in {*self.left, *self.right}:
            yield f"{SIDE!r} cannot be the name of a column, because backstream reserves it"
        yield from self._list_type_problems()

    def _list_type_problems(self) -> Iterator[str]:
        from sqlglot import exp  # takes long
        from sqlglot.errors import SqlglotError

        for side, columns in (("left", self.left), ("right", self.right)):
            for name, text in columns.items():
                try:
                    exp.DataType.build(text, dialect="spark")
                except (SqlglotError, ValueError):
                    yield f"{side}.{name} must be a type of Spark SQL such as bigint or string, got {text!r}"
                    return
        for left, _, right in self.comparisons():
            types = self.left[left], self.right[right]
            if types[0] != types[1] and not all(map(_NUMBER.fullmatch, types)):
                texts = [f"{name} of type {text}" for name, text in zip((left, right), types, strict=True)]
                yield f"where compares {' with '.join(texts)}: cast one in its source"

    def _list_bound_problems(self) -> Iterator[str]:
        if self.kind is not JoinKind.INTERVAL:
            for key in _BOUND_KEYS:
                if getattr(self, key) != type(self).model_fields[key].default:
                    yield f"{key} is for kind = 'interval', got {self.kind.value!r}"
            return
        for key, value in (("lower", self.lower), ("upper", self.upper)):
            if value is None:
                yield f"{key} is missing with kind = 'interval': without a bound, a record would wait for ever"
        lower_ms, upper_ms = self.bounds_ms
        if lower_ms > upper_ms:
            yield f"lower must not be greater than upper, got {lower_ms} ms and {upper_ms} ms (inclusive)"

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """The inclusive bounds of an interval join."""
        return (self.lower or 0) + self.lower_exclusive, (self.upper or 0) - self.upper_exclusive

    def exact_reach_ms(self, window_ms: int) -> int | None:
        """Return the distance of event times within which all records of a row are; None if it has no limit.

        Args:
            window_ms: the length of the windows.
        """
        if self.kind is JoinKind.WINDOW:
            return None if isinstance(self.window, SessionWindow) else window_ms
        if self.kind is JoinKind.INTERVAL and self.semantics is JoinSemantics.FLINK_DATASTREAM:
            return max(map(abs, self.bounds_ms))
        return None

    def comparisons(self) -> list[Comparison]:
        """Return the conditions of `where`.

        Raises:
            ValueError: when it is not a conjunction of comparisons between a left and a right column.
        """
        if self.where is None:
            return []
        import sqlglot  # takes long
        from sqlglot import exp
        from sqlglot.errors import SqlglotError

        try:
            parsed = sqlglot.parse_one(self.where, dialect="spark")
        except SqlglotError:
            msg = f"where is not SQL, got {self.where!r}"
            raise ValueError(msg) from None
        return [self._comparison(part) for part in (parsed.flatten() if isinstance(parsed, exp.And) else [parsed])]

    def _comparison(self, part: exp.Expr) -> Comparison:
        text, sides = _OPERATORS.get(part.key), (part.args.get("this"), part.args.get("expression"))
        columns = [side for side in sides if side is not None and side.key == "column"]
        names = [column.name for column in columns if not column.args.get("table")]
        match [(name in self.left, name in self.right) for name in names]:
            case [(True, False), (False, True)] if text:
                return names[0], text, names[1]
            case [(False, True), (True, False)] if text:
                return names[1], _MIRRORED.get(text, text), names[0]
        msg = f"where must compare a left with a right column, e.g., `amount < credit`, got {part.sql('spark')!r}"
        raise ValueError(msg)

    def to_process(self, window: AnyWindow, allowed_lateness_ms: int) -> dict[str, Any]:
        """Return the section `[process]` that computes the join.

        Args:
            window: the section `[window]`.
            allowed_lateness_ms: the allowed lateness.
        """
        spec = (self.window or window).spec()
        has_pairs = self.type not in (JoinType.SEMI, JoinType.ANTI)
        section = {
            "class": FUNCTION,
            "kwargs": {
                "kind": self.kind.value,
                "join_type": self.type.value,
                "semantics": self.semantics.value,
                "columns": [[*self.left], [*self.right]],
                "conditions": [[*each] for each in self.comparisons()],
                "bounds_ms": [*self.bounds_ms],
                "window": [type(spec).__name__, asdict(spec), allowed_lateness_ms],
            },
            "columns": {**self.left, **(self.right if has_pairs else {})},
            "reads": [SIDE, *self.left, *self.right],
        }
        size_ms = 0 if isinstance(spec, Session) else spec.size_ms
        reach_ms = self.state_reach or self.exact_reach_ms(size_ms)
        return section if reach_ms is None else {**section, "state_reach": duration_text(max(1, reach_ms))}


AnyWindow = TumblingWindow | SlidingWindow | SessionWindow | CumulateWindow
_WINDOW = TypeAdapter[AnyWindow](Annotated[AnyWindow, Field(discriminator="kind")])


def with_join(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a definition with the process function of its join; other content as it is.

    Content that is not valid stays as it is, since its validation names the problem.
    """
    parts, process = content.get("source"), content.get("process", {"class": FUNCTION})
    if "join" not in content or not isinstance(process, Mapping) or process.get("class") != FUNCTION:
        return content
    try:
        join = JoinSection.model_validate(content["join"])
        lateness = LatenessSection.model_validate(content.get("lateness", {}))
        lowered = join.to_process(_WINDOW.validate_python(content.get("window")), lateness.allowed)
    except ValidationError:
        return content
    if isinstance(parts, list) and all(isinstance(part, Mapping) for part in parts):
        sides = ((join.right, "0"), (join.left, "1"))
        missing = [
            {**{name: f"cast(null as {text})" for name, text in other.items()}, SIDE: side}
            for other, side in sides
        ]
        parts = [
            {**part, "derive": {**part.get("derive", {}), **columns}}
            for part, columns in zip(parts, missing, strict=False)
        ] + parts[2:]
    return {**content, "source": parts, "process": lowered}
