"""Only files of folders that may hold the range are opened, and the promise of the folders is checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.prepared import events as made
from tests.prepared.events import FIRST_DAY, Event, sums_by_hour
from tests.prepared.test_prepared import ORDERS, published, write_definition

import backstream
from backstream.errors import ContractError, PlanError, QualityError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.workflow.execution import prepare_input
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]
FILTER = 'partition_filter = { columns = ["dt"], slack = "1d" }\n'
THIRD = ("2024-03-03", "2024-03-04")


def on_day(number: int, hours: Sequence[int] = (1, 13), delay_days: int = 0) -> list[Event]:
    """Return an event per hour of a day of March; the sequences differ between days."""
    times = [FIRST_DAY + timedelta(days=number - 1, hours=hour) for hour in hours]
    delay = timedelta(days=delay_days, minutes=1)
    offsets = range(number * 1_000 + delay_days * 100, 100_000)
    return [Event(at, at + delay, 0, offset, "a", at.hour) for at, offset in zip(times, offsets, strict=False)]


class Archive:
    """JSON lines in folders of their arrival date, as Kafka Connect writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, Home(folder / "home")
        self.definition = write_definition(folder, FILTER + ORDERS, "payload.amount")
        for day in range(1, 6):
            self.deliver(day, on_day(day))

    def deliver(self, day: int, events: Iterable[Event], name: str = "orders+0") -> Path:
        """Write a file into the folder of a day of March."""
        folder = self.folder / f"data/dt=2024-03-{day:02}"
        made.write_json(folder, f"{name}.json.gz", list(events))
        return folder / f"{name}.json.gz"

    def run(self, mode: str = "recompute", gate_override: str = "") -> backstream.RunResult:
        """Run March 3."""
        return backstream.run(
            self.definition,
            *THIRD,
            mode=mode,
            gate_override=gate_override,
            home=self.home.path,
            allow_unsealed=True,
        )

    def stale_days(self) -> list[int]:
        """Prepare what earlier runs need, and return the stale days."""
        prepare_input(self.definition, self.home, lambda _: None, needed=None)
        return [day.day_ms for day in find_stale_days(self.definition, self.home).days]


def test_a_recompute_opens_only_folders_that_may_hold_its_range_and_finds_late_data(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    damaged = archive.deliver(6, on_day(6))
    damaged.write_bytes(damaged.read_bytes()[:40])

    result = archive.run()

    assert published(archive.home, "payload_user_id") == sums_by_hour(on_day(3))
    unopened = [tmp_path / f"data/dt=2024-03-{day:02}/orders+0.json.gz" for day in (1, 5, 6)]
    sentence = f"3 files in folders that cannot hold the range: {', '.join(map(str, unopened))}"
    assert ("Not opened", sentence) in describe_inputs(result.plan)
    assert result.plan.prepared["read"] == 6
    assert sentence in result.plan.folder.report.read_text()

    late = on_day(3, [13, 14], delay_days=1)
    archive.deliver(4, late, "orders+1")
    archive.deliver(5, on_day(5, [2]), "orders+1")
    assert archive.stale_days() == [instant_ms("2024-03-03", "day")]
    archive.run()
    assert published(archive.home, "payload_user_id") == sums_by_hour(on_day(3) + late)

    with pytest.raises(ContractError, match=f"^cannot read input file {re.escape(str(damaged))}: "):
        archive.run("replay")  # its watermarks depend on all records


def test_a_record_outside_of_what_its_folder_promises_is_reported(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    path = archive.deliver(3, [*on_day(3, [5]), *on_day(5, [1, 2], delay_days=-2)], "orders+1")

    with pytest.raises(QualityError) as caught:
        archive.run()

    message = f"2 records of {path}, 2024-03-05T01:00Z to 2024-03-05T02:00Z"
    assert "every record is in the folder of its event time" in str(caught.value)
    assert f"\n  misplaced: {message}\n" in str(caught.value)
    result = archive.run(gate_override="the clock of a till was wrong")
    assert result.plan.misplaced[0].records == 2
    assert message in result.plan.folder.report.read_text()


def test_a_plan_requires_that_the_folders_of_its_range_are_prepared(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.run()
    interval = Interval(*(instant_ms(text, "range") for text in ("2024-03-05", "2024-03-06")))
    request = PlanRequest(
        archive.definition, interval, trigger="test", home=archive.home, is_unsealed_allowed=True
    )
    with pytest.raises(PlanError, match=r"^the files of the folders that may hold 2024-03-05.* are not prepared"):
        plan_run(request)
    prepare_input(archive.definition, archive.home, lambda _: None)
    backstream.run(archive.definition, "2024-03-05", "2024-03-06", home=archive.home.path, allow_unsealed=True)
