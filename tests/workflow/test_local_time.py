"""Plans of windows in local time: which files a local day reads, and by which time-zone data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.spark.histories import definition_of, write_history

from backstream.chunks.replay import replay_chunks
from backstream.conformance.case_dataset import toml_value
from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval, LocalDays
from backstream.eventtime.time_zones import tzdata_version
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.plan_text import plan_text

DAY = Interval(*(instant_ms(text, "test") for text in ("2024-03-31", "2024-04-01")))
BERLIN = {"window": {"kind": "tumbling", "size": "1d", "time_zone": "Europe/Berlin"}}


def plan_of(folder: Path, events: tuple[str, ...], local_days: LocalDays | None = None) -> Plan:
    """Return the plan of a day in Berlin, with a file per day of events in UTC."""
    times_ms = [instant_ms(text, "test") for text in events]
    write_history(folder / "data", [(at_ms, at_ms, "A", seq, "x", 1) for seq, at_ms in enumerate(times_ms)])
    content: dict[str, Any] = definition_of(folder / "data", **BERLIN, backfill={"engine": "native"})
    path = folder / "events.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    home = Home(folder / "home")
    return plan_run(PlanRequest(path, DAY, mode=Mode.REPLAY, trigger="test", home=home, local_days=local_days))


def test_a_local_day_reads_the_files_that_may_have_one_of_its_instants(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ("2024-03-29T12:00Z", "2024-03-30T23:00Z", "2024-03-31T21:59Z", "2024-04-01T00:00Z"))

    names = [Path(plan.inputs[number].path).stem for number in plan.chunks[0].files]
    bounds = [(file.min_event_ms, file.max_event_ms) for file in plan.inputs]

    assert len(plan.inputs) == 4
    assert len(names) == 2
    assert bounds[1] == (DAY.start_ms, DAY.start_ms)
    assert bounds[2] == (DAY.end_ms - 60_000, DAY.end_ms - 60_000)


def test_a_plan_has_the_version_of_its_time_zone_data_and_no_other_runs_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ("2024-03-31T12:00Z",))
    other = replace(plan, time_zone_data="2001.1")

    assert f"time zone Europe/Berlin, time-zone data {tzdata_version()}: all days are local" in plan_text(plan)
    with pytest.raises(PlanError) as raised:
        list(replay_chunks(None, other, other.chunks))  # type: ignore[arg-type]  # it needs no engine
    assert str(raised.value) == (
        f"cannot run plan {other.run_id}: it has the time-zone data 2001.1, and this machine has"
        f" {tzdata_version()}\n\nhint: plan the run again, or install the version of tzdata"
    )


def test_days_of_another_time_zone_are_refused(tmp_path: Path) -> None:
    days = LocalDays("America/New_York", "2024-03-31", "2024-04-01")

    with pytest.raises(SpecError) as raised:
        plan_of(tmp_path, ("2024-03-31T12:00Z",), days)
    assert str(raised.value) == (
        "cannot plan 2024-03-31 to 2024-04-01 in America/New_York: days of events are days in Europe/Berlin"
        f" ({tmp_path}/events.toml, window.time_zone)\n\nhint: leave the time zone of the range out"
    )
