"""Check that unread input files appear in verdict, report and the search for stale days."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.source.days import BAD_PAGE, SKIP, damage_pages, write_days
from tests.workflow.history import CLICKS, COLUMNS, at, planned, write_clicks, write_definition

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import load_definition, parse_definition
from backstream.errors import QualityError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.report.delay_histogram import count_delays
from backstream.runs.home import Home
from backstream.runs.input_notes import REMOVED_HINT
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, CheckOutcome, Verdict
from backstream.source.files import inspect_files, list_source_files
from backstream.source.key_index import KeyIndex, KeySlice
from backstream.spark.engine import SparkEngine
from backstream.workflow.audit import audit_run
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.publish import publish_run
from backstream.workflow.report import report_run

LENIENT = "\n[quality]\nmissing_ratio = { warn = 1.0, fail = 1.0 }\n"
WITHOUT_SEQUENCE = CLICKS.replace('sequence = "seq"\n', "").replace('deduplicate_on = ["origin", "seq"]\n', "")
SKIPPED, GONE = "no input file was skipped", "every input file of earlier runs still exists"


def run(spark: SparkSession, plan: Plan) -> Audit:
    """Replay, audit, publish and report a run."""
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    audit = audit_run(plan)
    publish_run(plan)
    report_run(plan)
    return audit


def outcomes(audit: Audit) -> dict[str, tuple[CheckOutcome, str]]:
    return {check.name: (check.outcome, check.observed) for check in audit.checks if check.name in (SKIPPED, GONE)}


def test_a_skipped_file_is_a_warning_in_the_report_and_makes_no_day_stale(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_days(tmp_path, 1)
    write_clicks(tmp_path / "data/1b.parquet", [(at("1 05:30"), at("1 07:01"), "A", 9, "home")])
    damage_pages(tmp_path / "data/1b.parquet")
    definition = write_definition(tmp_path, SKIP + LENIENT)

    plan = planned(tmp_path, definition)
    audit = run(spark, plan)

    assert audit.verdict is Verdict.WARN
    assert outcomes(audit) == {
        SKIPPED: (CheckOutcome.WARN, "files skipped: 1"),
        GONE: (CheckOutcome.PASS, "files removed: 0"),
    }
    report = plan.folder.report.read_text()
    assert f"{tmp_path}/data/1b.parquet, 1 row: {BAD_PAGE}".replace("'", "&#39;") in report
    assert find_stale_days(definition, Home(tmp_path / "home")).days == ()


def test_a_removed_file_of_an_earlier_run_fails_the_gate_unless_a_user_overrides_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_days(tmp_path, 1)
    write_clicks(tmp_path / "data/1b.parquet", [(at("1 07:00"), at("1 07:01"), "A", 9, "home")])
    definition = write_definition(tmp_path, CLICKS + LENIENT)
    assert outcomes(run(spark, planned(tmp_path, definition)))[GONE] == (CheckOutcome.PASS, "files removed: 0")
    (tmp_path / "data/1b.parquet").unlink()

    plan = planned(tmp_path, definition)
    with pytest.raises(QualityError) as caught:
        run(spark, plan)

    first, removed, _, hint = str(caught.value).splitlines()
    assert first.startswith(f'failed the check "{GONE}"; ')
    assert removed == f"  removed: {tmp_path}/data/1b.parquet; {REMOVED_HINT}"
    assert hint == f"hint: the report is at {plan.folder.report}"
    assert (
        f"1 file that published runs of this range read: {tmp_path}/data/1b.parquet"
        in plan.folder.report.read_text()
    )
    since_ms, until_ms = instant_ms("2024-03-01", "since"), instant_ms("2024-03-02", "until")
    overridden = plan_run(
        PlanRequest(
            definition,
            Interval(since_ms, until_ms),
            trigger="test",
            gate_override="compacted",
            home=Home(tmp_path / "home"),
        )
    )
    assert run(spark, overridden).verdict is Verdict.FAIL
    assert overridden.folder.publication.exists()


def test_equal_parquet_files_fail_the_gate_if_the_source_has_no_sequence(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_days(tmp_path, 1)
    (first,) = (tmp_path / "data").glob("*.parquet")
    copied = first.with_name("second_delivery.parquet")
    shutil.copy(first, copied)
    definition = write_definition(tmp_path, CLICKS + LENIENT)
    assert not planned(tmp_path, definition).equal_files  # duplicates are removed
    definition = write_definition(tmp_path, WITHOUT_SEQUENCE + LENIENT)
    plan = planned(tmp_path, definition)
    assert plan.equal_files.first == (f"{copied} has the content of {first}",)
    with pytest.raises(
        QualityError, match=r"(?s)^failed the check .*no input file has the content of another one.*equal files: "
    ):
        run(spark, plan)


def test_an_added_damaged_file_makes_the_days_stale_that_it_may_contain(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_days(tmp_path, 1, 2)
    definition = write_definition(tmp_path, CLICKS + LENIENT)
    run(spark, planned(tmp_path, definition, until="2024-03-03"))
    write_clicks(tmp_path / "data/2b.parquet", [(at("2 05:30"), at("2 07:01"), "A", 9, "home")])
    damage_pages(tmp_path / "data/2b.parquet")

    staleness = find_stale_days(definition, Home(tmp_path / "home"))

    assert [day.day_ms for day in staleness.days] == [instant_ms("2024-03-02", "day")]


def load_slices(folder: Path, text: str) -> list[list[KeySlice]]:
    definition = load_definition(write_definition(folder, text))
    inspection = inspect_files(list_source_files(definition.source, "test"), definition.source)
    index = KeyIndex.from_definition(definition, Home(folder / "home"))
    return [index.load_slices(file) for file in inspection.inputs]


def test_records_are_counted_for_all_column_types(tmp_path: Path) -> None:
    row = (at("1 05:00"), at("1 05:01"), "A", 0, 7)
    write_clicks(tmp_path / "data/a.parquet", [row], {**COLUMNS, "page": pa.int32()})
    write_clicks(tmp_path / "data/b.parquet", [row], {**COLUMNS, "page": pa.int64()})
    write_clicks(tmp_path / "data/c.parquet", [row[:4]], {name: COLUMNS[name] for name in list(COLUMNS)[:4]})
    timeless = {
        name: pa.int16() if name == "page" else kind for name, kind in COLUMNS.items() if name != "happened_at"
    }
    write_clicks(tmp_path / "data/d.parquet", [row[1:]], timeless)
    write_clicks(tmp_path / "data/e.parquet", [row], {**COLUMNS, "page": pa.int8()})
    file = tmp_path / "data/e.parquet"
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)

    at_ms = instant_ms("2024-03-01T05:00Z", "at")
    seven, none = [KeySlice("[7]", at_ms, at_ms, 1)], [KeySlice("[null]", at_ms, at_ms, 1)]
    assert load_slices(tmp_path, CLICKS) == [seven, seven, none, [], seven]


def test_seals_and_delays_ignore_files_that_are_damaged_or_lack_a_column(tmp_path: Path) -> None:
    write_days(tmp_path, 1, 3)
    unarrived = {name: kind for name, kind in COLUMNS.items() if name != "arrived_at"}
    write_clicks(tmp_path / "data/1b.parquet", [(at("1 06:00"), "A", 7, "home")], unarrived)
    write_days(tmp_path, 4)
    damage_pages(tmp_path / "data/4.parquet")

    plan = planned(tmp_path, write_definition(tmp_path, CLICKS + '\n[backfill]\nmax_arrival_delay = "6h"\n'))

    delays, why = count_delays(plan, parse_definition(plan.definition, "plan"))
    assert delays is not None, why
    assert delays.records == 1
