"""Check the search for stale windows after files were added, changed and removed."""

from __future__ import annotations

import json
import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.workflow.history import CLICKS, COLUMNS, at, write_clicks, write_definition
from tests.workflow.publishing import counts, publish_counts

from backstream.definition.loader import load_definition, resolve_paths
from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import TimeWindow
from backstream.pages.store import PageStore
from backstream.pages.views import windows_page
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.source.files import SourceFiles, inspect_files
from backstream.source.key_index import KeyIndex
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.late_data.staleness import Staleness, list_reasons
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

Click = tuple[Any, ...]
SINCE_MS = instant_ms("2024-03-01", "since")


def click(when: str, number: int, page: str = "home", origin: str = "A", minutes_later: int = 1) -> Click:
    return (at(when), at(when) + timedelta(minutes=minutes_later), origin, number, page)


FIRST = [click(f"{day} {hour:02}:30", 24 * day + hour) for day in (1, 2, 3, 4) for hour in range(0, 24, 6)]


def published(
    folder: Path, definition: Path, rows: list[Click] | None = None, days: int = 4, mode: Mode | None = None
) -> Plan:
    """Publish the first days of March in one run."""
    plan = plan_of(folder, definition, days, mode)
    publish_counts(plan, FIRST if rows is None else rows)
    return plan


def plan_of(folder: Path, definition: Path, days: int = 4, mode: Mode | None = None) -> Plan:
    until_ms = SINCE_MS + days * DAY_MS
    return plan_run(
        PlanRequest(
            definition, Interval(SINCE_MS, until_ms), mode=mode, trigger="test", home=Home(folder / "home")
        )
    )


def found(folder: Path, **bounds: int) -> Staleness:
    return find_stale_days(folder / "clicks.toml", Home(folder / "home"), **bounds)


def reasons(staleness: Staleness) -> list[list[str]]:
    """Return the reasons of each stale day."""
    return [list_reasons([day], staleness.changes) for day in staleness.days]


def starts_by_day(staleness: Staleness) -> dict[str, list[str]]:
    """Return the starts of the stale windows by day."""
    return {
        instant_text(day.day_ms)[8:10]: [instant_text(window.window.start_ms)[8:16] for window in day.windows]
        for day in staleness.days
    }


def test_the_windows_of_events_in_an_added_file_are_stale(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path))
    assert found(tmp_path).days == ()

    late = [click("2 06:10", 900), click("2 06:50", 901, "help"), click("3 23:59", 902), click("9 01:00", 903)]
    write_clicks(tmp_path / "data/b.parquet", late)

    staleness = found(tmp_path)
    assert starts_by_day(staleness) == {"02": ["02T06:00"], "03": ["03T23:00"]}
    assert reasons(staleness) == [
        [f"added: {tmp_path}/data/b.parquet, 2 records"],
        [f"added: {tmp_path}/data/b.parquet, 1 record"],
    ]
    assert staleness.published_days == 4
    assert json.loads(json.dumps(staleness.as_json()))["stale_days"][0] == {
        "day": "2024-03-02",
        "mode": "recompute",
        "reasons": [],
        "windows": [
            {
                "window_start": "2024-03-02T06:00Z",
                "window_end": "2024-03-02T07:00Z",
                "keys": [["help"], ["home"]],
                "is_of_any_key": True,  # records are copies by origin and seq, not by page
                "files": [{"path": f"{tmp_path}/data/b.parquet", "change": "added", "more_records": 2}],
            }
        ],
    }


def test_a_day_that_was_run_again_is_not_stale(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    definition = write_definition(tmp_path)
    published(tmp_path, definition)
    late = [click("1 06:10", 900), click("3 06:10", 901)]
    write_clicks(tmp_path / "data/b.parquet", late)

    published(tmp_path, definition, [*FIRST, *late], days=1)

    assert starts_by_day(found(tmp_path)) == {"03": ["03T06:00"]}


def test_adjacent_stale_days_are_one_range(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path))
    write_clicks(tmp_path / "data/b.parquet", [click(f"{day} 06:10", day) for day in (1, 2, 4)])

    assert found(tmp_path).ranges() == [
        (Interval(SINCE_MS, SINCE_MS + 2 * DAY_MS), Mode.RECOMPUTE),
        (Interval(SINCE_MS + 3 * DAY_MS, SINCE_MS + 4 * DAY_MS), Mode.RECOMPUTE),
    ]


def test_only_days_of_the_range_are_searched(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path))
    write_clicks(tmp_path / "data/b.parquet", [click(f"{day} 06:10", day) for day in (1, 2, 4)])

    second = found(tmp_path, since_ms=SINCE_MS + DAY_MS, until_ms=SINCE_MS + 3 * DAY_MS)

    assert (second.published_days, list(starts_by_day(second))) == (2, ["02"])
    with pytest.raises(SpecError, match="a range needs both ends: --until is missing"):
        found(tmp_path, since_ms=SINCE_MS)


@pytest.mark.parametrize(
    ("mode", "keys"),
    [
        (Mode.RECOMPUTE, ("aggregates.clicks", "aggregates.views", "window.size")),
        (Mode.REPLAY, ("aggregates.clicks", "aggregates.views", "window.size", "watermark.delay")),
    ],
)
def test_the_keys_that_changed_since_a_run_are_listed_with_its_days(
    tmp_path: Path, mode: Mode, keys: tuple[str, ...]
) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path), mode=mode)
    limits = "\n[quality]\nrows_ratio = 0.1\n"
    renamed = CLICKS.replace("clicks = ", "views = ") + limits

    changed = write_definition(tmp_path, renamed, size='"2h"', delay='"20m"')
    staleness = find_stale_days(changed, Home(tmp_path / "home"))

    assert staleness.days == ()
    (change,) = staleness.definition_changes
    assert change.keys == keys
    assert change.ranges() == [Interval(SINCE_MS, SINCE_MS + 4 * DAY_MS)]


def test_a_definition_without_changed_values_has_no_changed_keys(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path))

    limits = write_definition(tmp_path, CLICKS + "\n[quality]\nrows_ratio = 0.1\n")

    assert find_stale_days(limits, Home(tmp_path / "home")).definition_changes == ()


def test_a_published_day_without_rows_is_stale_after_its_first_event(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path), days=6)
    write_clicks(tmp_path / "data/b.parquet", [click("6 06:10", 900), click("8 06:10", 901)])

    assert starts_by_day(found(tmp_path)) == {"06": ["06T06:00"]}


def test_a_removed_or_changed_file_makes_the_windows_of_its_records_stale(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write_clicks(tmp_path / f"data/{day}.parquet", [each for each in FIRST if each[0].day == day])
    published(tmp_path, write_definition(tmp_path))
    (tmp_path / "data/2.parquet").unlink()
    os.utime(tmp_path / "data/3.parquet", (0, 0))

    staleness = found(tmp_path)

    assert reasons(staleness) == [
        [f"removed: {tmp_path}/data/2.parquet, 4 records"],
        [f"changed: {tmp_path}/data/3.parquet, the same number of records"],
    ]
    assert starts_by_day(staleness) == {
        "02": ["02T00:00", "02T06:00", "02T12:00", "02T18:00"],
        "03": ["03T00:00", "03T06:00", "03T12:00", "03T18:00"],
    }


def test_a_renamed_file_makes_no_day_stale(tmp_path: Path) -> None:
    for day in (1, 2):
        write_clicks(tmp_path / f"data/{day}.parquet", [each for each in FIRST if each[0].day == day])
    published(tmp_path, write_definition(tmp_path))
    (tmp_path / "data/2.parquet").rename(tmp_path / "data/second.parquet")

    staleness = found(tmp_path)

    assert staleness.days == ()
    assert staleness.as_json()["moved_files"] == [
        {
            "path": f"{tmp_path}/data/second.parquet",
            "path_before": f"{tmp_path}/data/2.parquet",
            "change": "renamed",
            "records": sum(each[0].day == 2 for each in FIRST),
        }
    ]
    home = Home(tmp_path / "home")
    (line,) = refresh_dataset_state(tmp_path / "clicks.toml", home).moves
    assert line == (
        f"renamed: {tmp_path}/data/2.parquet is now {tmp_path}/data/second.parquet, with the same 4 records"
    )
    assert f"R{line[1:]}" in windows_page(PageStore.from_home(home), "backfill_clicks", may_run=True).html


def test_a_file_that_is_written_again_makes_the_days_of_its_old_and_new_records_stale(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    write_clicks(tmp_path / "data/b.parquet", [click("2 06:10", 900)])
    published(tmp_path, write_definition(tmp_path))
    write_clicks(tmp_path / "data/b.parquet", [click("3 06:10", 900), click("3 06:20", 901)])

    staleness = found(tmp_path)

    assert starts_by_day(staleness) == {"02": ["02T06:00"], "03": ["03T06:00"]}
    assert reasons(staleness) == [[f"changed: {tmp_path}/data/b.parquet, 1 more record"]] * 2


def test_all_days_of_a_run_without_its_plan_are_stale(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    plan = published(tmp_path, write_definition(tmp_path))
    plan.folder.plan.unlink()

    assert {day.reasons for day in found(tmp_path).days} == {
        (f"the input of run {plan.run_id} is unknown: its plan cannot be read",)
    }


LIVE = CLICKS + '\n[backfill]\npublish = "live"\n'


@pytest.mark.parametrize(
    ("text", "minutes_later", "whole"), [(LIVE, 1, True), (LIVE, 9999, False), (CLICKS, 1, False)]
)
def test_a_file_that_arrived_during_the_replayed_input_changes_the_watermarks_and_a_later_one_does_not(
    tmp_path: Path, text: str, minutes_later: int, *, whole: bool
) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path, text), mode=Mode.REPLAY)
    write_clicks(tmp_path / "data/b.parquet", [click("2 06:10", 900, minutes_later=minutes_later)])

    days = found(tmp_path).days

    assert len(days) == (4 if whole else 1)
    reason = f"the watermarks would change: {tmp_path}/data/b.parquet arrived before the end of the replayed input"
    assert days[0].reasons == ((reason,) if whole else ())
    assert days[0].mode is Mode.REPLAY


def test_a_new_file_is_read_once(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path))
    late = tmp_path / "data/b.parquet"
    write_clicks(late, [click("2 06:10", 900)])
    first = starts_by_day(found(tmp_path))
    as_it_was = late.stat()

    # Its footer can still be read, its rows cannot.
    content = bytearray(late.read_bytes())
    content[4:200] = bytes(196)
    late.write_bytes(content)
    os.utime(late, ns=(as_it_was.st_atime_ns, as_it_was.st_mtime_ns))

    assert starts_by_day(found(tmp_path)) == first == {"02": ["02T06:00"]}


def test_event_times_that_only_spark_can_evaluate_are_refused(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    published(tmp_path, write_definition(tmp_path, event_time='"page"'))
    write_clicks(tmp_path / "data/b.parquet", [click("2 06:10", 900)])

    with pytest.raises(PlanError) as refused:
        found(tmp_path)

    assert str(refused.value) == (
        "only Spark can evaluate source.event_time: 'page'\n\n"
        "hint: use a timestamp column with a zone, timestamp_millis(column) or timestamp_seconds(column)"
    )


@pytest.mark.parametrize(
    ("expression", "kind", "values"),
    [
        ("at", pa.timestamp("us", "America/New_York"), [-1, 1_500, 3_600_000_000]),
        ("at", pa.timestamp("ms", "UTC"), [-1, 1, 3_600_000]),
        ("timestamp_millis(at)", pa.int64(), [-1, 1, 3_600_000]),
        ("timestamp_seconds(at)", pa.int32(), [-1, 0, 3_600]),
    ],
)
def test_instants_are_floored_to_milliseconds_as_spark_does(
    tmp_path: Path, expression: str, kind: pa.DataType, values: list[int]
) -> None:
    file = tmp_path / "data/a.parquet"
    rows = [(None, at("1 00:00"), "A", 0, "home"), *((value, at("1 00:00"), "A", 0, "home") for value in values)]
    write_clicks(file, rows, {"at": kind, **{name: COLUMNS[name] for name in list(COLUMNS)[1:]}})
    wide = CLICKS.replace("key =", 'event_time_range = ["1969-01-01", "2100-01-01"]\nkey =')
    written = write_definition(tmp_path, wide, event_time=f'"{expression}"')
    definition = resolve_paths(load_definition(written), Home(tmp_path / "home"))
    (described,) = inspect_files(SourceFiles((str(file),), {}), definition.timed_source).inputs

    held = KeyIndex.from_definition(definition, Home(tmp_path / "home")).load_slices(described)

    expected = {
        "timestamp_seconds(at)": [(-1000, -1000, 1), (0, 0, 1), (3_600_000, 3_600_000, 1)],
    }.get(expression, [(-1, -1, 1), (1, 1, 1), (3_600_000, 3_600_000, 1)])
    assert sorted((each.first_ms, each.last_ms, each.events) for each in held) == expected


WINDOWS = {
    "tumbling": 'kind = "tumbling"\nsize = "1h"\noffset = "15m"',
    "sliding": 'kind = "sliding"\nsize = "5h"\nslide = "2h"',
    "cumulate": 'kind = "cumulate"\nsize = "6h"\nstep = "2h"',
    "session": 'kind = "session"\ngap = "3h"',
}
HISTORIES = 10


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("copies", ["none", "equal times", "first", "last"])
def test_no_row_changes_outside_the_stale_windows(
    tmp_path: Path, window: str, record_property: Any, copies: str
) -> None:
    chance = random.Random(f"{window} {copies}")  # noqa: S311 - test data
    right = wrong = 0
    for number in range(HISTORIES):
        folder = tmp_path / str(number)
        text = CLICKS.replace('kind = "tumbling"\nsize = "1h"', WINDOWS[window])
        if copies in ("first", "last"):
            text = text.replace("\n[window]", f'deduplicate_keep = "{copies}"\n\n[window]')
        old, new, gone = (clicks(chance, name) for name in ("A", "B", "C"))
        if copies != "none":
            hours = 0 if copies == "equal times" else 30
            new += copied(chance, [*old, *gone], hours)
            gone += copied(chance, old, hours)
        for name, rows in (("a", old), ("c", gone)):
            write_clicks(folder / f"data/{name}.parquet", rows)
        plan = plan_of(folder, write_definition(folder, text))
        before = publish_counts(plan, [*old, *gone])
        write_clicks(folder / "data/b.parquet", new)
        is_removed = number % 2 == 1
        if is_removed:
            (folder / "data/c.parquet").unlink()
        after = counts(plan, [*old, *new] if is_removed else [*old, *gone, *new])

        staleness = found(folder)
        named, whole = _named(staleness), {day.day_ms for day in staleness.days if day.reasons}
        changed = {place for place in {*before, *after} if before[place] != after[place]}

        days = {day_ms for _, _, day_ms in named}
        assert {_day(each) for _, each in changed} <= days | whole
        assert is_removed or not whole or window == "session"
        kept = changed if window != "session" else changed & {*before}
        kept = {place for place in kept if _day(place[1]) not in whole}
        covered = {place for place in {*before, *after} if _is_named(place, named)}
        assert kept <= covered, (old, new, gone)
        right, wrong = right + len(covered & changed), wrong + len(covered - changed)
    record_property("precision", right / (right + wrong))
    print(f"{window}, copies {copies}: precision {right / (right + wrong):.2f} of {right + wrong} rows")  # noqa: T201 - the measure


def test_only_rows_of_copies_of_a_late_record_are_stale(tmp_path: Path) -> None:
    on_the_next_day = click("3 05:30", 66)  # the record of the second day at 18:30 is a duplicate of it
    write_clicks(tmp_path / "data/a.parquet", [*FIRST, on_the_next_day])
    text = CLICKS.replace("\n[window]", 'deduplicate_keep = "last"\n\n[window]')
    published(tmp_path, write_definition(tmp_path, text), [*FIRST, on_the_next_day])

    write_clicks(tmp_path / "data/b.parquet", [click("3 12:10", 66, minutes_later=0)])

    assert starts_by_day(found(tmp_path)) == {"03": ["03T05:00", "03T12:00"]}


def clicks(chance: random.Random, origin: str) -> list[Click]:
    """Return a few clicks of four days."""
    found = []
    for number in range(chance.randrange(1, 9)):
        when = f"{chance.randrange(1, 5)} {chance.randrange(24):02}:{chance.choice(('00', '15', '40'))}"
        found.append(click(when, number, chance.choice(("home", "help")), origin))
    return found


def copied(chance: random.Random, rows: list[Click], hours: int) -> list[Click]:
    """Return copies of some clicks, by origin and number; the page may differ, and the times by some hours."""
    found = []
    for at_time, arrived_at, origin, number, _ in (row for row in rows if chance.random() < 0.4):
        shift = timedelta(hours=chance.randint(-hours, hours))
        found.append((at_time + shift, arrived_at + shift, origin, number, chance.choice(("home", "help"))))
    return found


def _named(staleness: Staleness) -> set[tuple[str | None, TimeWindow, int]]:
    return {
        (None if window.is_of_any_key else json.loads(key)[0], window.window, day.day_ms)
        for day in staleness.days
        for window in day.windows
        for key in (window.keys or {'[""]'})
    }


def _is_named(place: tuple[str, TimeWindow], named: set[tuple[str | None, TimeWindow, int]]) -> bool:
    day_ms = _day(place[1])
    return (place[0], place[1], day_ms) in named or (None, place[1], day_ms) in named


def _day(window: TimeWindow) -> int:
    return window.start_ms - window.start_ms % DAY_MS
