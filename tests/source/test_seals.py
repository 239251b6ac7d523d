"""Test that unsealed days are only published as final if the run allows it."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from typer.testing import CliRunner

from backstream.cli import app
from backstream.errors import PlanError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.variables import HOME_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

WITH_HORIZON = '\n[backfill]\nmax_arrival_delay = "6h"\n'
TWO_PARTITIONS = '\n[quality]\nexpected_partitions = ["A", "B"]\n'


def write_arrivals(folder: Path, **arrivals: list[datetime]) -> None:
    """Write a file per partition with a click at each of these times, which is also its arrival."""
    for partition, moments in arrivals.items():
        rows = [(moment, moment, partition, number, "home") for number, moment in enumerate(moments)]
        write_clicks(folder / f"data/{partition}.parquet", rows)


def test_an_open_day_is_rejected_with_the_missing_arrivals(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00"), at("2 05:00"), at("3 05:00")], B=[at("1 06:00"), at("3 07:00")])
    file = write_definition(tmp_path, CLICKS + WITH_HORIZON)

    planned(tmp_path, file, until="2024-03-02")  # the first day is sealed
    with pytest.raises(PlanError) as refused:
        planned(tmp_path, file, until="2024-03-04")

    assert str(refused.value) == (
        f"cannot publish clicks as final: 2 of 3 days are not sealed ({file})"
        "\n  2024-03-02 is partial: no arrival of A after 2024-03-03T06:00Z"
        "\n  2024-03-03 is open: no arrival of A, B after 2024-03-04T06:00Z"
        "\n\nhint: end the range earlier, or add --allow-unsealed; the report and the ledger then show these days"
    )


def test_the_plan_of_an_unsealed_publication_records_its_days(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00")])
    file = write_definition(tmp_path, CLICKS + WITH_HORIZON)
    range_ms = (instant_ms("2024-03-01", "since"), instant_ms("2024-03-02", "until"))

    plan = plan_run(
        PlanRequest(
            file,
            Interval(*range_ms),
            trigger="t",
            reason="hurry",
            is_unsealed_allowed=True,
            home=Home(tmp_path / "home"),
        )
    )

    assert plan.reason == "hurry; unsealed: 2024-03-01 open"


def test_an_expected_partition_that_delivered_nothing_keeps_days_unsealed(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00"), at("3 05:00")])
    planned(tmp_path, write_definition(tmp_path, CLICKS + WITH_HORIZON))

    with pytest.raises(PlanError) as refused:
        planned(tmp_path, write_definition(tmp_path, CLICKS + WITH_HORIZON + TWO_PARTITIONS))

    assert "\n  2024-03-01 is partial: no arrival of B after 2024-03-02T06:00Z\n" in str(refused.value)


def test_seals_are_not_checked_without_a_horizon_or_for_live_results(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00")])

    assert planned(tmp_path, write_definition(tmp_path)).reason == ""
    live = CLICKS + WITH_HORIZON + 'publish = "live"\n'
    assert planned(tmp_path, write_definition(tmp_path, live), mode=Mode.REPLAY).reason == ""
    with pytest.raises(PlanError):  # a recompute always publishes final results
        planned(tmp_path, write_definition(tmp_path, live), mode=Mode.RECOMPUTE)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00"), at("3 05:00")])
    file = write_definition(tmp_path, CLICKS + WITH_HORIZON)
    planned(tmp_path, file)
    data = tmp_path / "data/A.parquet"
    before, content = data.stat(), bytearray(data.read_bytes())
    content[4:200] = bytes(196)  # its footer stays readable, its rows do not
    data.write_bytes(content)
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))

    planned(tmp_path, file)


def test_days_shows_seals_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    write_arrivals(tmp_path, A=[at("1 05:00"), at("3 07:00")])
    file = str(write_definition(tmp_path, CLICKS + WITH_HORIZON))
    command = ["days", file, "--since", "2024-03-01", "--until", "2024-03-04"]

    shown = CliRunner().invoke(app, command)

    assert (shown.exit_code, shown.stdout) == (
        0,
        (
            "day         seal       published by\n"
            "2024-03-01  sealed     -\n"
            "2024-03-02  empty      -\n"
            "2024-03-03  open       -  (no arrival of A after 2024-03-04T06:00Z)\n"
        ),
    )
    assert json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)[1] == {
        "day": "2024-03-02",
        "runs": [],
        "seal": "empty",
        "reason": "",
    }
    write_definition(tmp_path)
    assert CliRunner().invoke(app, command).stdout.splitlines()[1] == "2024-03-01  unchecked  -"
