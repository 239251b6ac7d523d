"""docs/late-data.md shows what the commands print."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts
from typer.testing import CliRunner

from backstream.cli import app
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

PAGE = Path(__file__).parents[2] / "docs" / "late-data.md"
MARCH = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (1, 2, 3)]
LATE = [
    (at("2 06:10"), at("5 23:00"), "A", 10, "home"),
    (at("2 06:20"), at("5 23:00"), "A", 11, "help"),
    (at("3 00:00"), at("5 23:59"), "A", 12, "help"),
]
LATER = [(at("5 05:00"), at("6 12:00"), "B", 1, "home"), (at("6 05:00"), at("6 13:00"), "B", 2, "home")]


def shown(command: str) -> str:
    """What the page shows of a command."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"```\n$ {command}\n")
    block, _, _ = rest.partition("```")
    assert block
    return block


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """What a command prints, with what differs between machines written as on the page."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(tmp_path))
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)

    def result(command: str) -> str:
        arguments = command.split()[1:]
        said = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, arguments).output
        return re.sub(r"cli\.[0-9a-f]{12}", "cli.RUN", said.replace(str(tmp_path), "/srv"))

    return result


def planned(folder: Path, since: str, until: str, reason: str = "") -> Plan:
    span_ms = (instant_ms(since, "since"), instant_ms(until, "until"))
    return plan_run(
        PlanRequest(
            folder / "clicks.toml", Interval(*span_ms), trigger="cli", reason=reason, home=Home(folder / "home")
        )
    )


def written_ago(plan: Plan, begin_s: float, end_s: float) -> None:
    """As if a run had begun and last written something so many seconds ago."""
    staged = Path(plan.tables[""].location) / "data" / plan.run_id
    now_s = time.time()
    for file in (*plan.folder.path.rglob("*"), *staged.glob("*")):
        os.utime(file, (now_s - end_s, now_s - end_s))
    os.utime(plan.folder.plan, (now_s - begin_s, now_s - begin_s))


def test_the_page_shows_what_is_printed(tmp_path: Path, printed: object) -> None:
    assert callable(printed)
    write_clicks(tmp_path / "data/first.parquet", MARCH)
    write_definition(tmp_path)
    first = planned(tmp_path, "2024-03-01", "2024-03-04")
    publish_counts(first, MARCH)
    write_clicks(tmp_path / "data/late.parquet", LATE)
    assert printed("backstream stale clicks") == shown("backstream stale clicks")

    write_clicks(tmp_path / "data/later.parquet", LATER)
    second = planned(tmp_path, "2024-03-04", "2024-03-07", "a new week")
    Manifest(second.run_id, "0000", "0", 0, {}, {}).write(second.folder.manifest("0000"))
    written_ago(first, 10_040, 10_000)
    written_ago(second, 7_380, 7_200)
    assert printed("backstream status clicks") == shown("backstream status clicks")

    write_definition(tmp_path, size='"2h"')
    again = "backstream run clicks --since 2024-03-04 --until 2024-03-07"
    assert printed(again) == shown(again)

    write_definition(tmp_path, CLICKS + '\n[backfill]\nmax_arrival_delay = "6h"\n')
    by_day = "backstream days clicks --since 2024-03-03 --until 2024-03-07"
    assert printed(by_day) == shown(by_day)
