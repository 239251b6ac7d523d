"""Check whole runs with records that cannot be read, occur twice, or have no aggregate."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.runs import replay_chunk
from tests.workflow.history import CLICKS, COLUMNS, at, planned, write_clicks, write_definition

from backstream.errors import QualityError, SpecError
from backstream.runs.plan import Plan
from backstream.workflow.audit import audit_run
from backstream.workflow.publish import publish_run

pytestmark = pytest.mark.slow

TEXTS = {**COLUMNS, "happened_at": pa.string()}
HOURS = range(24)


def run(spark: SparkSession, plan: Plan) -> str:
    """Run a plan, publish it if allowed, and return the summary of its audit."""
    for chunk in plan.chunks:
        replay_chunk(spark, plan, chunk)
    audit = audit_run(plan)
    publish_run(plan)
    return audit.summary


def refusal(spark: SparkSession, plan: Plan) -> str:
    with pytest.raises(QualityError) as caught:
        run(spark, plan)
    assert not plan.folder.publication.exists()
    return str(caught.value).partition("\n")[0]


def test_half_of_the_records_unreadable_is_refused_with_reasons_and_an_example(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(f"2024-03-01T{hour:02}:00:00Z", at(f"1 {hour:02}:01"), "A", hour, "home") for hour in HOURS]
    rows += [(f"2024-03-01 {hour}h", at(f"1 {hour:02}:01"), "A", 100 + hour, "home") for hour in HOURS]
    write_clicks(tmp_path / "data/a.parquet", rows, TEXTS)

    assert refusal(spark, planned(tmp_path, write_definition(tmp_path))) == (
        "50 % of the records could not be read (unparsable_event_time 24; for example '2024-03-01 0h' in "
        "a.parquet); all 24 windows have events: nothing was published"
    )


def test_one_unreadable_record_of_a_file_of_seven_days_does_not_block_a_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    days = [(day, hour) for day in range(1, 8) for hour in HOURS]
    rows = [
        (f"2024-03-{day:02}T{hour:02}:00:00Z", at(f"{day} {hour:02}:01"), "A", day * 100 + hour, "home")
        for day, hour in days
    ]
    write_clicks(tmp_path / "data/a.parquet", [*rows, ("soon", at("7 23:02"), "A", 999, "home")], TEXTS)

    assert run(spark, planned(tmp_path, write_definition(tmp_path))) == (
        "0.6 % of the records could not be read (unparsable_event_time 1; for example 'soon' in a.parquet); "
        "all 24 windows have events"
    )


def test_no_record_readable_is_refused_with_reasons_and_an_example(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(f"{hour}h", at(f"1 {hour:02}:01"), "A", hour, "home") for hour in HOURS]
    write_clicks(tmp_path / "data/a.parquet", rows, TEXTS)

    error = refusal(spark, planned(tmp_path, write_definition(tmp_path)))

    assert error.startswith(
        'failed the check "the run has at least one window"; no record could be read (unparsable_event_time 24; '
    )
    assert "for example '0h' in a.parquet" in error


def test_a_run_with_all_records_repeated_is_refused_without_deduplication(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(at(f"1 {hour:02}:00"), at(f"1 {hour:02}:01"), "A", hour, "home") for hour in HOURS]
    for name in "ab":
        write_clicks(tmp_path / f"data/{name}.parquet", rows)
    once = write_definition(tmp_path, CLICKS.replace('deduplicate_on = ["origin", "seq"]\n', ""))

    assert refusal(spark, planned(tmp_path, once)) == (
        "24 positions occur more than once (A 0 2 times, A 1 2 times, A 2 2 times); all 24 windows have events: "
        "nothing was published"
    )
    assert run(spark, planned(tmp_path, write_definition(tmp_path))) == "all 24 windows have events"


def test_a_run_that_would_take_most_rows_away_is_refused_with_both_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(at(f"1 {hour:02}:00"), at(f"1 {hour:02}:01"), "A", hour, "home") for hour in HOURS]
    write_clicks(tmp_path / "data/a.parquet", rows)
    lenient = CLICKS + "\n[quality]\nmissing_ratio = { warn = 1.0, fail = 1.0 }\n"
    definition = write_definition(tmp_path, lenient)
    run(spark, planned(tmp_path, definition))
    write_clicks(tmp_path / "data/a.parquet", rows[:11])

    assert "11 rows would replace 24" in refusal(spark, planned(tmp_path, definition))
    write_clicks(tmp_path / "data/a.parquet", rows[:12])
    run(spark, planned(tmp_path, definition))


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        (
            "sum(seq)",
            "[ARITHMETIC_OVERFLOW] overflow. Use 'try_add' to tolerate overflow and return NULL instead.",
        ),
        (
            "sum(cast(seq as decimal(50,2)))",
            "[DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION] Decimal precision 50 exceeds max precision 38.",
        ),
    ],
)
def test_an_error_names_the_reason_why_an_aggregate_has_no_value(
    spark: SparkSession, tmp_path: Path, aggregate: str, reason: str
) -> None:
    rows = [(at(f"1 05:{minute:02}"), at(f"1 06:{minute:02}"), "A", 2**62 + minute, "home") for minute in range(3)]
    write_clicks(tmp_path / "data/a.parquet", rows)
    plan = planned(tmp_path, write_definition(tmp_path, clicks=f'"{aggregate}"'))

    with pytest.raises(SpecError) as caught:
        replay_chunk(spark, plan, plan.chunks[0])

    first, _, hint = str(caught.value).partition("\n\nhint: ")
    assert first == f"could not compute chunk 0000 of {plan.run_id}: {reason}"
    assert hint.startswith(f"change the expression in {tmp_path / 'clicks.toml'}: ")
