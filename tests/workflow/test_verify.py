"""Explain and verify windows that were published without Spark: the reference engine computes them again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import Click, publish_counts, stage_counts
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.definition.loader import parse_definition
from backstream.errors import SpecError
from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.windows import TimeWindow
from backstream.lake.reader import load_rows
from backstream.native.raw_input import RawInput, Target
from backstream.native.recomputed_aggregates import parse_recomputed
from backstream.quality.audit_frame import audit_frame
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, CheckOutcome, Receipt, Verdict
from backstream.variables import HOME_VARIABLE
from backstream.workflow.explain import explain_row, explain_window
from backstream.workflow.recomputation.values import aggregate_values, are_equal, rounding_error
from backstream.workflow.verify import check_staged_sample, receipt_text, verify_run

SLIDING = CLICKS.replace('kind = "tumbling"\nsize = "1h"', 'kind = "sliding"\nsize = "2h"\nslide = "1h"')
CUMULATE = CLICKS.replace('kind = "tumbling"\nsize = "1h"', 'kind = "cumulate"\nsize = "6h"\nstep = "1h"')
SESSION = CLICKS.replace('kind = "tumbling"\nsize = "1h"', 'kind = "session"\ngap = "40m"')
PAGES = ("home", "help")


def clicks() -> list[Click]:
    """Return clicks of a day, with a duplicate and some records of the next day."""
    found = [
        (
            at(f"1 {minute // 60:02}:{minute % 60:02}"),
            at(f"1 {minute // 60:02}:{minute % 60:02}"),
            "A",
            minute,
            page,
        )
        for number, minute in enumerate(range(0, 1_400, 23))
        for page in [PAGES[number * number % 3 % 2]]
    ]
    return [
        *found,
        (found[5][0], at("1 09:00"), *found[5][2:]),
        (at("2 00:10"), at("2 00:10"), "A", 9_000, "home"),
    ]


@dataclass
class Published:
    """A published day."""

    folder: Path
    plan: Plan
    definition: Path

    def verify(self, sample: int = 30, seed: int = 1) -> Receipt:
        """Return the receipt of a verification."""
        return verify_run(self.plan, sample, seed)


def publish(
    folder: Path, rows: Sequence[Click], text: str = CLICKS, counted: Sequence[Click] | None = None
) -> Published:
    """Publish the counts of a day; `counted` are the rows that are counted, by default those in the file."""
    write_clicks(folder / "data/a.parquet", rows)
    definition = write_definition(folder, text)
    plan = planned(folder, definition)
    publish_counts(plan, rows if counted is None else counted)
    hours = pd.date_range("2024-03-01", periods=24, freq="h", tz="UTC")
    metrics = pd.DataFrame(
        {"window_start": hours, "window_end": hours + pd.Timedelta("1h"), "source_partition": "A"}
    )
    counts = dict.fromkeys(("events", "on_time"), 1) | dict.fromkeys(("late", "dropped", "expired"), 0)
    frame = audit_frame(plan, parse_definition(plan.definition, "plan"), metrics.assign(**counts))
    frame.to_parquet(plan.folder.audit_frame)
    return Published(folder, plan, definition)


@pytest.mark.parametrize(
    "text", [CLICKS, SLIDING, CUMULATE, SESSION], ids=["tumbling", "sliding", "cumulate", "session"]
)
def test_each_kind_of_window_is_recomputed_as_it_was_published(tmp_path: Path, text: str) -> None:
    published = publish(tmp_path, clicks(), text)
    raw = RawInput.from_plan(published.plan, "verify")
    rows = load_rows(Home(tmp_path / "home"), "clicks").to_pylist()
    assert len(rows) > 20
    for row in rows:
        target = Target(TimeWindow(epoch_ms(row["window_start"]), epoch_ms(row["window_end"])), (row["page"],))
        assert explain_row(Home(tmp_path / "home"), raw, target, row).differences == []


def test_a_sample_is_verified_and_its_receipt_is_in_the_report(tmp_path: Path) -> None:
    published = publish(tmp_path, clicks())
    receipt = published.verify()
    assert (receipt.findings, receipt.verified, receipt.seed) == ((), 30, 1)
    assert receipt.rows == load_rows(Home(tmp_path / "home"), "clicks").num_rows
    assert sorted(receipt.hashes) == ["code", "definition", "inputs", "plan", "rows"]
    assert published.verify().hashes == receipt.hashes
    assert published.verify(seed=2).hashes["rows"] != receipt.hashes["rows"]
    assert "30 of" in published.plan.folder.report.read_text()
    stored = Receipt.find(published.plan.folder.verification)
    assert stored is not None
    assert stored.seed == 2


def test_a_tampered_row_and_a_lost_row_and_an_added_row_are_found(tmp_path: Path) -> None:
    rows = clicks()
    tampered = [*rows[1:], (at("1 03:59"), at("1 03:59"), "A", 7_777, "other")]
    published = publish(tmp_path, rows, counted=tampered)
    findings = published.verify(sample=200).findings
    assert sorted(findings) == [
        "2024-03-01T00:00Z to 2024-03-01T01:00Z page=home: the table has no row, the input makes one of 1 record",
        "2024-03-01T03:00Z to 2024-03-01T04:00Z page=other: the table has a row of 1 record, the input makes none",
    ]


def test_a_value_that_was_changed_in_a_published_row_is_found(tmp_path: Path) -> None:
    published = publish(tmp_path, clicks())
    (file,) = (tmp_path / "home").rglob("clicks/data/*/*/part-0.parquet")
    rows = pq.read_table(file)
    counts = rows["clicks"].to_pylist()
    changed = pa.array([counts[0] + 1, *counts[1:]], pa.int64())
    position = rows.schema.get_field_index("clicks")
    pq.write_table(rows.set_column(position, rows.schema.field("clicks"), changed), file)
    (finding,) = published.verify(sample=200).findings
    assert finding.endswith(f": clicks is {counts[0] + 1} in the table, {counts[0]} recomputed")


def test_a_session_that_begins_before_the_range_is_not_one_of_the_run(tmp_path: Path) -> None:
    before = at("1") - timedelta(minutes=10)
    receipt = publish(tmp_path, [*clicks(), (before, before, "A", 8_000, "home")], SESSION).verify(sample=200)
    assert (receipt.findings, receipt.verified) == ((), receipt.rows)


def test_an_added_session_is_found(tmp_path: Path) -> None:
    rows = clicks()
    published = publish(tmp_path, rows, SESSION, [*rows, (at("1 03:59"), at("1 03:59"), "A", 7_777, "other")])
    (finding,) = published.verify(sample=200).findings
    assert finding == (
        "2024-03-01T03:59Z to 2024-03-01T04:39Z page=other: the table has a row of 1 record, the input makes none"
    )


@pytest.mark.parametrize("is_wrong", [False, True])
def test_staged_rows_are_verified_before_they_are_published(tmp_path: Path, *, is_wrong: bool) -> None:
    published = publish(tmp_path, clicks())
    plan = planned(tmp_path, published.definition, mode=Mode.REPLAY)
    stage_counts(plan, clicks()[1:] if is_wrong else clicks())
    manifests, windows = load_manifests(plan), pd.read_parquet(published.plan.folder.audit_frame)
    check = check_staged_sample(plan, manifests, windows, 200)
    receipt = Receipt.find(plan.folder.verification)
    assert receipt is not None
    assert receipt.verified == check.element_count > 20
    if is_wrong:
        assert (check.outcome, check.unexpected_count) == (CheckOutcome.FAIL, 1)
        assert check.observed.endswith("the table has no row, the input makes one of 1 record")
        audit = Audit(plan.run_id, "suite", Verdict.PASS, "all windows have events", ()).with_check(check)
        assert audit.verdict is Verdict.FAIL
        assert audit.summary.startswith('failed the check "sampled rows equal those of the reference engine" (')
    else:
        assert (check.outcome, check.observed) == (CheckOutcome.PASS, f"{check.element_count} rows are equal")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("count(distinct word)", 2),
        ("count_if(flag)", 2),
        ("bool_and(flag)", False),
        ("bool_or(flag)", True),
        ("median(number)", 2.5),
        ("percentile(number, 0.9)", 8.6),
        ("count(distinct number)", 4),
    ],
)
def test_more_aggregates_are_recomputed(call: str, expected: object) -> None:
    columns = {"word": "string", "flag": "boolean", "number": "bigint"}
    aggregate = parse_recomputed("value", call, columns)
    assert aggregate is not None
    values = [("a", True, 1), ("b", False, 2), ("a", True, 3), (None, None, 10 + 1)]
    rows = [dict(zip(columns, row, strict=True)) for row in values]
    assert aggregate_values([aggregate], columns, rows) == {"value": pytest.approx(expected)}


@pytest.mark.parametrize(
    "call",
    [
        "count(distinct number, word)",
        "count(distinct ratio)",
        "percentile(number, 0.5, number)",
        "percentile(number, array(0.5))",
        "percentile_approx(number, 0.5)",
        "stddev(number)",
        "median(number) + 1",
    ],
)
def test_other_aggregates_are_left_to_spark(call: str) -> None:
    assert parse_recomputed("value", call, {"number": "bigint", "word": "string", "ratio": "double"}) is None


def test_a_lost_file_is_found(tmp_path: Path) -> None:
    published = publish(tmp_path, clicks())
    (tmp_path / "data/a.parquet").unlink()
    receipt = published.verify()
    assert receipt.verified == 0
    assert receipt.findings[0].endswith(
        f"1 input file of 1 cannot be read as planned; removed: {tmp_path}/data/a.parquet"
    )


def test_a_changed_definition_is_found(tmp_path: Path) -> None:
    published = publish(tmp_path, clicks())
    write_definition(tmp_path, CLICKS.replace('"1h"', '"2h"'))
    (finding,) = published.verify().findings
    changed = f"the definition changed since it was planned ({published.definition})"
    assert finding == f'cannot run {published.plan.run_id}: {changed}; window.size: "1h" -> "2h"'


def backstream(*arguments: str, home: Path) -> Result:
    """Return the result of a command without colors."""
    environment = {HOME_VARIABLE: str(home), "COLUMNS": "250", "NO_COLOR": "1"}
    return CliRunner(env=environment).invoke(app, arguments)


def test_the_command_explains_a_row_and_ends_with_1_if_the_row_is_another(tmp_path: Path) -> None:
    published = publish(tmp_path, clicks(), counted=clicks()[1:])
    wrong, right = (
        backstream(
            "explain", "clicks", "--window", f"2024-03-01T{hour}:00Z", "--key", "page=home", home=tmp_path / "home"
        )
        for hour in ("00", "01")
    )
    assert (wrong.exit_code, right.exit_code) == (1, 0), wrong.output + right.output
    assert (
        wrong.stdout.splitlines()[2]
        == "reference engine  DIFFERS: the table has no row, the input makes one of 1 record"
    )
    plan = published.plan
    assert (
        right.stdout
        == f"""\
clicks  2024-03-01T01:00Z to 2024-03-01T02:00Z  page=home
published         clicks 1, record_count 1
reference engine  computes the same row from 1 record
fates             1 on time

arrival            event time         lag  partition  fate
2024-03-01T01:09Z  2024-03-01T01:09Z   0s  A          on time

firing   at                       watermark  records  clicks
on time  at the end of the input  +inf             1  1

run            {plan.run_id} (recompute)
plan           {plan.plan_hash} of {published.definition} {plan.definition_hash}
file           {tmp_path}/data/a.parquet
"""
    )


def test_a_window_or_a_key_that_is_not_there(tmp_path: Path) -> None:
    publish(tmp_path, clicks())
    home = Home(tmp_path / "home")
    with pytest.raises(SpecError, match=re.escape("the instant is in 2024-03-01T00:00Z/2024-03-01T01:00Z")):
        explain_window(home, "clicks", "2024-03-01T00:30Z", {"page": "home"})
    with pytest.raises(SpecError, match="the key of clicks has the columns page, got none"):
        explain_window(home, "clicks", "2024-03-01T00:00Z", {})
    unknown = explain_window(home, "clicks", "2024-03-01T00:00Z", {"page": "nobody"})
    assert (unknown.row, unknown.is_confirmed, len(unknown.recomputed.records)) == (None, True, 0)


def test_a_null_key_is_explained_and_not_taken_for_the_text_none(tmp_path: Path) -> None:
    named = [(*click[:3], click[3] + 60_000, "None") for click in clicks()[:1]]
    unnamed = [(*click[:3], click[3] + 50_000, None) for click in clicks()[:3]]
    publish(tmp_path, [*clicks(), *named, *unnamed])
    home = Home(tmp_path / "home")

    null, text = (explain_window(home, "clicks", "2024-03-01T00:00Z", {"page": key}) for key in (None, "None"))
    command = backstream(
        "explain", "clicks", "--window", "2024-03-01T00:00Z", "--key", "page", home=tmp_path / "home"
    )

    assert [found.row and found.row["clicks"] for found in (null, text)] == [3, 1]
    assert (null.is_confirmed, text.is_confirmed) == (True, True)
    assert command.exit_code == 0, command.output
    assert "published         clicks 3" in command.stdout


@pytest.mark.parametrize("call", ["sum(amount)", "avg(amount)"])
def test_sums_that_cancel_may_differ_by_their_rounding_errors_only(call: str) -> None:
    columns = {"amount": "double"}
    aggregate = parse_recomputed("value", call, columns)
    assert aggregate is not None
    amounts = [19.99, 5.49, 0.1, -19.99, -5.49, -0.1]
    rows = [{"amount": amount} for amount in amounts]
    exact = aggregate_values([aggregate], columns, rows)["value"]
    added = sum(amounts) / (1 if call == "sum(amount)" else len(amounts))

    error = rounding_error(aggregate, columns, rows)

    assert added != exact == 0.0
    assert are_equal(added, exact, error)
    assert not are_equal(0.000001, exact, error)
    assert not are_equal(added, exact)


def test_sums_with_infinity_or_of_integers_have_no_rounding_error() -> None:
    for kind, value in (("double", float("inf")), ("double", float("nan")), ("bigint", 5)):
        aggregate = parse_recomputed("value", "sum(amount)", {"amount": kind})
        assert aggregate is not None
        assert rounding_error(aggregate, {"amount": kind}, [{"amount": value}]) == 0.0


def test_a_receipt_of_more_windows_than_rows_has_no_share() -> None:
    receipt = Receipt("a-run", "2024-03-02T00:00Z", 1, 400, 346, 318, 0, (), {})

    assert list(receipt_text(receipt)) == ["a-run  346 windows of keys verified; the table has 318 rows, seed 1"]
