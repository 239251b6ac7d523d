"""Values of a definition that cannot be, each with all that is said against it."""

from __future__ import annotations

import pytest
from tests.definition.clicks import Lines, refusal, written

from backstream.definition.loader import parse_definition


@pytest.mark.parametrize(
    ("text", "got"), [('"1 hour"', "'1 hour'"), ('"h"', "'h'"), ('""', "''"), ("60", "60"), ("true", "True")]
)
def test_a_duration_without_a_valid_unit_is_rejected(text: str, got: str) -> None:
    assert refusal({"window.size": text}) == (
        f'window.size must be a duration such as "1h", "30m" or "200ms", got {got} (clicks.toml)'
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"window.size": '"0s"'}, "window.size must be positive, got 0 ms"),
        ({"window.size": '"-1h"'}, "window.size must be positive, got -3600000 ms"),
        (
            {"window.kind": '"sliding"', "window.slide": '"0m"'},
            "window.slide must be positive, got 0 ms",
        ),
        ({"backfill.chunk": '"0d"'}, "backfill.chunk must be positive, got 0 ms"),
        ({"lateness.allowed": '"-1m"'}, "lateness.allowed must not be negative, got -60000 ms"),
        ({"watermark.delay": '"-1ms"'}, "watermark.delay must not be negative, got -1 ms"),
        (
            {"lateness.allowed": '"999999999999d"'},
            "lateness.allowed must be at most 36500d, got 999999999999d",
        ),
    ],
)
def test_a_duration_is_within_what_makes_sense(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"window.kind": '"hopping"'},
            "window.kind must be tumbling, sliding, session or cumulate, got 'hopping'",
        ),
        (
            {"source.format": '"xml"'},
            "source.format must be 'parquet', 'json', 'csv', 'orc', 'avro' or 'iceberg', got 'xml'",
        ),
        (
            {"backfill.mode": '"stream"'},
            "backfill.mode must be 'recompute' or 'replay', got 'stream'",
        ),
        (
            {"backfill.publish": '"last"'},
            "backfill.publish must be 'first', 'live' or 'final', got 'last'",
        ),
        (
            {"watermark.strategy": '"bounded"'},
            (
                "watermark.strategy must be 'none', 'monotonous', 'bounded_out_of_orderness', 'punctuated', "
                "'time_lag', 'custom', 'flink_sql' or 'structured_streaming', got 'bounded'"
            ),
        ),
        (
            {"quality.expected_partitions": '"all"'},
            "quality.expected_partitions must be \"observed\" or a list of source partitions, got 'all'",
        ),
        (
            {"quality.expected_partitions": "[1, 2]"},
            'quality.expected_partitions must be "observed" or a list of source partitions, got [1, 2]',
        ),
    ],
)
def test_a_choice_names_what_there_is_to_choose_from(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"window": '"1h"'}, "window must be a table, got '1h'"),
        ({"source": '"/data"'}, "source must be a table, got '/data'"),
        ({"source.key": '"page"'}, "source.key must be a list, got 'page'"),
        ({"source.path": "3"}, "source.path must be text or a list of texts, got 3"),
        ({"source.key": "[1]"}, "source.key.0 must be text, got 1"),
        ({"aggregates.clicks": "1"}, "aggregates.clicks must be text, got 1"),
        (
            {"quality.late_ratio": '{ warn = "5%", fail = 1 }'},
            "quality.late_ratio.warn must be a number, got '5%'",
        ),
    ],
)
def test_a_value_of_another_type_is_named(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize("name", ["my__clicks", "Clicks", "2clicks", "clicks_", "../clicks", ""])
def test_a_dataset_has_a_name_that_leaves_room_for_its_side_tables(name: str) -> None:
    assert refusal({"name": f'"{name}"'}) == (
        f"name must be lower-case words, joined by single underscores, got {name!r} (clicks.toml)"
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"aggregates.Total": '"sum(n)"'},
            "aggregates.Total must be lower-case words, joined by single underscores, got 'Total'",
        ),
        (
            {"aggregates.page": '"max(page)"'},
            "aggregates.page has the name of another result column",
        ),
        (
            {"aggregates.window_start": '"min(happened_at)"'},
            "aggregates.window_start has the name of another result column",
        ),
        (
            {"source.key": '["source_partition"]'},
            "source.key 'source_partition' has the name of another result column",
        ),
        (
            {"source.key": '["page", "page"]'},
            "source.key must name each column once, got 'page' more than once",
        ),
        (
            {"top": '{ n = 1, by = "clicks", rank = "clicks" }'},
            "top.rank 'clicks' has the name of another result column",
        ),
        (
            {"top": '{ n = 1, by = "clicks", partition_by = ["user"] }'},
            "top.partition_by must name columns of source.key, got 'user'",
        ),
        ({"top": '{ n = 0, by = "clicks" }'}, "top.n must be greater than or equal to 1, got 0"),
        ({"top": '{ n = 1, by = "clicks", ties = "drop" }'}, "top.ties must be 'break' or 'keep', got 'drop'"),
    ],
)
def test_columns_of_the_result_have_names_of_their_own(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"window.size": '"7h"', "backfill.chunk": '"1d"'},
            "backfill.chunk must be a multiple of the window's 7h, got 1d",
        ),
        (
            {"backfill.chunk": '"36h"'},
            "backfill.chunk must be whole days (the lake's unit), got 1d12h",
        ),
        ({"window.offset": '"1h"'}, "window.offset must be smaller than 1h, got 1h"),
        ({"window.offset": '"-90m"'}, "window.offset must be smaller than 1h, got -1h30m"),
        (
            {"window.kind": '"sliding"', "window.slide": '"30m"', "window.offset": '"45m"'},
            "window.offset must be smaller than 30m, got 45m",
        ),
    ],
)
def test_windows_and_chunks_fit_into_each_other(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            "{ warn = 0.5, fail = 0.2 }",
            "quality.late_ratio warn must not be above fail, got warn = 0.5 and fail = 0.2",
        ),
        (
            "{ warn = 0.5, fail = 20 }",
            "quality.late_ratio.fail must be less than or equal to 1, got 20",
        ),
        (
            "{ warn = -0.5, fail = 1 }",
            "quality.late_ratio.warn must be greater than or equal to 0, got -0.5",
        ),
        (
            "{ warn = nan, fail = 1 }",
            "quality.late_ratio.warn must be less than or equal to 1, got nan",
        ),
    ],
)
def test_limits_must_be_shares_and_warn_must_not_exceed_fail(limits: str, said: str) -> None:
    assert refusal({"quality.late_ratio": limits}) == f"{said} (clicks.toml)"


INSTANT = "must be an instant such as 2013-02-01 or 2013-02-01T05:00Z"


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (
            '["2014-01-01", "2013-01-01"]',
            "event_time_range must begin before it ends, got 2014-01-01T00:00Z to 2013-01-01T00:00Z",
        ),
        ('["once", "2013-01-01"]', f"event_time_range.0 {INSTANT}, got 'once'"),
        ('["2012-01-01", 1356998400000]', f"event_time_range.1 {INSTANT}, got '1356998400000'"),
        ('["2012-01-01"]', "event_time_range.1 is missing"),
    ],
)
def test_event_times_are_bounded_by_two_instants(span: str, said: str) -> None:
    assert refusal({"source.event_time_range": span}) == f"source.{said} (clicks.toml)"


def test_a_local_time_without_zone_is_refused_with_what_to_write() -> None:
    assert refusal({"watermark.clock_start": '"2013-02-01T00:00"'}) == (
        "watermark.clock_start must name its time zone, got the local time '2013-02-01T00:00' (clicks.toml)\n\n"
        "hint: write 2013-02-01T00:00Z for UTC, or 2013-02-01T00:00-05:00 for New York in winter"
    )


@pytest.mark.parametrize("text", ['"2013-02-01T05:00Z"', "2013-02-01T00:00:00-05:00"])
def test_an_instant_may_be_text_or_a_time_of_toml(text: str) -> None:
    clicks = parse_definition(
        written({"watermark.strategy": '"monotonous"', "watermark.clock_start": text}), "clicks.toml"
    )

    assert clicks.watermark.clock_start == 1_359_694_800_000


BOUNDED = {"watermark.strategy": '"bounded_out_of_orderness"'}
BOUNDED_INSTEAD = "got 5s: set strategy to 'bounded_out_of_orderness'"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            {"watermark.delay": '"5s"'},
            f"watermark.delay has no meaning with strategy = 'none', {BOUNDED_INSTEAD}",
        ),
        (
            {"watermark": '{ strategy = "monotonous", delay = "5s" }'},
            f"watermark.delay has no meaning with strategy = 'monotonous', {BOUNDED_INSTEAD}",
        ),
        (
            {"watermark.idle_timeout": '"1m"'},
            "watermark.idle_timeout has no meaning with strategy = 'none', got 1m",
        ),
        (
            BOUNDED | {"watermark.idle_timeout": '"1m"', "watermark.emit_interval": '"0s"'},
            "watermark.idle_timeout has no meaning with emit_interval = '0s', got 1m: idleness is found at ticks",
        ),
        (
            {"lateness.allowed": '"1h"'},
            "lateness.allowed has no meaning without watermarks: set watermark.strategy, got 1h",
        ),
        (
            {"source.arrival_time": '"at"', "time": '"processing"', "lateness.allowed": '"1h"'},
            'lateness.allowed has no meaning with time = "processing", in which no record is late, got 1h',
        ),
        *(
            (
                {f"watermark.{key}": value},
                f"watermark.{key} has no meaning without watermarks: set watermark.strategy",
            )
            for key, value in (
                ("emit_interval", '"1s"'),
                ("topology", '"operator"'),
                ("finished_partitions", '"release"'),
                ("clock_start", '"2024-03-01T00:00Z"'),
            )
        ),
        *(
            (
                BOUNDED | {"watermark.emit": '"micro_batch"', f"watermark.{key}": value},
                f"watermark {key} has no meaning with emit = 'micro_batch', with one maximum of all partitions",
            )
            for key, value in (
                ("topology", '"operator"'),
                ("finished_partitions", '"release"'),
                ("idle_timeout", '"1m"'),
            )
        ),
        (
            {
                "watermark.strategy": '"flink_sql"',
                "watermark.topology": '"operator"',
                "watermark.emit": '"on_event"',
            },
            (
                "watermark emit = 'on_event' is not possible with strategy = 'flink_sql' and topology ="
                " 'operator': scan.watermark.emit.strategy is an option of sources that make watermarks, e.g.,"
                " Kafka"
            ),
        ),
        (
            {"watermark.strategy": '"flink_sql"', "watermark.emit": '"micro_batch"'},
            "watermark emit = 'micro_batch' is not possible with strategy = 'flink_sql': Flink has no batches",
        ),
        (
            {"source.arrival_time_unit": '"ms"'},
            "source arrival_time_unit has no meaning without arrival_time",
        ),
    ],
)
def test_a_key_without_effect_is_refused(lines: Lines, error: str) -> None:
    assert refusal(lines) == f"{error} (clicks.toml)"
