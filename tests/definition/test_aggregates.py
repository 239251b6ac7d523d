"""A definition against the columns of its source."""

from __future__ import annotations

import pytest
from tests.definition.clicks import SOURCE, Lines, aggregating, definition

from backstream.definition.aggregates import payload_columns, require_columns, source_columns, with_filter
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
        ({"source.event_time": '"at"'}, "source.event_time names 'at', which is not a column, in 'at'"),
        (
            {"source.event_time": '"timestamp_millis(at_ms)"'},
            "source.event_time names 'at_ms', which is not a column, in 'timestamp_millis(at_ms)'",
        ),
        (
            {"source.arrival_time": '"received_at"'},
            "source.arrival_time names 'received_at', which is not a column, in 'received_at'",
        ),
        (
            {"watermark.strategy": '"punctuated"', "watermark.marker": '"is_flush"'},
            "watermark.marker names 'is_flush', which is not a column, in 'is_flush'",
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
        "\n  source.event_time names 'at', which is not a column, in 'at'"
        "\n  aggregates.total names 'delay', which is not a column, in 'sum(delay)'" + HINT
    )


def test_of_a_wide_source_twenty_columns_are_named() -> None:
    wide = {f"column_{number}": "int" for number in range(33)}

    with pytest.raises(SpecError) as refused:
        require_columns(definition({}), wide, "clicks.toml")

    assert str(refused.value).splitlines()[-1].endswith(", column_18, column_19 and 13 more")


ONE_CALL = "must be one aggregate call such as count(*) or avg(x)"
ORDER = "depends on the order of rows, which a recomputation does not keep"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("hits", ONE_CALL),
        ("upper(page)", ONE_CALL),
        ("sum(hits) + 1", ONE_CALL),
        ("sum(hits) / count(*)", ONE_CALL),
        ("cast(sum(hits) + 1 as int)", ONE_CALL),
        ("count()", ONE_CALL),
        ("my_total(hits)", ONE_CALL),
        ("count(*) over ()", ONE_CALL),
        ("sum(hits) filter (where hits > 1)", ONE_CALL),
        ("max(sum(hits) over ())", "must not use OVER or a sub-query"),
        ("sum((select 1))", "must not use OVER or a sub-query"),
        ("sum(max(hits))", "must not hold an aggregate within another"),
        ("first(page)", ORDER),
        ("last_value(page)", ORDER),
        ("any_value(page)", ORDER),
        ("cast(collect_list(page) as string)", ORDER),
        ("cast(listagg(page) as string)", ORDER),
        ("sum(hits", "is not SQL: Expecting )"),
        ("sum('hits)", "is not SQL: a quotation is not closed"),
        ("", "is not SQL: it is empty"),
    ],
)
def test_what_is_no_aggregate_of_rows_in_any_order_is_refused(call: str, said: str) -> None:
    assert refusal({"aggregates.total": f'"{call}"'}) == f"aggregates.total {said}, got {call!r} (clicks.toml)"


def test_a_distinct_aggregate_cannot_be_kept_for_every_pane() -> None:
    call = "count(distinct page)"

    require_columns(aggregating(call), SOURCE, "clicks.toml")
    assert refusal({"aggregates": f'{{ total = "{call}" }}', "backfill.keep_firings": "true"}) == (
        "aggregates.total cannot be distinct with backfill.keep_firings = true, "
        "got 'count(distinct page)' (clicks.toml)"
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
        ("count(*)", "COUNT(*) FILTER(WHERE timing = 'late')"),
        ("avg(hits / 60)", "AVG(hits / 60) FILTER(WHERE timing = 'late')"),
        ("count(distinct page)", "COUNT(DISTINCT page) FILTER(WHERE timing = 'late')"),
        (
            "cast(avg(price) as decimal(10,4))",
            "CAST(AVG(price) FILTER(WHERE timing = 'late') AS DECIMAL(10, 4))",
        ),
        ("try_cast(max(page) as int)", "TRY_CAST(MAX(page) FILTER(WHERE timing = 'late') AS INT)"),
    ],
)
def test_an_aggregate_over_some_rows_keeps_its_cast_around_it(call: str, narrowed: str) -> None:
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
