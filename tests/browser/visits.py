"""Publish a day of `visits` with records of every fate and a hostile key, without Spark."""

from __future__ import annotations

from pathlib import Path

from tests.workflow.history import CLICKS, at, write_clicks
from tests.workflow.publishing import Click, publish_counts

from backstream.eventtime.instants import DAY_MS, HOUR_MS, epoch_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

DAY_MS_OF_VISITS = epoch_ms(at("1"))
WINDOW = "/".join(instant_text(DAY_MS_OF_VISITS + hours * HOUR_MS) for hours in (3, 4))
TAMPERED = "/".join(instant_text(DAY_MS_OF_VISITS + hours * HOUR_MS) for hours in (5, 6))
"""A window whose row the table has with another value."""
DEFINITION = (
    CLICKS.replace('name = "clicks"', 'name = "visits"').replace("{folder}/data", "${BACKSTREAM_HOME}/data/visits")
    + '[lateness]\nallowed = "1h"\n[backfill]\nmode = "replay"\n'
)


def write_definition(folder: Path) -> Path:
    """Write the definition into a folder, and return the file."""
    file = folder / "visits.toml"
    file.write_text(DEFINITION, encoding="utf-8")
    return file


def publish_visits(home: Home, definition: Path, hostile: str) -> None:
    """Publish the day."""
    rows = visits(hostile)
    write_clicks(home.path / "data/visits/a.parquet", rows)
    interval = Interval(DAY_MS_OF_VISITS, DAY_MS_OF_VISITS + DAY_MS)
    plan = plan_run(PlanRequest(definition, interval, trigger="manual__visits", home=home))
    publish_counts(plan, [*rows, (at("1 05:30"), at("1 05:31"), "A", 90_000, "home")])


def visits(hostile: str) -> list[Click]:
    """Return visits of every ten minutes; those of 3 to 4 o'clock also arrive late, too late, and twice."""
    times = [(number, at(f"1 {number // 6:02}:{number % 6}0")) for number in range(6 * 10)]
    found: list[Click] = [(when, when, "A", number, "home" if number % 2 else hostile) for number, when in times]
    found += [
        (at("1 03:20"), at("1 04:30"), "B", 1, "home"),
        (at("1 03:25"), at("1 07:00"), "B", 2, "home"),
        (found[19][0], at("1 03:40"), *found[19][2:]),
    ]
    # Partition B follows, so that the watermark advances.
    found += [(when, when, "B", 100 + number, "other") for number, when in times]
    return found
