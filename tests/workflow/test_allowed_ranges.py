"""Check the ranges that `plan` refuses before it writes a file, and ranges that a new run must empty."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workflow.history import CLICKS, COLUMNS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.errors import PlanError, RangeError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.plan.allowed_ranges import require_possible_range

DAYS = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (2, 3, 5)]
FACTS = (
    "\n  clicks has events from 2024-03-02T05:00Z to 2024-03-05T05:00Z"
    "\n\nhint: the possible range is since=2024-03-02 until=2024-03-06; until is excluded"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a definition and clicks of the second, the third and the fifth day."""
    for row in DAYS:
        write_clicks(tmp_path / f"data/{row[3]}.parquet", [row])
    write_definition(tmp_path)
    return tmp_path


def error_before_run(folder: Path, since: str, until: str) -> str:
    """Return the error for a range before a run of it is started."""
    interval = Interval(instant_ms(since, "since"), instant_ms(until, "until"))
    try:
        require_possible_range(folder / "clicks.toml", interval, Home(folder / "home"))
    except RangeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("0001-01-01", "9999-12-31", "since must not be before 1970-01-01T00:00Z, got 0001-01-01T00:00Z"),
        ("2024-03-06", "2024-03-07", "no event in range 2024-03-06T00:00Z to 2024-03-07T00:00Z"),
        ("2024-03-01", "2024-03-02", "no event in range 2024-03-01T00:00Z to 2024-03-02T00:00Z"),
        ("1969-12-31", "1970-01-01", "since must not be before 1970-01-01T00:00Z, got 1969-12-31T00:00Z"),
    ],
)
def test_a_range_without_an_event_is_refused_and_writes_no_file(
    folder: Path, since: str, until: str, message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        planned(folder, folder / "clicks.toml", since, until)

    assert message in str(caught.value)
    assert not (folder / "home/runs").exists()


def test_the_check_before_a_run_and_plan_report_the_same_error(folder: Path) -> None:
    with pytest.raises(RangeError) as caught:
        planned(folder, folder / "clicks.toml", "2024-03-07", "2024-03-09")

    assert str(caught.value) == (
        f"no event in range 2024-03-07T00:00Z to 2024-03-09T00:00Z ({folder}/clicks.toml, source.path)" + FACTS
    )
    assert error_before_run(folder, "2024-03-07", "2024-03-09") == str(caught.value)


def test_a_day_without_an_event_between_others_is_planned(folder: Path) -> None:
    plan = planned(folder, folder / "clicks.toml", "2024-03-04", "2024-03-05")

    assert [chunk.files for chunk in plan.chunks] == [()]
    assert error_before_run(folder, "2024-03-04", "2024-03-05") == ""


def test_a_published_day_without_events_is_planned_so_that_a_run_can_empty_it(folder: Path) -> None:
    publish_counts(planned(folder, folder / "clicks.toml", "2024-03-02", "2024-03-06"), DAYS)
    (folder / "data/5.parquet").unlink()

    emptied = planned(folder, folder / "clicks.toml", "2024-03-05", "2024-03-06")

    assert [chunk.files for chunk in emptied.chunks] == [()]
    assert error_before_run(folder, "2024-03-05", "2024-03-06") == ""
    assert error_before_run(folder, "2024-03-06", "2024-03-07").startswith("no event in range ")


def test_a_range_may_extend_to_the_last_published_row(folder: Path) -> None:
    old = (at("2 05:00").replace(year=2020), at("2 05:01"), "A", 99, "home")
    write_clicks(folder / "data/old.parquet", [old])
    publish_counts(planned(folder, folder / "clicks.toml", "2020-03-01", "2020-03-03"), [old])
    (folder / "data/old.parquet").unlink()

    assert error_before_run(folder, "2020-03-02", "2024-03-06") == ""
    assert error_before_run(folder, "2020-03-03", "2024-03-06").startswith(
        "no event in the first 1,460 days of range "
    )


def test_files_that_were_added_since_the_last_refresh_count(folder: Path) -> None:
    refresh_dataset_state(folder / "clicks.toml", Home(folder / "home"))
    assert error_before_run(folder, "2024-03-08", "2024-03-09") != ""

    write_clicks(folder / "data/8.parquet", [(at("8 05:00"), at("8 05:01"), "A", 8, "home")])

    assert error_before_run(folder, "2024-03-08", "2024-03-09") == ""


def test_no_file_is_read_if_the_dataset_state_has_events_in_the_range(folder: Path) -> None:
    refresh_dataset_state(folder / "clicks.toml", Home(folder / "home"))
    (folder / "data/2.parquet").write_text("no Parquet")

    assert error_before_run(folder, "2024-03-02", "2024-03-03") == ""
    # It may hold any event now; whether a run can do without it, planning says.
    assert error_before_run(folder, "2024-03-08", "2024-03-09") == ""


def test_a_file_without_bounds_may_have_events_of_any_day(folder: Path) -> None:
    table = pa.table(
        {name: pa.array([value], COLUMNS[name]) for name, value in zip(COLUMNS, DAYS[0], strict=True)}
    )
    pq.write_table(table, folder / "data/unknown.parquet", write_statistics=False)

    assert len(planned(folder, folder / "clicks.toml", "2024-04-06", "2024-04-07").chunks) == 1


def test_an_event_at_an_absurd_time_makes_no_day_possible(folder: Path) -> None:
    write_clicks(folder / "data/absurd.parquet", [(at("1").replace(year=9998), at("1"), "A", 0, "home")])

    assert error_before_run(folder, "2024-03-08", "2024-03-09").endswith(FACTS)
    seen = refresh_dataset_state(folder / "clicks.toml", Home(folder / "home"))
    assert seen.span == Interval(instant_ms("2024-03-02", "first"), instant_ms("2024-03-06", "end"))


def test_the_maximum_of_chunks_is_a_setting(folder: Path) -> None:
    file = write_definition(folder, CLICKS + "\n[backfill]\nmax_chunks = 3\n")

    assert len(planned(folder, file, "2024-03-01", "2024-03-04").chunks) == 3
    with pytest.raises(PlanError) as caught:
        planned(folder, file, "2024-03-01", "2024-03-08")

    assert str(caught.value) == (
        "cannot plan 2024-03-01T00:00Z to 2024-03-08T00:00Z: it has 7 chunks of 1d, backfill.max_chunks is 3"
        f" ({file})\n\n"
        "hint: request a shorter range, set backfill.chunk to 3d or more, or raise backfill.max_chunks"
    )
