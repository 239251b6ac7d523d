"""Check that only the published files near changed input are opened, and that the result is the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyiceberg.table import Table
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.definition.loader import load_definition
from backstream.eventtime.instants import DAY_MS, HOUR_MS, epoch_ms, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stale_windows import ChangedRecords, ChangeKind, find_stale_windows
from backstream.eventtime.windows import TimeWindow
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.published_windows import PublishedFile, PublishedWindows, load_published_windows
from backstream.runs.home import Home
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START
from backstream.source.key_index import key_text
from backstream.workflow.late_data.affected_rows import find_affected_rows
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.late_data.staleness import Staleness
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.status import list_day_states

SINCE_MS = instant_ms("2024-03-01", "since")
DAYS = 5
SESSIONS = CLICKS.replace('kind = "tumbling"\nsize = "1h"', 'kind = "session"\ngap = "2h"')
Click = tuple[object, ...]


def click(day: int, hour: int, page: str = "home", minute: int = 30) -> Click:
    return (at(f"{day} {hour:02}:{minute:02}"), at(f"{day} {hour:02}:59"), "A", 100 * day + hour, page)


CLICKED = [click(day, hour) for day in range(1, DAYS + 1) for hour in (6, 12, 18)]


def home(folder: Path) -> Home:
    return Home(folder / "home")


def publish_days(folder: Path, text: str = CLICKS) -> Path:
    """Write a file of clicks per day, and publish each day by its own run."""
    for day in range(1, DAYS + 1):
        write_clicks(folder / f"data/{day}.parquet", [row for row in CLICKED if row[0] == at_day(row, day)])
    definition = write_definition(folder, text)
    for day in range(DAYS):
        publish_day(folder, definition, day, CLICKED)
    return definition


def at_day(row: Click, day: int) -> object:
    return row[0] if str(row[0]).startswith(f"2024-03-{day:02}") else None


def publish_day(folder: Path, definition: Path, day: int, rows: list[Click]) -> None:
    since_ms = SINCE_MS + day * DAY_MS
    trigger = f"day {day} of many days"  # longer than what an entry keeps of a text by default
    plan = plan_run(
        PlanRequest(definition, Interval(since_ms, since_ms + DAY_MS), trigger=trigger, home=home(folder))
    )
    publish_counts(plan, rows)


def found(folder: Path) -> Staleness:
    return find_stale_days(folder / "clicks.toml", home(folder))


def table_of(folder: Path) -> Table:
    with open_catalog_for_writing(home(folder)) as catalog:
        return load_table(catalog, "clicks")


def remove_data_files(folder: Path, kept: tuple[int, ...] = ()) -> int:
    """Remove the data files of the published table except those of some days, and return their number."""
    gone = 0
    for task in table_of(folder).scan().plan_files():
        if task.file.partition[0] - SINCE_MS // DAY_MS + 1 not in kept:
            Path(task.file.file_path.removeprefix("file://")).unlink()
            gone += 1
    return gone


@pytest.mark.parametrize("text", [CLICKS, SESSIONS])
def test_no_data_file_is_opened_where_no_input_file_changed(tmp_path: Path, text: str) -> None:
    definition = publish_days(tmp_path, text)
    range_ = Interval(SINCE_MS, SINCE_MS + DAYS * DAY_MS)
    days = list_day_states(definition, range_, home(tmp_path))
    assert [len(day.runs) for day in days] == [1] * DAYS
    assert len({day.runs for day in days}) == DAYS

    assert remove_data_files(tmp_path) == DAYS

    assert (found(tmp_path).published_days, found(tmp_path).days) == (DAYS, ())
    assert list_day_states(definition, range_, home(tmp_path)) == days


def test_no_data_file_is_opened_for_added_events_in_fixed_windows(tmp_path: Path) -> None:
    publish_days(tmp_path)
    write_clicks(tmp_path / "data/late.parquet", [click(3, 7)])
    staleness = found(tmp_path)
    assert [day.day_ms for day in staleness.days] == [SINCE_MS + 2 * DAY_MS]

    remove_data_files(tmp_path)

    assert found(tmp_path) == staleness


@pytest.mark.parametrize(
    ("text", "is_added"), [(CLICKS, False), (SESSIONS, False), (SESSIONS, True)], ids=["gone", "parted", "joined"]
)
def test_only_the_data_files_of_the_affected_days_are_opened(tmp_path: Path, text: str, *, is_added: bool) -> None:
    publish_days(tmp_path, text)
    if is_added:
        write_clicks(tmp_path / "data/late.parquet", [click(3, 7)])
    else:
        (tmp_path / "data/3.parquet").unlink()
    staleness = found(tmp_path)
    assert [day.day_ms for day in staleness.days] == [SINCE_MS + 2 * DAY_MS]
    assert staleness.days[0].windows

    assert remove_data_files(tmp_path, kept=(3,)) == DAYS - 1

    assert found(tmp_path) == staleness


def test_the_run_of_a_file_without_an_entry_is_read_from_its_rows(tmp_path: Path) -> None:
    definition = publish_days(tmp_path)
    with table_of(tmp_path).transaction() as transaction:
        transaction.set_properties({"write.metadata.metrics.column.run_id": "none"})
    publish_day(tmp_path, definition, 2, CLICKED[:8])

    files = {min(file.runs)[0]: file for file in load_published_windows(home(tmp_path), "clicks").files}

    run_id = table_of(tmp_path).scan(row_filter=f"run_id != '{run_of(files[SINCE_MS])}'").to_arrow()["run_id"]
    day_ms = SINCE_MS + 2 * DAY_MS
    looked_up = files[day_ms]
    assert looked_up.runs == {(day_ms, run_of(looked_up))}
    assert run_of(looked_up) in run_id.to_pylist()
    assert (looked_up.first_ms, looked_up.end_ms) == (day_ms + 6 * HOUR_MS, day_ms + 13 * HOUR_MS)
    file = files[SINCE_MS]
    assert (file.first_ms, file.end_ms) == (SINCE_MS + 6 * HOUR_MS, SINCE_MS + 19 * HOUR_MS)


def run_of(file: PublishedFile) -> str:
    ((_, run_id),) = file.runs
    return run_id


def test_a_chain_of_sessions_is_followed_into_the_files_of_other_days(tmp_path: Path) -> None:
    #  day 1, home  12:30 -------------------- 01:30     a record at 13:00 joins it
    #  day 2, home                          01:30 -- 03:30     which was published without regard to day 1
    #  day 2, help                     00:30 -- 02:30    and     08:30 -- 10:30, home and help
    first = [click(1, hour) for hour in range(12, 24)]
    second = [click(2, 0, "help"), click(2, 1), click(2, 8), click(2, 8, "help")]
    write_clicks(tmp_path / "data/a.parquet", [*first, *second])
    definition = write_definition(tmp_path, SESSIONS)
    publish_day(tmp_path, definition, 0, first)
    publish_day(tmp_path, definition, 1, second)
    lake, at_ms = load_published_windows(home(tmp_path), "clicks"), SINCE_MS + 13 * HOUR_MS
    touch = ChangedRecords("late", ChangeKind.ADDED, at_ms, at_ms, 1, '["home"]')

    met = find_affected_rows(lake, ["page"], load_definition(definition).window.spec(), [touch], set())

    half = HOUR_MS // 2
    assert sorted(met, key=lambda row: row[1]) == [
        ('["home"]', TimeWindow(SINCE_MS + 12 * HOUR_MS + half, SINCE_MS + 25 * HOUR_MS + half)),
        ('["home"]', TimeWindow(SINCE_MS + 25 * HOUR_MS + half, SINCE_MS + 27 * HOUR_MS + half)),
    ]


HISTORIES = 12
WINDOWS = {
    "tumbling": 'kind = "tumbling"\nsize = "1h"',
    "sliding": 'kind = "sliding"\nsize = "30h"\nslide = "2h"',
    "session": 'kind = "session"\ngap = "3h"',
}


@pytest.mark.parametrize("window", WINDOWS)
def test_the_affected_rows_give_the_same_stale_windows_as_all_rows(tmp_path: Path, window: str) -> None:
    """Publish days from different records, so that sessions of one key overlap."""
    chance = random.Random(window)  # noqa: S311 - test data
    text = CLICKS.replace('kind = "tumbling"\nsize = "1h"', WINDOWS[window])
    rows = [random_click(chance) for _ in range(30)]
    write_clicks(tmp_path / "data/a.parquet", rows)
    path = write_definition(tmp_path, text)
    for day in range(DAYS):
        publish_day(tmp_path, path, day, chance.sample(rows, 24))
    spec, lake = load_definition(path).window.spec(), load_published_windows(home(tmp_path), "clicks")
    every, met = all_rows(lake), 0
    of_days = {SINCE_MS + day * DAY_MS for day in range(DAYS)}

    for _ in range(HISTORIES):
        touches = [random_touch(chance) for _ in range(chance.randrange(1, 5))]
        some = find_affected_rows(lake, ["page"], spec, touches, of_days)
        assert find_stale_windows(spec, touches, some) == find_stale_windows(spec, touches, every), touches
        met += len(some)

    assert 0 < met < HISTORIES * len(every)


def random_click(chance: random.Random) -> Click:
    return click(chance.randrange(1, DAYS + 1), chance.randrange(24), chance.choice(("home", "help", "news")))


def random_touch(chance: random.Random) -> ChangedRecords:
    """Return changed records of a key within an hour, or a removed file with known bounds."""
    at_ms = SINCE_MS + chance.randrange(DAYS * DAY_MS)
    if chance.random() < 0.2:
        return ChangedRecords(
            "went", ChangeKind.REMOVED, at_ms, at_ms + 3 * HOUR_MS, is_added=False, is_of_any_key=True
        )
    key, is_added = key_text([chance.choice(("home", "help", "new"))]), chance.random() < 0.5
    return ChangedRecords("came", ChangeKind.CHANGED, at_ms, at_ms + HOUR_MS // 2, 1, key, is_added=is_added)


def all_rows(lake: PublishedWindows) -> list[tuple[str, TimeWindow]]:
    table = lake.rows(lambda _: True, ["page"])
    places = zip(*(table[name].to_pylist() for name in ("page", WINDOW_START, WINDOW_END)), strict=True)
    return [(key_text([page]), TimeWindow(epoch_ms(start), epoch_ms(end))) for page, start, end in places]
