"""What may still gain events is not published as final unless somebody says so."""

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
from backstream.runs.home import HOME_VARIABLE, Home
from backstream.runs.plan import Mode
from backstream.workflow import plan_run

ASKED = '\n[backfill]\nmax_arrival_delay = "6h"\n'
TWO_PARTITIONS = '\n[quality]\nexpected_partitions = ["A", "B"]\n'


def write_arrivals(folder: Path, **arrivals: list[datetime]) -> None:
    """Per partition a click of each of these moments, which arrived at once."""
    for partition, moments in arrivals.items():
        rows = [(each, each, partition, number, "home") for number, each in enumerate(moments)]
        write_clicks(folder / f"data/{partition}.parquet", rows)


def test_an_open_day_is_refused_with_what_it_waits_for(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00"), at("2 05:00"), at("3 05:00")], B=[at("1 06:00"), at("3 07:00")])
    file = write_definition(tmp_path, CLICKS + ASKED)

    planned(tmp_path, file, until="2024-03-02")  # the first is sealed
    with pytest.raises(PlanError) as refused:
        planned(tmp_path, file, until="2024-03-04")

    assert str(refused.value) == (
        f"cannot publish clicks as final: 2 of 3 days are not sealed ({file})"
        "\n  2024-03-02 is missing: no arrival of A after 2024-03-03T06:00Z"
        "\n  2024-03-03 is open: no arrival of A, B after 2024-03-04T06:00Z"
        "\n\nhint: end the range earlier, or add --allow-unsealed, which the report and the ledger will say"
    )


def test_what_was_published_unsealed_says_so_in_its_plan(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00")])
    file = write_definition(tmp_path, CLICKS + ASKED)
    range_ms = (instant_ms("2024-03-01", "since"), instant_ms("2024-03-02", "until"))

    plan = plan_run(
        file, *range_ms, trigger="t", reason="hurry", is_unsealed_allowed=True, home=Home(tmp_path / "home")
    )

    assert plan.reason == "hurry; unsealed: 2024-03-01 open"


def test_an_expected_partition_that_delivered_nothing_keeps_days_unsealed(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00"), at("3 05:00")])
    planned(tmp_path, write_definition(tmp_path, CLICKS + ASKED))

    with pytest.raises(PlanError) as refused:
        planned(tmp_path, write_definition(tmp_path, CLICKS + ASKED + TWO_PARTITIONS))

    assert "\n  2024-03-01 is missing: no arrival of B after 2024-03-02T06:00Z\n" in str(refused.value)


def test_without_a_horizon_nothing_is_asked_nor_where_what_the_stream_said_is_published(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00")])

    assert planned(tmp_path, write_definition(tmp_path)).reason == ""
    live = CLICKS + ASKED + 'publish = "live"\n'
    assert planned(tmp_path, write_definition(tmp_path, live), mode=Mode.REPLAY).reason == ""
    with pytest.raises(PlanError):  # a recompute is final whatever a replay would publish
        planned(tmp_path, write_definition(tmp_path, live), mode=Mode.RECOMPUTE)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    write_arrivals(tmp_path, A=[at("1 05:00"), at("3 05:00")])
    file = write_definition(tmp_path, CLICKS + ASKED)
    planned(tmp_path, file)
    data = tmp_path / "data/A.parquet"
    as_it_was, content = data.stat(), bytearray(data.read_bytes())
    content[4:200] = bytes(196)  # its footer can be read still, its rows cannot
    data.write_bytes(content)
    os.utime(data, ns=(as_it_was.st_atime_ns, as_it_was.st_mtime_ns))

    planned(tmp_path, file)


def test_days_shows_seals_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    write_arrivals(tmp_path, A=[at("1 05:00"), at("3 07:00")])
    file = str(write_definition(tmp_path, CLICKS + ASKED))
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
