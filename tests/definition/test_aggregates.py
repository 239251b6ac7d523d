"""A definition against the columns of its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.definition.clicks import SOURCE, Lines, definition

from backstream.definition.aggregates import spark_aggregates, with_filter
from backstream.definition.columns import payload_columns, require_columns, source_columns, value_columns
from backstream.definition.nested_columns import paths_of, replace_paths
from backstream.errors import SpecError


def refusal(lines: Lines) -> str:
    """What is said against such a definition of this source."""
    with pytest.raises(SpecError) as refused:
        require_columns(definition(lines), SOURCE, "clicks.toml")
    return str(refused.value)


COLUMNS = "happened_at, arrived_at, page, seq, hits, seconds, ratio, price, day, is_bot, body, timing"
HINT = f"\n\nhint: the source has {COLUMNS}"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"source.key": '["pages"]'}, "source.key names 'pages', which is not a column"),
        ({"source.partition": '"origin"'}, "source.partition names 'origin', which is not a column"),
        ({"source.sequence": '"number"'}, "source.sequence names 'number', which is not a column"),
        (
            {"source.deduplicate_on": '["page", "id"]'},
            "source.deduplicate_on names 'id', which is not a column",
        ),
        ({"source.event_time": '"at"'}, "source.event_time names 'at', which is not a column"),
        (
            {"source.event_time": '"timestamp_millis(at_ms)"'},
            "source.event_time names 'at_ms', which is not a column, in 'timestamp_millis(at_ms)'",
        ),
        (
            {"source.arrival_time": '"received_at"'},
            "source.arrival_time names 'received_at', which is not a column",
        ),
        (
            {"watermark.strategy": '"punctuated"', "watermark.marker": '"is_flush"'},
            "watermark.marker names 'is_flush', which is not a column",
        ),
        (
            {"aggregates.total": '"sum(delay)"'},
            "aggregates.total names 'delay', which is not a column, in 'sum(delay)'",
        ),
        (
            {"aggregates.total": '"sum(Hits)"'},
            "aggregates.total names 'Hits', which is not a column, in 'sum(Hits)'",
        ),
    ],
)
def test_a_column_that_is_not_there_is_named_with_those_that_are(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml){HINT}"


def test_all_columns_that_are_not_there_are_named_at_once() -> None:
    lines = {"source.key": '["pages"]', "source.event_time": '"at"', "aggregates.total": '"sum(delay)"'}

    assert refusal(lines) == (
        "3 problems in clicks.toml"
        "\n  source.key names 'pages', which is not a column"
        "\n  source.event_time names 'at', which is not a column"
        "\n  aggregates.total names 'delay', which is not a column, in 'sum(delay)'" + HINT
    )


def test_of_a_wide_source_twenty_columns_are_named() -> None:
    wide = {f"column_{number}": "int" for number in range(33)}

    with pytest.raises(SpecError) as refused:
        require_columns(definition({}), wide, "clicks.toml")

    assert str(refused.value).splitlines()[-1].endswith(", column_18, column_19 and 13 more")


@pytest.mark.parametrize(
    ("version", "call", "said"),
    [
        (
            "4.0.5",
            "max(time_bucket(interval '5' minutes, happened_at))",
            "uses the function time_bucket, which Spark 4.0.5 does not have (Spark 4.2 has it)",
        ),
        (
            "4.1.2-amzn-0",
            "sort_array(collect_union(page))",
            "uses the function collect_union, which Spark 4.1.2-amzn-0 does not have (Spark 4.3 has it)",
        ),
        (
            "4.1.4",
            "array_max(max_by(hits, seq, 3))",
            "calls max_by with 3 arguments, which Spark 4.1.4 does not support (Spark 4.2 does)",
        ),
        ("4.3.0", "array_max(max_by(hits, seq, 3))", None),
        ("4.2.1", "max(time_bucket(interval '5' minutes, happened_at))", None),
        ("4.0.5", "max_by(page, seq)", None),
    ],
)
def test_an_older_spark_lacks_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, call: str, said: str | None
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    lines = {"aggregates.total": f'"{call}"'}

    if said is None:
        require_columns(definition(lines), SOURCE, "clicks.toml")
    else:
        assert refusal(lines).partition("\n")[0] == f"aggregates.total {said}, got {call!r} (clicks.toml)"


NO_CALL = "must have an aggregate such as count(*) or avg(x)"
ORDER = "depends on the order of records, which Spark does not keep"
USE_EXTREME = "use min_by(page, ..) or max_by(page, ..) with the column of the order"
OTHER_RUN = "because its value would differ in another run"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("hits", NO_CALL),
        ("upper(page)", NO_CALL),
        ("count()", "calls count without an argument"),
        ("sum(hits) / seconds", "uses 'seconds' outside of an aggregate, and it is no key"),
        (
            "my_total(hits)",
            "uses the function my_total, which Spark does not have (custom functions belong in [functions])",
        ),
        (
            "totl(hits) + sum(hits)",
            "uses the function totl, which Spark does not have (custom functions belong in [functions])",
        ),
        (
            "percentil(hits, 0.5)",
            "uses the function percentil, which Spark does not have (did you mean percentile?)",
        ),
        ("count(*) over ()", "must not use OVER or a sub-query"),
        ("max(sum(hits) over ())", "must not use OVER or a sub-query"),
        ("sum((select 1))", "must not use OVER or a sub-query"),
        ("sum(rank())", "must not use rank, which needs OVER"),
        ("sum(explode(array(hits)))", "must not use explode, which returns several rows"),
        ("sum(hits * rand())", f"must not use rand, {OTHER_RUN}"),
        ("max(now())", f"must not use now, {OTHER_RUN}"),
        ("grouping(page)", "must not use grouping, which has no meaning for windows"),
        ("sum(max(hits))", "must not hold an aggregate within another"),
        ("sum(hits) filter (where hits > max(seq))", "must not hold an aggregate within another"),
        (
            "first(page)",
            f"{ORDER}: {USE_EXTREME} instead of first",
        ),
        (
            "last_value(page)",
            f"{ORDER}: {USE_EXTREME} instead of last_value",
        ),
        (
            "any_value(page)",
            f"{ORDER}: {USE_EXTREME} instead of any_value",
        ),
        ("array_agg(page)", f"{ORDER}: use sort_array(array_agg(page))"),
        ("cast(collect_list(page) as string)", f"{ORDER}: use sort_array(collect_list(page))"),
        ("array_sort(collect_list(page), (a, b) -> 0)", f"{ORDER}: use sort_array(collect_list(page))"),
        ("listagg(page)", f"{ORDER}: use listagg(page) within group (order by page)"),
        (
            "string_agg(page, ',') within group (order by hits)",
            f"{ORDER}: use string_agg(page, ',') within group (order by page)",
        ),
        ("histogram_numeric(hits, 5)", f"{ORDER}: use percentile for an exact distribution"),
        ("sum(hits", "is not SQL: Expecting )"),
        ("sum('hits)", "is not SQL: a quotation is not closed"),
        ("", "is not SQL: it is empty"),
    ],
)
def test_what_is_no_aggregate_of_rows_in_any_order_is_refused(call: str, said: str) -> None:
    assert refusal({"aggregates.total": f'"{call}"'}) == f"aggregates.total {said}, got {call!r} (clicks.toml)"


@pytest.mark.parametrize(
    "call",
    [
        "sum(hits) / count(*)",
        "cast(sum(hits) + 1 as int)",
        "sum(hits) filter (where hits > 1) - sum(hits) filter (where hits <= 1)",
        "case when page = 'a' then sum(hits) end",
        "count(distinct page, seq)",
        "sort_array(collect_list(page))",
        "size(array_agg(page))",
        "element_at(collect_set(page), 1)",
        "listagg(distinct page, ',') within group (order by page desc)",
        "mode() within group (order by hits)",
        "max_by(page, struct(hits, seq))",
        "transform(collect_set(hits), each -> each + 1)",
        "any(hits > 1) and page like any ('a%', 'b%')",
    ],
)
def test_expressions_around_and_between_aggregates_are_taken(call: str) -> None:
    require_columns(definition({"aggregates.total": f'"{call}"'}), SOURCE, "clicks.toml")


def test_a_distinct_aggregate_may_be_kept_for_every_pane() -> None:
    lines = {"aggregates.total": '"count(distinct page)"', "backfill.keep_firings": "true"}

    require_columns(definition(lines), SOURCE, "clicks.toml")


@pytest.mark.parametrize(
    ("call", "in_spark"),
    [
        ("sum(hits) / count(*)", "sum(hits) / count(*)"),
        ("collect_set(page) filter (where is_bot)", "sort_array(collect_set(page) filter (where is_bot))"),
        ("mode(page)", "mode(page, true)"),
        ("max_by(page, hits)", "max_by(page, CASE WHEN (hits) IS NOT NULL THEN struct(hits, page) END)"),
        (
            "spread(hits, seq) filter (where is_bot)",
            "spread(sort_array(collect_list(struct(hits, seq)) FILTER (WHERE is_bot)))",
        ),
    ],
)
def test_spark_gets_aggregates_whose_value_depends_on_no_order(call: str, in_spark: str) -> None:
    own = '{ spread = { function = "tests.house:spread", returns = "double", kind = "aggregate" } }'

    assert spark_aggregates(definition({"aggregates.total": f'"{call}"', "functions": own}))["total"] == in_spark


RESULT: Lines = {"aggregates.total": '"sum(hits)"', "derive_after.share": '"total / clicks"'}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"derive_after.twice": '"2 * hits"'},
            "derive_after.twice names 'hits', which the result does not have, in '2 * hits'",
        ),
        (
            {"derive_after.twice": '"2 * share"'},
            "derive_after.twice names 'share', which the result does not have, in '2 * share'",
        ),
        (
            {"derive_after.twice": '"sum(total)"'},
            "derive_after.twice must not have an aggregate such as sum, got 'sum(total)'",
        ),
        (
            {"derive_after.twice": '"twofold(total)"'},
            (
                "derive_after.twice uses the function twofold, which Spark does not have (custom functions belong"
                " in [functions]), got 'twofold(total)'"
            ),
        ),
        (
            {"having.condition": '"hits > 3"'},
            "having.condition names 'hits', which the result does not have, in 'hits > 3'",
        ),
        (
            {"top": '{ n = 3, by = "hits desc" }'},
            "top.by names 'hits', which the result does not have, in 'hits'",
        ),
        (
            {"top": '{ n = 3, by = "total desc," }'},
            "top.by must be an order such as 'revenue desc, shop', got 'total desc,'",
        ),
        (
            {"top": '{ n = 3, by = "total >" }'},
            "top.by is not SQL: Required keyword: 'expression' missing, got 'total >'",
        ),
        (
            {"top": '{ n = 3, by = "total rows 2 preceding" }'},
            "top.by must be an order such as 'revenue desc, shop', got 'total rows 2 preceding'",
        ),
        (
            {"top": '{ n = 3, by = "total, sum(clicks)" }'},
            "top.by must not have an aggregate such as sum, got 'SUM(clicks)'",
        ),
        (
            {"having.condition": '"share >"'},
            "having.condition is not SQL: Required keyword: 'expression' missing, got 'share >'",
        ),
        (
            {"functions": '{ upper = { function = "a.b:upper", returns = "string" } }'},
            "functions.upper has the name of a function of Spark",
        ),
        (
            {"functions": '{ clean = { function = "a.b:clean", returns = "word" } }'},
            "functions.clean.returns must be a type of Spark SQL such as double, got 'word'",
        ),
    ],
)
def test_expressions_over_the_result_use_its_columns(lines: Lines, said: str) -> None:
    assert refusal({**RESULT, **lines}) == f"{said} (clicks.toml)"


def test_conditions_may_use_every_column_of_the_result() -> None:
    condition = "\"share > 2 and page <> 'x' and record_count > 1 and window_start < window_end\""

    require_columns(definition({**RESULT, "having.condition": condition}), SOURCE, "clicks.toml")


NESTED = {**SOURCE, "payload": "struct<`amount`:double,`user`:struct<`id`:bigint>>", "payload_amount": "int"}


def test_fields_of_structs_are_found_and_replaced_without_a_change_of_the_other_text() -> None:
    text = "percentile_cont(0.5) within group (order by payload.amount) + max(`payload`.user.id) + sum(payload)"
    paths = {".".join(path): "_".join(path) for path in paths_of(text) if len(path) > 1}

    assert paths == {"payload.amount": "payload_amount", "payload.user.id": "payload_user_id"}
    assert replace_paths(text, paths) == (
        "percentile_cont(0.5) within group (order by payload_amount) + max(payload_user_id) + sum(payload)"
    )


def test_a_field_of_a_struct_is_a_column_and_a_field_that_is_not_there_is_named() -> None:
    clicks = definition({"aggregates": '{ total = "sum(payload.amount)" }'})

    require_columns(clicks, NESTED, "clicks.toml")
    assert [column.type for column in value_columns(clicks, NESTED)] == ["double"]
    with pytest.raises(SpecError) as refused:
        require_columns(definition({"aggregates": '{ total = "sum(payload.price)" }'}), NESTED, "clicks.toml")
    assert str(refused.value).startswith(
        "aggregates.total names 'payload.price', which is not a column, in 'sum(payload.price)' (clicks.toml)"
    )


@pytest.mark.parametrize(
    "lines", [{"aggregates.total": '"max(timing)"'}, {"source.key": '["timing"]'}, {"source.key": '["Timing"]'}]
)
def test_a_column_that_a_run_would_hide_behind_one_of_its_own_is_refused(lines: Lines) -> None:
    used = "Timing" if "Timing" in str(lines) else "timing"

    with pytest.raises(SpecError) as refused:
        require_columns(definition(lines), {**SOURCE, used: "string"}, "clicks.toml")

    assert str(refused.value) == (
        f"column {used!r} cannot be used, because backstream reserves this name (clicks.toml)"
    )


def test_the_columns_of_partition_and_order_may_be_called_as_a_run_calls_them() -> None:
    order = '["source_partition", "arrival_seq"]'
    lines = {
        "source.partition": '"source_partition"',
        "source.sequence": '"arrival_seq"',
        "source.deduplicate_on": order,
    }
    source = {**SOURCE, "source_partition": "string", "arrival_seq": "bigint"}

    require_columns(definition(lines), source, "clicks.toml")
    with pytest.raises(SpecError) as refused:
        require_columns(definition({"source.deduplicate_on": order}), source, "clicks.toml")
    assert str(refused.value).splitlines()[0] == "2 problems in clicks.toml"


@pytest.mark.parametrize(
    ("call", "narrowed"),
    [
        ("count(*)", "count(*) FILTER (WHERE timing = 'late')"),
        ("avg(hits / 60)", "avg(hits / 60) FILTER (WHERE timing = 'late')"),
        ("count(distinct page)", "count(distinct page) FILTER (WHERE timing = 'late')"),
        (
            "cast(avg(price) as decimal(10,4))",
            "cast(avg(price) FILTER (WHERE timing = 'late') as decimal(10,4))",
        ),
        (
            "sum(hits) filter (where is_bot or hits > 2) / count(*)",
            (
                "sum(hits) filter (where (is_bot or hits > 2) AND (timing = 'late'))"
                " / count(*) FILTER (WHERE timing = 'late')"
            ),
        ),
        (
            "percentile_cont(0.5) within group (order by hits)",
            "percentile_cont(0.5) within group (order by hits) FILTER (WHERE timing = 'late')",
        ),
        (
            "filter(collect_set(hits), each -> each > sum(hits))",
            (
                "filter(collect_set(hits) FILTER (WHERE timing = 'late'),"
                " each -> each > sum(hits) FILTER (WHERE timing = 'late'))"
            ),
        ),
    ],
)
def test_an_aggregate_over_some_rows_keeps_the_text_around_it(call: str, narrowed: str) -> None:
    assert with_filter(call, "timing = 'late'") == narrowed


def test_a_run_reads_the_columns_that_keys_duplicates_and_aggregates_name() -> None:
    clicks = definition(
        {
            "source.event_time": '"coalesce(happened_at, arrived_at)"',
            "source.sequence": '"seq"',
            "source.deduplicate_on": '["seq"]',
            "watermark.strategy": '"punctuated"',
            "watermark.marker": "\"timing = 'end'\"",
            "aggregates.total": '"sum(hits)"',
        }
    )

    assert payload_columns(clicks) == ["hits", "page", "seq"]
    assert source_columns(clicks) == ["arrived_at", "happened_at", "hits", "page", "seq", "timing"]
