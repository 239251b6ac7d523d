"""Check overrides of the definition: the plan has them, and a retry uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.definition.loader import parse_definition, require_unchanged_definition
from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

SINCE_MS = instant_ms("2024-03-01", "since")


def planned(folder: Path, mode: Mode = Mode.REPLAY, gate_override: str = "", **overrides: str) -> Plan:
    definition = folder / "clicks.toml"
    if not definition.exists():
        write_definition(folder)
        write_clicks(folder / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    return plan_run(
        PlanRequest(
            definition,
            Interval(SINCE_MS, SINCE_MS + 4 * DAY_MS),
            mode=mode,
            trigger="test",
            overrides={key.replace("__", "."): value for key, value in overrides.items()},
            gate_override=gate_override,
            home=Home(folder / "home"),
        )
    )


def test_a_plan_has_the_definition_with_its_overrides(tmp_path: Path) -> None:
    plan = planned(tmp_path, watermark__delay="1h", lateness__allowed="2h", backfill__chunk="2d")

    definition = parse_definition(plan.definition, "plan")
    assert (definition.watermark.delay, definition.lateness.allowed) == (HOUR_MS, 2 * HOUR_MS)
    assert len(plan.chunks) == 2
    assert Plan.read(plan.folder.plan) == plan
    assert plan.overrides == {"watermark.delay": "1h", "lateness.allowed": "2h", "backfill.chunk": "2d"}


def test_another_delay_is_another_plan_of_the_same_definition(tmp_path: Path) -> None:
    plain, other = planned(tmp_path), planned(tmp_path, watermark__delay="1h")

    assert plain.definition_hash == other.definition_hash
    assert plain.plan_hash != other.plan_hash


def test_a_plan_without_overrides_has_none(tmp_path: Path) -> None:
    assert '"overrides"' not in planned(tmp_path).folder.plan.read_text()
    assert '"gate_override"' not in planned(tmp_path).folder.plan.read_text()
    assert '"gate_override"' in planned(tmp_path, gate_override="known outage").folder.plan.read_text()


@pytest.mark.parametrize(
    ("mode", "key", "value", "message"),
    [
        (
            Mode.RECOMPUTE,
            "watermark__delay",
            "1h",
            "watermark.delay has no meaning with the mode recompute, in which nothing is late, got '1h'",
        ),
        (
            Mode.RECOMPUTE,
            "lateness__allowed",
            "1h",
            "lateness.allowed has no meaning with the mode recompute, in which nothing is late, got '1h'",
        ),
        (Mode.REPLAY, "window__size", "2h", "window.size cannot be overridden, only "),
        (Mode.REPLAY, "watermark__delay", "-1h", "watermark.delay must not be negative, got -3600000 ms"),
        (Mode.REPLAY, "backfill__chunk", "5h", "backfill.chunk must be whole days (the lake's unit), got 5h"),
    ],
)
def test_overrides_without_a_meaning_are_refused(
    tmp_path: Path, mode: Mode, key: str, value: str, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        planned(tmp_path, mode, **{key: value})
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("(overrides of clicks)")


def test_a_delay_is_refused_for_a_strategy_without_one(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    text = CLICKS.replace('delay = "10m"\n', "").replace("bounded_out_of_orderness", "monotonous")
    write_definition(tmp_path, text)

    with pytest.raises(SpecError, match="has no meaning with strategy = 'monotonous', got '1h'"):
        planned(tmp_path, watermark__delay="1h")


def test_the_overrides_of_a_plan_are_no_change_of_the_definition(tmp_path: Path) -> None:
    plan = planned(tmp_path, watermark__delay="1h")
    definition = tmp_path / "clicks.toml"
    definition.write_text(definition.read_text().replace('delay = "10m"', 'delay = "20m"'))
    require_unchanged_definition(plan)

    definition.write_text(definition.read_text().replace('size = "1h"', 'size = "2h"'))
    with pytest.raises(PlanError, match=r'window\.size: "1h" -> "2h"'):
        require_unchanged_definition(plan)
