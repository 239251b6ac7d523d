"""Resolve the query of an INSERT to one table, its conditions, one window, its keys, and its result columns.

Views, subqueries, and WITH are put in their places, so that all expressions are over the columns of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

from backstream.definition.flink_sql.expressions import CLOCKS, interval_ms, is_aggregate, place_of
from backstream.definition.flink_sql.script import WINDOW_FUNCTIONS, DeclaredTable, FlinkScript, WindowTable

START, END, TIME = "window_start", "window_end", "window_time"
"""The columns of a window, which a placeholder names in an expression."""
RANK = "row_number"
"""The placeholder of ROW_NUMBER."""
_PARTS = {"START": START, "END": END, "ROWTIME": TIME}
"""The endings of the functions of group windows, e.g., TUMBLE_START."""
_ARGUMENTS = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
"""The intervals of a window in their order."""
_MIRRORED = {"gte": "lte", "gt": "lt", "lte": "gte", "lt": "gt"}
"""The operators of comparisons whose sides are exchanged."""
_JOIN_HINT = "only the query of an INSERT itself can join, and two tables or their windows"
_TIME_BOUNDS = {
    "gte": ("lower", False),
    "gt": ("lower", True),
    "lte": ("upper", False),
    "lt": ("upper", True),
}
"""The bound of an interval join that a comparison gives, and whether it is exclusive."""
_ORDERINGS = {"eq": "=", "neq": "<>", "gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}


@dataclass(frozen=True, slots=True)
class ScriptWindow:
    """A window: its kind, the column of its time, and its intervals in ms by their names in Flink."""

    kind: str
    time_column: str
    intervals_ms: Mapping[str, int]
    at: int
    partition_by: tuple[str, ...] | None = None
    """The keys of sessions of a table function; None for group windows, whose keys are those of GROUP BY."""


@dataclass(frozen=True, slots=True)
class ScriptTop:
    """A ROW_NUMBER over the rows of each window; `n` is the greatest number, None before a condition on it."""

    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    at: int
    n: int | None = None
    are_records: bool = False
    """True if records have the ranks, and not the rows of an aggregation."""
    keeps_ties: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of one table: `columns` are expressions over its columns, `conditions` are those of WHERE.

    After an aggregation, `keys` are the grouped expressions, and `having` has the conditions on its rows. A ranked
    record is an aggregation of its own.
    """

    table: DeclaredTable
    columns: Mapping[str, exp.Expr]
    conditions: tuple[exp.Expr, ...] = ()
    window: ScriptWindow | None = None
    keys: tuple[exp.Expr, ...] | None = None
    having: tuple[exp.Expr, ...] = ()
    top: ScriptTop | None = None
    greatest: exp.Expr | None = None
    """The count of the aggregation whose greatest value in each window is a column, for a join with it only."""


@dataclass(frozen=True, slots=True)
class ScriptJoin:
    """Pairs of records of two tables.

    `keys` and `comparisons` have a left and a right expression; `bounds` are those of an interval join
    in ms, empty for windows. A result column has the side of its expression: 0 for left, 1 for right.
    """

    sides: tuple[Relation, Relation]
    join_type: str
    keys: tuple[tuple[exp.Expr, exp.Expr], ...]
    comparisons: tuple[tuple[exp.Expr, str, exp.Expr], ...]
    bounds: Mapping[str, tuple[int, bool]]
    columns: Mapping[str, tuple[int, exp.Expr]]
    at: int


@dataclass(slots=True)
class QueryReader:
    """A reader of the queries of a script."""

    script: FlinkScript
    _open: list[str] = field(default_factory=list)

    def read(self, query: exp.Expr) -> Relation | ScriptJoin:
        """Return the rows of the query of an INSERT.

        Raises:
            SpecError: with line and column of a part that a definition cannot express.
        """
        if isinstance(query, exp.Select) and query.args.get("joins"):
            joined = self._join(query)
            if isinstance(joined, ScriptJoin):
                return joined
            relation = joined
        else:
            relation = self._read(query, {})
        if relation.greatest is not None:
            self._refuse_windows_of_windows(query)
        if relation.top is None:
            return relation
        if relation.top.n is None:
            self.script.source.refuse(
                relation.top.at, "ROW_NUMBER needs a condition on it in the query around, e.g., WHERE rownum <= 3"
            )
        return _with_record_rows(relation, relation.top) if relation.top.are_records else relation

    def _read(self, query: exp.Expr, names: Mapping[str, exp.Expr]) -> Relation:
        """Return the rows of a query; `names` are the queries of WITH."""
        names = dict(names)
        if isinstance(query, exp.Subquery):
            return self._read(query.this, names)
        if isinstance(query, exp.SetOperation):
            self._refuse(query, "UNION is not possible", "write each topic as [[source]], which unites them")
        if not isinstance(query, exp.Select):
            self._refuse(query, "only a SELECT is possible")
        if clauses := query.args.get("with_"):
            names |= {each.alias: each.this for each in clauses.expressions}
        self._refuse_clauses(query)
        source = query.args.get("from_")
        if source is None:
            self._refuse(query, "a SELECT without FROM is not possible")
        relation, alias = self._read_table(source.this, names)
        return self._select(query, relation, alias)

    def _refuse(self, node: exp.Expr, sentence: str, hint: str = "") -> NoReturn:
        self.script.source.refuse(place_of(node), sentence, hint)

    def _refuse_clauses(self, query: exp.Select) -> None:
        source = query.args.get("from_")
        for join in query.args.get("joins") or (source.this.args.get("joins") if source else ()) or ():
            self._refuse(join, "a join is not possible", _JOIN_HINT)
        for clause in ("laterals", "match", "pivots"):
            for node in query.args.get(clause) or ():
                self._refuse(node, "LATERAL, MATCH_RECOGNIZE, and PIVOT are not possible")
        for clause, name in (
            ("distinct", "DISTINCT"),
            ("order", "ORDER BY"),
            ("limit", "LIMIT"),
            ("qualify", "QUALIFY"),
        ):
            if node := query.args.get(clause):
                self._refuse(node if place_of(node) else query, f"{name} is not possible")
        for window in query.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is query and not _is_call(window.this, "ROW_NUMBER"):
                self._refuse(window, "OVER is not possible", "ROW_NUMBER() up to a greatest number is [top]")

    def _read_table(self, node: exp.Expr, names: Mapping[str, exp.Expr]) -> tuple[Relation, str]:
        """Return the rows of a part of FROM, and its alias."""
        if isinstance(node, exp.Subquery):
            for clause in ("joins", "pivots", "sample"):
                for part in node.args.get(clause) or ():
                    self._refuse(
                        part, "a join is not possible" if clause == "joins" else f"{clause} is not possible"
                    )
            return self._read(node.this, names), node.alias
        if not isinstance(node, exp.Table):
            self._refuse(node, "this part of FROM is not possible")
        for clause in ("joins", "pivots", "sample", "version", "when"):
            if part := node.args.get(clause):
                self._refuse(
                    part[0] if isinstance(part, list) else part,
                    "a join, MATCH_RECOGNIZE, or a version of a table is not possible",
                    _JOIN_HINT,
                )
        if isinstance(node.this, exp.Anonymous):
            call = node.this
            inner = call.expressions[0] if call.name.upper() == "TABLE" and call.expressions else call
            if not isinstance(inner, WindowTable):
                self._refuse(call, f"the table function {call.name} is not possible")
            return self._read_window_table(inner, names), node.alias
        if node.args.get("alias") and node.args["alias"].columns:
            self._refuse(node, "names of columns after an alias are not possible", "write AS in a subquery")
        name = ".".join(part.name for part in node.parts)
        return self._read_name(node, name, names), node.alias or node.name

    def _read_name(self, node: exp.Expr, name: str, names: Mapping[str, exp.Expr]) -> Relation:
        query = names.get(name) or self.script.views.get(name)
        if query is not None:
            if name in self._open:
                self._refuse(node, f"{name} reads itself")
            self._open.append(name)
            relation = self._read(query, {key: each for key, each in names.items() if key != name})
            self._open.remove(name)
            return relation
        table = self.script.tables.get(name)
        if table is None:
            self._refuse(node, f"the script has no table {name!r}", "write its CREATE TABLE into the script")
        return Relation(table, {column: _source_column(column, node) for column in table.columns})

    def _read_window_table(self, call: WindowTable, names: Mapping[str, exp.Expr]) -> Relation:
        table = call.args["table"]
        relation = self._read_name(table, ".".join(part.name for part in table.parts), names)
        if relation.window is not None:
            self._refuse(
                call, "a window of windows is not possible", "write a second definition over the first table"
            )
        kind, arguments = str(call.this), list(call.args.get("arguments") or ())
        described = [each.expression for each in arguments if _is_call(each.expression, "DESCRIPTOR")]
        if len(described) != 1 or len(described[0].expressions) != 1:
            self._refuse(call, f"{kind} needs DESCRIPTOR with one column")
        intervals = [each for each in arguments if each.expression is not described[0]]
        window = ScriptWindow(
            kind,
            self._time_column(described[0].expressions[0], relation, ""),
            self._intervals(call, kind, [(each.name, each.expression) for each in intervals]),
            place_of(call),
            tuple(self._inline(key, relation, "").sql() for key in call.args.get("partition_by") or ()),
        )
        columns = {**relation.columns, **{name: exp.Placeholder(this=name) for name in (START, END, TIME)}}
        return replace(relation, columns=columns, window=window)

    def _intervals(self, node: exp.Expr, kind: str, given: Sequence[tuple[str, exp.Expr]]) -> dict[str, int]:
        """Return the intervals of a window by name."""
        known = _ARGUMENTS[kind]
        found: dict[str, int] = {}
        for place, (name, value) in enumerate(given):
            key = name or (known[place] if place < len(known) else "")
            length_ms = interval_ms(value)
            if key not in known or length_ms is None:
                self._refuse(
                    value, f"{kind} needs {', '.join(known)} as INTERVAL of days, hours, minutes, or seconds"
                )
            found[key] = length_ms
        if any(key not in found for key in known if key != "OFFSET"):
            self._refuse(node, f"{kind} needs {', '.join(known[: len(known) - (kind != 'SESSION')])}")
        return found

    def _time_column(self, node: exp.Expr, relation: Relation, alias: str) -> str:
        """Return the column of a window's time, which must be that of the watermark."""
        found = self._inline(node, relation, alias)
        watermark = relation.table.watermark
        name = found.name if isinstance(found, exp.Column) else ""
        computed = relation.table.columns[name].computed if name in relation.table.columns else None
        if computed is not None and _is_call(computed, "PROCTIME"):
            self._refuse(
                node,
                "windows of processing time are not possible: a replay has no clock of the wall",
                'time = "processing" has windows of the arrival time',
            )
        if watermark is None or watermark[0] != name:
            self._refuse(
                node, f"the time of the window must be the column of WATERMARK FOR in {relation.table.name}"
            )
        return name

    def _inline(self, node: exp.Expr, relation: Relation, alias: str) -> exp.Expr:
        """Return an expression over the columns of the table."""

        def place(each: exp.Expr) -> exp.Expr:
            if not isinstance(each, exp.Column) or each.meta.get("is_inlined"):
                return each
            parts = [part.name for part in each.parts]
            if alias and len(parts) > 1 and parts[0] == alias and parts[0] not in relation.columns:
                parts = parts[1:]
            found = relation.columns.get(parts[0])
            if found is None:
                if parts[0].upper() in CLOCKS:
                    self._refuse(each, f"{parts[0]} is not possible: a replay has no clock of the wall")
                self._refuse(each, f"there is no column {'.'.join(parts)!r} here")
            value = found.copy()
            at = place_of(each)
            for part in value.walk():
                part.meta["start"] = at
            for name in parts[1:]:
                value = exp.Dot(this=value, expression=exp.to_identifier(name))
                value.meta["start"] = at
            return value

        return _mark_inlined(node.copy().transform(place))

    def _select(self, query: exp.Select, relation: Relation, alias: str) -> Relation:
        """Return the rows of a SELECT over the rows of its FROM."""
        where, group, having = (query.args.get(name) for name in ("where", "group", "having"))
        conditions = [self._inline(each, relation, alias) for each in _conjuncts(where.this)] if where else []
        if relation.greatest is not None:
            self._refuse_windows_of_windows(query)
        if relation.top is not None:
            relation, conditions = self._with_limit(relation, conditions), []
        if group is None and not any(is_aggregate(node) for each in query.expressions for node in each.walk()):
            columns = self._columns(query, relation, alias)
            if having:
                self._refuse(having, "HAVING without GROUP BY is not possible")
            if relation.keys is not None:
                return self._with_rank(replace(relation, columns=columns, having=(*relation.having, *conditions)))
            self._require_records(conditions)
            filtered = replace(relation, columns=columns, conditions=(*relation.conditions, *conditions))
            return self._with_rank(filtered)
        if relation.keys is not None or relation.top is not None:
            return self._greatest(query, relation, alias)
        self._require_records(conditions)
        filtered = replace(relation, conditions=(*relation.conditions, *conditions))
        return self._with_rank(self._aggregate(query, filtered, alias))

    def _refuse_windows_of_windows(self, node: exp.Expr) -> NoReturn:
        self._refuse(node, "a window of windows is not possible", "write a second definition over the first table")

    def _greatest(self, query: exp.Select, relation: Relation, alias: str) -> Relation:
        """Return the greatest count of each window over all keys, which only a join with these counts can read."""
        group = query.args.get("group")
        grouped = [self._inline(each, relation, alias) for each in (group.expressions if group else ())]
        is_plain = all(isinstance(each, exp.Placeholder) for each in grouped) and relation.top is None
        if not is_plain or query.args.get("where") or query.args.get("having"):
            self._refuse_windows_of_windows(group or query)
        columns = self._columns(query, relation, alias)
        counts = [each for each in columns.values() if not isinstance(each, exp.Placeholder)]
        is_greatest = (
            len(counts) == 1 and _is_call(counts[0], "MAX") and _is_call(counts[0].expressions[0], "COUNT")
        )
        if not is_greatest or not {START, END} <= {each.name for each in grouped}:
            self._refuse_windows_of_windows(group or query)
        return replace(relation, columns=columns, greatest=counts[0].expressions[0])

    def _most_frequent(
        self, query: exp.Select, conditions: Sequence[exp.Expr], found: Sequence[tuple[Relation, str]]
    ) -> Relation | None:
        """Return a join of counts with the greatest count of their window as a top-1; None for other joins."""
        number = 0 if found[0][0].greatest is None else 1
        counts, most = found[number][0], found[1 - number][0]
        if most.greatest is None or counts.greatest is not None or _rows_key(counts) != _rows_key(most):
            return None
        equal: set[str] = set()
        for each in conditions:
            sides = (each.args.get("this"), each.args.get("expression"))
            one, other = sides if _sides(sides[0]) == {number} else sides[::-1]
            operators = ("eq", "gte") if one is sides[0] else ("eq", "lte")
            if isinstance(one, exp.Placeholder) and one == other and each.key == "eq":
                equal.add(one.name)
            elif each.key in operators and one == most.greatest and _is_call(other or each, "MAX"):
                equal.add("greatest")
            else:
                return None
        columns = self._columns_of_sides(query, found)
        if equal != {START, END, "greatest"} or {side for side, _ in columns.values()} != {number}:
            return None
        order = exp.Ordered(this=most.greatest.copy(), desc=True, nulls_first=False)
        top = ScriptTop((), (order,), place_of(query), n=1, keeps_ties=True)
        return replace(counts, columns={name: each for name, (_, each) in columns.items()}, top=top)

    def _with_rank(self, relation: Relation) -> Relation:
        """Return the rows of a SELECT; the column of a ROW_NUMBER becomes a placeholder."""
        for name, value in relation.columns.items():
            if (window := value.find(exp.Window)) is None:
                continue
            if window is not value or relation.top:
                self._refuse(window, "ROW_NUMBER is only possible as one column of its own")
            rank = exp.Placeholder(this=RANK)
            rank.meta["start"] = place_of(window)
            return self._with_rank(
                replace(relation, columns={**relation.columns, name: rank}, top=self._top(window, relation))
            )
        return relation

    def _top(self, window: exp.Window, relation: Relation) -> ScriptTop:
        partition, order = window.args.get("partition_by") or (), window.args.get("order")
        if not {START, END} <= {each.name for each in partition if isinstance(each, exp.Placeholder)}:
            self._refuse(
                window,
                "ROW_NUMBER needs PARTITION BY window_start, window_end: else its rows change with each record",
            )
        if order is None or window.args.get("spec"):
            self._refuse(window, "ROW_NUMBER needs ORDER BY, and no ROWS or RANGE")
        for each in order.expressions:
            if bool(each.args.get("nulls_first")) == bool(each.args.get("desc")):
                self._refuse(each, "NULLS FIRST and NULLS LAST are not possible: nulls are the least values")
        keys = tuple(each for each in partition if not isinstance(each, exp.Placeholder))
        top = ScriptTop(keys, tuple(order.expressions), place_of(window), are_records=relation.keys is None)
        if top.are_records:
            if relation.window is not None and relation.window.kind == "SESSION":
                self._refuse(window, "ROW_NUMBER of records in sessions is not possible")
            return top
        grouped, ordered = ({each.sql() for each in found} for found in (relation.keys or (), keys))
        if others := sorted(ordered - grouped):
            self._refuse(window, f"PARTITION BY of ROW_NUMBER needs keys of GROUP BY, got {others[0]}")
        open_keys = sorted(grouped - ordered - {each.this.sql() for each in top.order})
        if open_keys:
            self._refuse(
                window,
                "ORDER BY of ROW_NUMBER leaves equal rows in an order that is by chance in Flink",
                f"add {', '.join(open_keys)} to ORDER BY".replace('"', ""),
            )
        return top

    def _with_limit(self, relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
        """Return ranked rows up to the greatest number that a condition names."""
        top = relation.top
        if top is None or not conditions:
            return relation
        n = _greatest_number(conditions[0])
        if len(conditions) > 1 or n is None or top.n is not None:
            place = next((each for each in conditions if _greatest_number(each) is None), conditions[-1])
            self._refuse(place, "the only condition on ranked rows must be a greatest number, e.g., rownum <= 3")
        return replace(relation, top=replace(top, n=n))

    # Joins

    def _join(self, query: exp.Select) -> ScriptJoin | Relation:
        """Return the pairs of a SELECT with a join."""
        join, *others = query.args["joins"]
        names = {each.alias: each.this for each in (query.args.get("with_") or exp.With()).expressions}
        if others:
            self._refuse(others[0], "a join of more than two tables is not possible")
        kind, side = str(join.args.get("kind") or "INNER").upper(), str(join.args.get("side") or "").upper()
        if kind not in ("INNER", "OUTER") or join.args.get("using") or join.args.get("method"):
            self._refuse(join, "only an INNER, LEFT, RIGHT, or FULL JOIN with ON is possible")
        if group := query.args.get("group") or query.args.get("having"):
            self._refuse(group, "an aggregation of a join is not possible: rows of [join] are pairs of records")
        alone = query.copy()
        alone.set("joins", None)
        self._refuse_clauses(alone)
        places = (query.args["from_"].this, join.this)
        found = [self._read_table(node, names) for node in places]
        if all(relation.greatest is None for relation, _ in found):
            self._require_sides([relation for relation, _ in found], places)
        conditions = [self._of_sides(part, found) for part in self._conditions_of(query, join, side)]
        if not side and (most_frequent := self._most_frequent(query, conditions, found)):
            return most_frequent
        self._require_sides([relation for relation, _ in found], places)
        rows = ScriptJoin(
            (found[0][0], found[1][0]),
            side.lower() or "inner",
            (),
            (),
            {},
            self._columns_of_sides(query, found),
            place_of(join),
        )
        for condition in conditions:
            rows = self._with_condition(rows, condition)
        return self._complete(rows, join, conditions)

    def _require_sides(self, sides: Sequence[Relation], places: Sequence[exp.Expr]) -> None:
        """Check that both sides are records of two tables, either of windows or not."""
        for relation, node in zip(sides, places, strict=True):
            if relation.keys is not None or relation.top is not None:
                self._refuse(node, "a join of aggregates is not possible: rows of [join] are pairs of records")
        left, right = sides
        if left.table.name == right.table.name:
            self._refuse(places[1], "a join of a table with itself is not possible")
        if (left.window is None) != (right.window is None):
            self._refuse(places[1], "a join of windows with records without windows is not possible")

    def _conditions_of(self, query: exp.Select, join: exp.Expr, side: str) -> list[exp.Expr]:
        """Return the conditions of a join, to which those of WHERE belong if no side keeps all rows."""
        where, on = query.args.get("where"), join.args.get("on")
        if where and side:
            self._refuse(where, f"WHERE after a {side} JOIN is not possible", "write it into a side's subquery")
        return [part for each in (on, where.this if where else None) if each for part in _conjuncts(each)]

    def _columns_of_sides(
        self, query: exp.Select, found: Sequence[tuple[Relation, str]]
    ) -> dict[str, tuple[int, exp.Expr]]:
        """Return the selected columns of a join by name, each with its side."""
        columns: dict[str, tuple[int, exp.Expr]] = {}
        for each in query.expressions:
            value = each.this if isinstance(each, exp.Alias) else each
            if (isinstance(value, exp.Star | exp.Column) and value.find(exp.Star)) or value.find(exp.Window):
                self._refuse(each, "a star or OVER is not possible in a join", "write the columns")
            name = each.alias_or_name if isinstance(each, exp.Alias | exp.Column) else f"EXPR${len(columns)}"
            if name in columns:
                self._refuse(each, f"two columns have the name {name!r}", "write AS for one of them")
            placed = self._of_sides(value, found)
            sides = _sides(placed)
            if len(sides) != 1:
                self._refuse(each, "a column of a join must be an expression over one side")
            columns[name] = sides.pop(), placed
        return columns

    def _of_sides(self, node: exp.Expr, sides: Sequence[tuple[Relation, str]]) -> exp.Expr:
        """Return an expression over the columns of two tables, each marked with its side."""

        def place(each: exp.Expr) -> exp.Expr:
            if not isinstance(each, exp.Column):
                return each
            parts = [part.name for part in each.parts]
            own = [number for number, (_, alias) in enumerate(sides) if len(parts) > 1 and parts[0] == alias]
            own = own or [number for number, (relation, _) in enumerate(sides) if parts[0] in relation.columns]
            if len(own) != 1:
                known = "is in both sides" if own else "is in no side"
                self._refuse(each, f"the column {'.'.join(parts)} {known} of the join")
            found = self._inline(each, *sides[own[0]])
            for part in found.walk():
                part.meta["side"] = own[0]
            return found

        return node.copy().transform(place)

    def _with_condition(self, rows: ScriptJoin, node: exp.Expr) -> ScriptJoin:
        """Return a join with a further condition."""
        if isinstance(node, exp.Paren):
            return self._with_condition(rows, node.this)
        if isinstance(node, exp.Between):
            low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
            high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
            return self._with_condition(self._with_condition(rows, low), high)
        if len(_sides(node)) == 1:
            return self._with_filter(rows, node)
        operator, one, other = node.key, node.args.get("this"), node.args.get("expression")
        is_comparison = operator in _ORDERINGS and len(_sides(one)) == 1 and len(_sides(other)) == 1
        if one is None or other is None or not is_comparison:
            self._refuse(
                node, "a condition of a join must compare an expression of one side with one of the other"
            )
        if _sides(one) == {1}:
            operator, one, other = _MIRRORED.get(operator, operator), other, one
        places = [each.name for each in (one, other) if isinstance(each, exp.Placeholder)]
        if places and (operator != "eq" or places[1:] != places[:1]):
            self._refuse(node, "a window of a join must be equal to that of the other side")
        offset_ms = _offset_of_times_ms(one, other, rows)
        if offset_ms is not None:
            name, is_exclusive = _TIME_BOUNDS.get(_MIRRORED.get(operator, ""), ("", False))
            if not name or name in rows.bounds:
                self._refuse(node, "an interval join needs one lower and one upper bound of the times")
            return replace(rows, bounds={**rows.bounds, name: (offset_ms, is_exclusive)})
        if operator == "eq":
            return rows if places else replace(rows, keys=(*rows.keys, (one, other)))
        return replace(rows, comparisons=(*rows.comparisons, (one, _ORDERINGS[operator], other)))

    def _with_filter(self, rows: ScriptJoin, node: exp.Expr) -> ScriptJoin:
        """Return a join with a condition on the records of one side."""
        (own,) = _sides(node)
        if rows.join_type not in ("inner", ("right", "left")[own]):
            self._refuse(node, "a condition on a side all of whose rows are kept is not possible here")
        self._require_records([node])
        sides = [
            replace(side, conditions=(*side.conditions, node)) if number == own else side
            for number, side in enumerate(rows.sides)
        ]
        return replace(rows, sides=(sides[0], sides[1]))

    def _complete(self, rows: ScriptJoin, join: exp.Expr, conditions: Sequence[exp.Expr]) -> ScriptJoin:
        """Return a join that has all that its kind needs."""
        left, right = rows.sides
        if not rows.keys:
            self._refuse(join, "a join needs an equality of columns of both sides")
        if left.window is None or right.window is None:
            if {*rows.bounds} != {"lower", "upper"}:
                self._refuse(
                    join,
                    "a join needs a lower and an upper bound of the times, or windows: else records wait for ever",
                )
            return rows
        equal = {
            each.this.name
            for each in conditions
            if isinstance(each, exp.EQ) and isinstance(each.this, exp.Placeholder)
        }
        if not {START, END} <= equal:
            self._refuse(join, "a join of windows needs equal window_start and window_end")
        if (left.window.kind, left.window.intervals_ms) != (right.window.kind, right.window.intervals_ms):
            self._refuse(join, "a join of different windows is not possible")
        if left.window.kind != "TUMBLE":
            self._refuse(
                join, f"a join of {left.window.kind} windows is not possible: a row has one tumbling window"
            )
        return rows

    def _require_records(self, conditions: Sequence[exp.Expr]) -> None:
        for condition in conditions:
            if condition.find(exp.Placeholder):
                self._refuse(
                    condition,
                    "a condition on a window before its aggregation is not possible",
                    "write it as HAVING",
                )

    def _aggregate(self, query: exp.Select, relation: Relation, alias: str) -> Relation:
        group = query.args.get("group")
        if group is None:
            self._refuse(query, "an aggregate without a window is not possible: its rows change with each record")
        if group.args.get("all") or group.find(exp.GroupingSets, exp.Cube, exp.Rollup):
            self._refuse(group, "GROUPING SETS, CUBE, and ROLLUP are not possible")
        grouped = [self._inline(self._of_position(each, query), relation, alias) for each in group.expressions]
        windows = [each for each in grouped if _is_window_call(each)]
        if windows:
            relation = self._add_group_window(windows, relation)
        if relation.window is None:
            self._refuse(group, "GROUP BY without a window is not possible: its rows change with each record")
        parts = {each.name for each in grouped if isinstance(each, exp.Placeholder)}
        if not windows and not {START, END} <= parts:
            self._refuse(
                group, "GROUP BY needs window_start and window_end: else its rows change with each record"
            )
        keys = tuple(
            each for each in grouped if not isinstance(each, exp.Placeholder) and not _is_window_call(each)
        )
        if relation.window.partition_by is not None and relation.window.kind == "SESSION":
            own = sorted(key.sql() for key in keys)
            if own != sorted(relation.window.partition_by):
                self._refuse(group, "GROUP BY and PARTITION BY of SESSION must have the same keys")
        relation = replace(relation, keys=keys)
        having = query.args.get("having")
        conditions = [self._inline(each, relation, alias) for each in _conjuncts(having.this)] if having else []
        placed = tuple(self._place_group_window(each, relation) for each in conditions)
        columns = {
            name: self._place_group_window(each, relation)
            for name, each in self._columns(query, relation, alias).items()
        }
        return replace(relation, columns=columns, having=placed)

    def _of_position(self, node: exp.Expr, query: exp.Select) -> exp.Expr:
        """Return the selected expression that a number or an alias in GROUP BY names."""
        if isinstance(node, exp.Literal):
            self._refuse(node, "a number in GROUP BY is not possible", "write the expression")
        return node

    def _add_group_window(self, windows: Sequence[exp.Expr], relation: Relation) -> Relation:
        if len(windows) > 1 or relation.window is not None:
            self._refuse(windows[-1], "only one window is possible")
        return replace(relation, window=self._group_window(windows[0], relation))

    def _group_window(self, call: exp.Expr, relation: Relation) -> ScriptWindow:
        kind = call.name.upper().partition("_")[0]
        arguments = call.expressions
        if not arguments or kind == "CUMULATE":
            self._refuse(call, f"{kind} needs a time" if kind != "CUMULATE" else "CUMULATE is a table function")
        time = arguments[0]
        name = time.name if isinstance(time, exp.Column) else ""
        if relation.table.watermark is None or relation.table.watermark[0] != name:
            self._time_column(
                _without_marks(time),
                replace(relation, columns={each: _source_column(each, call) for each in relation.table.columns}),
                "",
            )
        return ScriptWindow(
            kind, name, self._intervals(call, kind, [("", each) for each in arguments[1:]]), place_of(call)
        )

    def _place_group_window(self, node: exp.Expr, relation: Relation) -> exp.Expr:
        """Return an expression with placeholders for the functions of a group window, e.g., TUMBLE_START."""

        def place(each: exp.Expr) -> exp.Expr:
            if not isinstance(each, exp.Anonymous):
                return each
            kind, _, part = each.name.upper().partition("_")
            if kind not in WINDOW_FUNCTIONS or part not in _PARTS:
                return each
            window = self._group_window(each, relation)
            own = relation.window
            if own is None or (window.kind, window.intervals_ms) != (own.kind, own.intervals_ms):
                self._refuse(each, f"{each.name} needs the window of GROUP BY")
            found = exp.Placeholder(this=_PARTS[part])
            found.meta["start"] = place_of(each)
            return found

        return node.transform(place)

    def _columns(self, query: exp.Select, relation: Relation, alias: str) -> dict[str, exp.Expr]:
        """Return the selected columns by name; a column without a name gets its number."""
        columns: dict[str, exp.Expr] = {}
        for each in query.expressions:
            if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
                columns |= relation.columns
                continue
            name = each.alias_or_name if isinstance(each, exp.Alias | exp.Column) else f"EXPR${len(columns)}"
            if name in columns:
                self._refuse(each, f"two columns have the name {name!r}", "write AS for one of them")
            columns[name] = self._inline(each.this if isinstance(each, exp.Alias) else each, relation, alias)
        return columns


def _source_column(name: str, node: exp.Expr) -> exp.Expr:
    found = exp.Column(this=exp.to_identifier(name, quoted=True))
    found.meta.update(start=place_of(node), is_inlined=True)
    return found


def _mark_inlined(node: exp.Expr) -> exp.Expr:
    for column in node.find_all(exp.Column):
        column.meta["is_inlined"] = True
    return node


def _without_marks(node: exp.Expr) -> exp.Expr:
    found = node.copy()
    for column in found.find_all(exp.Column):
        column.meta.pop("is_inlined", None)
    return found


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that AND connects."""
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.And):
        return _conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _with_record_rows(relation: Relation, top: ScriptTop) -> Relation:
    """Return ranked records as an aggregation of single records, whose values are aggregates of one value."""
    keys = {each.sql() for each in top.partition}

    def of_record(node: exp.Expr) -> exp.Expr:
        if node.sql() in keys or isinstance(node, exp.Placeholder):
            return node.copy()
        if not isinstance(node, exp.Column | exp.Dot):
            return node
        found = exp.Anonymous(this="MIN", expressions=[node.copy()])
        found.meta["start"] = place_of(node)
        return found

    columns = {name: each.transform(of_record) for name, each in relation.columns.items()}
    order = tuple(each.transform(of_record) for each in top.order)
    return replace(relation, keys=top.partition, columns=columns, top=replace(top, order=order))


def _greatest_number(node: exp.Expr) -> int | None:
    """Return the greatest number that a condition on ROW_NUMBER allows; None for other conditions."""
    operator, left, right = node.key, node.args.get("this"), node.args.get("expression")
    if isinstance(right, exp.Placeholder):
        operator, left, right = _MIRRORED.get(operator, operator), right, left
    if not isinstance(left, exp.Placeholder) or left.name != RANK or not isinstance(right, exp.Literal):
        return None
    number = int(right.name) if right.name.isdigit() and not right.is_string else 0
    greatest = {"lte": number, "lt": number - 1, "eq": number if number == 1 else 0}.get(operator, 0)
    return greatest if greatest > 0 else None


def _rows_key(relation: Relation) -> tuple[object, ...]:
    """Return what decides which rows an aggregation has; sessions have none that two of them share."""
    window = relation.window
    if window is None or window.kind == "SESSION" or relation.keys is None or relation.top is not None:
        return (id(relation),)
    texts = ([each.sql() for each in part] for part in (relation.conditions, relation.having))
    keys = sorted(each.sql() for each in relation.keys)
    return relation.table.name, window.kind, window.time_column, dict(window.intervals_ms), keys, *texts


def _sides(node: exp.Expr | None) -> set[int]:
    """Return the sides of a join that an expression reads."""
    return {each.meta["side"] for each in node.walk() if "side" in each.meta} if node else set()


def _offset_of_times_ms(left: exp.Expr, right: exp.Expr, rows: ScriptJoin) -> int | None:
    """Return by how much the right time may exceed the left one if both are equal; None for windows and values."""
    left_ms, right_ms = (_time_offset_ms(*pair) for pair in zip((left, right), rows.sides, strict=True))
    if rows.sides[0].window is not None or left_ms is None or right_ms is None:
        return None
    return left_ms - right_ms


def _time_offset_ms(node: exp.Expr, relation: Relation) -> int | None:
    """Return the difference of an expression and the time of its table's watermark; None for other expressions."""
    if isinstance(node, exp.Paren):
        return _time_offset_ms(node.this, relation)
    if isinstance(node, exp.Add | exp.Sub):
        inner_ms, length_ms = _time_offset_ms(node.this, relation), interval_ms(node.expression)
        if inner_ms is None or length_ms is None:
            return None
        return inner_ms + (length_ms if isinstance(node, exp.Add) else -length_ms)
    watermark = relation.table.watermark
    return 0 if isinstance(node, exp.Column) and watermark and node.name == watermark[0] else None


def _is_call(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == name


def _is_window_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() in WINDOW_FUNCTIONS
