"""A wrong setting of a source ends with one sentence: the key, the value, the file, and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backstream.errors import BackstreamError
from backstream.runs.home import Home
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

CAST = "cast to a wider type, e.g., decimal(38,0), or use a function that returns null, e.g., try_cast"
WRONG = {
    'where = "cast(k as int) = 1"': (
        'The value \'a\' of the type "STRING" cannot be cast to "INT" because it is malformed',
        "source.where",
    ),
    'derive = { x = "1 / (id - 1)" }\nwhere = "x > 0"': ("Division by zero", "source.derive.x"),
    "where = \"regexp_extract(k, '[') = 1\"": ("`regexp` in `regexp_extract` is invalid: '['", "source"),
    'event_time = "make_timestamp(2024, 13, 1, 0, 0, 0)"': ("Invalid value for MonthOfYear", "source.event_time"),
    "event_time = \"to_timestamp(ts, 'YYYY')\"": ("Fail to recognize 'YYYY' pattern", "source.event_time"),
    "event_time = \"from_utc_timestamp(ts, 'Mars')\"": ("The timezone: Mars is invalid", "source.event_time"),
    'where = "id"': ("source.where must be true or false, got bigint from 'id'", ""),
    'options = { compression = "foo" }': ("The codec foo is not available", "source.options.compression"),
    'options = { maxColumns = "x" }': ("maxColumns should be an integer. Found x", "source.options.maxColumns"),
    'options = { timeZone = "Mars" }': ("The timezone: Mars is invalid", "source.options.timeZone"),
    'options = { unescapedQuoteHandling = "X" }': ("No enum constant", "source.options.unescapedQuoteHandling"),
    'options = { ignoreLeadingWhiteSpace = "x" }': (
        "source options.ignoreLeadingWhiteSpace must be true or false, got 'x'",
        "",
    ),
    'options = { sep = "" }': ("source options.sep must not be empty", ""),
    'options = { quote = "ab" }': ("source options.quote must be one character or empty, got 'ab'", ""),
    'columns = { id = "decimal(50,2)", k = "string", ts = "string" }': (
        "Decimal precision 50 exceeds max precision 38",
        "source.columns.id",
    ),
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_wrong_setting_is_one_sentence(spark: SparkSession, tmp_path: Path, setting: str) -> None:
    reason, key = WRONG[setting]
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("1,a,2024-03-01T08:00:00Z\n2,b,2024-03-01T09:00:00Z\n")
    keys = {"event_time": '"ts"', "columns": '{ id = "bigint", k = "string", ts = "string" }'}
    given = dict(line.split(" = ", 1) for line in setting.splitlines())
    lines = "\n".join(f"{name} = {value}" for name, value in {**keys, **given}.items())
    definition = tmp_path / "orders.toml"
    definition.write_text(
        f'name = "orders"\n[source]\nformat = "csv"\npath = "{tmp_path}/data"\nkey = ["k"]\n{lines}\n'
        '[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nn = "count(*)"\n'
    )

    with pytest.raises(BackstreamError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    message = str(caught.value)
    assert reason in message
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 3
    assert f"({definition}{f', {key}' if key else ''})" in message.splitlines()[0]
    assert not list(tmp_path.glob("home/prepared/*/*/batch-*"))


def test_the_message_has_the_value_the_key_and_a_remedy(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,2024-03-01T08:00:00Z\n")
    definition = tmp_path / "orders.toml"
    definition.write_text(
        f'name = "orders"\n[source]\nformat = "csv"\npath = "{tmp_path}/a.csv"\nevent_time = "ts"\n'
        'where = "cast(k as int) = 1"\ncolumns = { k = "string", ts = "string" }\n'
        '[window]\nkind = "tumbling"\nsize = "1h"\n[aggregates]\nn = "count(*)"\n'
    )

    with pytest.raises(BackstreamError) as caught:
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    assert str(caught.value) == (
        f"cannot prepare {tmp_path}/a.csv: [CAST_INVALID_INPUT] The value 'a' of the type \"STRING\" cannot be"
        ' cast to "INT" because it is malformed. Correct the value as per the syntax, or change its target type.'
        " Use `try_cast` to tolerate malformed input and return NULL instead. in 'cast(k as int)'"
        f" ({definition}, source.where)\n\nhint: {CAST}"
    )
