"""Staleness speaks of the user's files, although they are prepared in batches: natively, and with Spark."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.workflow.publishing import publish_counts

from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.source.input_versions import require_unchanged_inputs
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.late_data.staleness import Staleness, list_reasons
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.runners import SparkRunner

FIRST = datetime(2024, 3, 1, tzinfo=UTC)
SINCE_MS, DAYS = instant_ms("2024-03-01", "since"), 3
JSON = 'format = "json"\ncolumns = { ts = "string", page = "string" }'
CSV = 'format = "csv"\ncolumns = { ts = "string", page = "string" }\noptions = { header = "true" }'
DEFINITION = """\
name = "clicks"
[source]
path = "{folder}/in"
{source}
event_time = "ts"
key = ["page"]
[window]
{window}
[aggregates]
clicks = "count(*)"
"""
HOURLY = 'kind = "tumbling"\nsize = "1h"'


class Click(NamedTuple):
    """A record; the time is a text, so that it may be unreadable."""

    ts: str
    page: str


def click(minutes: int, page: str = "a") -> Click:
    return Click((FIRST + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ"), page)


def day(number: int) -> list[Click]:
    """Return a click for each hour of a day of March, five minutes after the hour."""
    return [click(1440 * (number - 1) + 60 * hour + 5) for hour in range(24)]


def write_json(path: Path, clicks: Iterable[Click]) -> None:
    text = "".join(f"{json.dumps(each._asdict())}\n" for each in clicks)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_csv(path: Path, clicks: Iterable[Click]) -> None:
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        csv.writer(file).writerows([Click._fields, *clicks])


class Archive:
    """A source with files of a user that a run has read, and that can be put back as they were."""

    def __init__(self, folder: Path, spark: SparkSession, source: str, window: str = HOURLY) -> None:
        self.folder, self.spark, self.home = folder, spark, Home(folder / "home")
        self.files = folder / "in"
        self.write_clicks, self.suffix = (
            (write_json, "jsonl") if source.startswith(JSON[:15]) else (write_csv, "csv")
        )
        self.definition = folder / "clicks.toml"
        self.definition.write_text(DEFINITION.format(folder=folder, source=source, window=window))
        self.files.mkdir()

    def path(self, name: str, more: str = "") -> Path:
        """Return the path of a file by its name without a suffix."""
        return self.files / f"{name}.{self.suffix}{more}"

    def write(self, files: Mapping[str, Iterable[Click]]) -> None:
        """Write files by their names."""
        for name, clicks in files.items():
            self.write_clicks(self.path(name), clicks)

    def publish(self, clicks: Iterable[Click], mode: Mode = Mode.RECOMPUTE) -> Plan:
        """Publish the readable clicks, and keep the files as they are."""
        prepare_source(self.definition, self.home, SparkRunner(lambda: self.spark))
        interval = Interval(SINCE_MS, SINCE_MS + DAYS * DAY_MS)
        plan = plan_run(PlanRequest(self.definition, interval, mode=mode, trigger="test", home=self.home))
        readable = (each for each in clicks if each.ts.endswith("Z"))
        rows = [(datetime.fromisoformat(each.ts), None, "A", n, each.page) for n, each in enumerate(readable)]
        publish_counts(plan, rows)
        shutil.copytree(self.files, self.folder / "published")  # with the times of the files
        return plan

    def restore(self) -> None:
        """Put the files back as they were published."""
        shutil.rmtree(self.files)
        shutil.copytree(self.folder / "published", self.files)

    def stale(self) -> Staleness:
        """Prepare the files, and return the stale days."""
        prepare_source(self.definition, self.home, SparkRunner(lambda: self.spark))
        return find_stale_days(self.definition, self.home)

    def said(self) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Return the reasons by day, and the moved files, with the names of files only."""
        staleness, root = self.stale(), f"{self.files}/"
        days = {
            instant_text(each.day_ms)[8:10]: [
                reason.replace(root, "") for reason in list_reasons([each], staleness.changes)
            ]
            for each in staleness.days
        }
        moves = {
            Path(path).name: f"{move.kind} {Path(str(move.path_before)).name}"
            for path, move in staleness.moves.items()
        }
        return days, moves


BAD = Click("yesterday", "b")
FILES = {
    "d1": day(1),
    "d2": day(2),
    "d3": day(3),
    "bad": [click(100), BAD, BAD],
    "empty": [],
    "long": [click(1440 * number + 700, "long") for number in range(-40, 40)],
}


def append(archive: Archive) -> None:
    archive.write({"d3": [*day(3), click(1440 * 2 + 755)]})


def rename(archive: Archive) -> None:
    archive.path("d2").rename(archive.path("second"))


def compress(archive: Archive) -> None:
    archive.write_clicks(archive.path("d2", ".gz"), day(2))
    archive.path("d2").unlink()


def delete(archive: Archive) -> None:
    archive.path("d1").unlink()


def add(archive: Archive) -> None:
    archive.write({"late": [click(30), click(31, "b"), click(1440 + 30)]})


def touch(archive: Archive) -> None:
    os.utime(archive.path("d2"), (0, 0))


def write_the_same(archive: Archive) -> None:
    archive.write({"d2": day(2)[::-1]})


def split(archive: Archive) -> None:
    archive.write({"d2": day(2)[:10], "d2-rest": day(2)[10:]})


def append_to_a_long_file(archive: Archive) -> None:
    archive.write({"long": [*FILES["long"], click(1440 + 3)]})


def append_unreadable(archive: Archive) -> None:
    archive.write({"bad": [*FILES["bad"], BAD]})


def correct_unreadable(archive: Archive) -> None:
    archive.write({"bad": [click(100), BAD, click(200)]})


def fill_an_empty_file(archive: Archive) -> None:
    archive.write({"empty": [click(1440 * 2 + 1)]})


def correct_a_value(archive: Archive) -> None:
    archive.write({"d2": [*day(2)[:-1], day(2)[-1]._replace(page="b")]})


def rename_and_append(archive: Archive) -> None:
    archive.path("d2").rename(archive.path("second"))
    archive.write({"second": [*day(2), click(1440 + 33)]})


CHANGES: dict[Callable[[Archive], None], tuple[dict[str, list[str]], dict[str, str]]] = {
    append: ({"03": ["changed: d3.X, 1 more record"]}, {}),
    rename: ({}, {"second.X": "renamed d2.X"}),
    compress: ({}, {"d2.X.gz": "compressed d2.X"}),
    delete: ({"01": ["removed: d1.X, 24 records"]}, {}),
    add: ({"01": ["added: late.X, 2 records"], "02": ["added: late.X, 1 record"]}, {}),
    touch: ({}, {}),
    write_the_same: ({}, {}),
    split: ({}, {}),
    append_to_a_long_file: ({"02": ["changed: long.X, 1 more record"]}, {}),
    append_unreadable: ({}, {}),
    correct_unreadable: ({"01": ["changed: bad.X, 1 more record"]}, {}),
    fill_an_empty_file: ({"03": ["changed: empty.X, 1 more record"]}, {}),
    correct_a_value: ({"02": ["changed: d2.X, the same number of records"]}, {}),
    rename_and_append: ({"02": ["changed: second.X (before: d2.X), 1 more record"]}, {}),
}


@pytest.mark.parametrize("source", [JSON, CSV], ids=["native json", "csv by Spark"])
def test_a_change_of_a_file_makes_the_days_of_its_changed_records_stale(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    archive = Archive(tmp_path, spark, source)
    archive.write(FILES)
    archive.publish(each for clicks in FILES.values() for each in clicks)
    assert archive.said() == ({}, {})

    found = {}
    for change in CHANGES:
        change(archive)
        found[change.__name__] = archive.said()
        archive.restore()

    assert json.loads(json.dumps(found).replace(f".{archive.suffix}", ".X")) == {
        change.__name__: [*expected] for change, expected in CHANGES.items()
    }
    assert archive.said() == ({}, {})
    archive.write({"d3": [*day(3), click(1440 * 2 + 755, "b")]})
    staleness = archive.stale()
    (window,) = staleness.as_json()["stale_days"][0]["windows"]
    assert window == {
        "window_start": "2024-03-03T12:00Z",
        "window_end": "2024-03-03T13:00Z",
        "keys": [["b"]],
        "is_of_any_key": False,
        "files": [{"path": str(archive.path("d3")), "change": "changed", "more_records": 1}],
    }


LIVE = '''kind = "tumbling"
size = "1h"
[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"
[backfill]
publish = "live"'''
ARRIVALS = JSON.replace("{ ", '{ arrived = "string", ') + '\narrival_time = "arrived"'


def test_a_line_that_arrived_during_a_replay_changes_its_watermarks_and_a_later_one_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = Archive(tmp_path, spark, ARRIVALS, LIVE)

    def write(name: str, *clicks: Click, arrived: str | None = None) -> None:
        lines = (json.dumps({**each._asdict(), "arrived": arrived or each.ts}) for each in clicks)
        (archive.files / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    for number in (1, 2, 3):
        write(f"d{number}", *day(number))
    archive.suffix = "jsonl"
    archive.publish([each for number in (1, 2, 3) for each in day(number)], Mode.REPLAY)
    assert archive.said() == ({}, {})

    write("d4", click(1440 + 30), arrived="2024-04-01T00:00:00Z")
    assert archive.said() == ({"02": ["added: d4.jsonl, 1 record"]}, {})
    archive.restore()
    write("d4", click(1440 + 30))
    reason = "the watermarks would change: d4.jsonl arrived before the end of the replayed input"
    assert archive.said() == ({f"0{number}": [reason] for number in (1, 2, 3)}, {})
    archive.restore()
    (archive.files / "d1.jsonl").rename(archive.files / "first.jsonl")
    assert archive.said() == ({}, {"first.jsonl": "renamed d1.jsonl"})


def test_an_appended_record_makes_the_windows_of_its_copies_in_other_files_stale(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = Archive(tmp_path, spark, f'{JSON}\ndeduplicate_on = ["page"]\ndeduplicate_within = "2d"')
    files = {"d1": [click(605, "x"), click(705, "y")], "d2": [click(1440 + 5, "z"), click(1440 + 65, "w")]}
    archive.write(files)
    archive.publish([*files["d1"], *files["d2"]])

    archive.write({"d2": [*files["d2"], click(545, "x")]})

    staleness = archive.stale()
    starts = [instant_text(window.window.start_ms) for each in staleness.days for window in each.windows]
    assert starts == ["2024-03-01T09:00Z", "2024-03-01T10:00Z"]
    assert list_reasons(staleness.days, staleness.changes) == [f"changed: {archive.path('d2')}, 1 more record"]


def test_a_run_that_cannot_be_resumed_names_the_file_that_changed(spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(tmp_path, spark, JSON)
    archive.write({"d1": day(1), "d2": day(2)})
    plan = archive.publish([*day(1), *day(2)])
    size = archive.path("d2").stat().st_size
    archive.write({"d2": [*day(2), click(1440 + 7)]})
    archive.stale()

    with pytest.raises(PlanError) as caught:
        require_unchanged_inputs(plan)

    assert str(caught.value) == (
        f"cannot run {plan.run_id}: 1 input file cannot be read as planned\n"
        f"  changed: {archive.path('d2')} had {size:,} bytes, has {archive.path('d2').stat().st_size:,}\n\n"
        "hint: restore the files, or create a new plan for the range"
    )


def test_all_days_are_stale_if_the_contents_of_a_replaced_batch_are_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = Archive(tmp_path, spark, JSON)
    archive.write({"d1": day(1), "d2": day(2)})
    archive.publish([*day(1), *day(2)])
    append_line = [*day(2), click(1440 + 7)]
    archive.write({"d2": append_line})
    archive.stale()
    (batch,) = tmp_path.glob("home/prepared/clicks/*/batch-*")
    for path in tmp_path.glob("home/prepared/clicks/*/_contents/*.json"):
        if path.stem != batch.name:
            path.unlink()

    days, _ = archive.said()

    assert [*days] == ["01", "02", "03"]
    assert days["01"][0].startswith("the input of run test.")
    assert days["01"][0].endswith(" were removed")


SESSIONS, GAP_MS = 'kind = "session"\ngap = "3h"', 3 * HOUR_MS


@pytest.mark.parametrize("window", [HOURLY, SESSIONS], ids=["hours", "sessions"])
def test_no_window_changes_outside_of_the_stale_ones(spark: SparkSession, tmp_path: Path, window: str) -> None:
    chance = random.Random(window)  # noqa: S311 - test data
    archive = Archive(tmp_path, spark, JSON, window)
    files = {f"f{number}": [random_click(chance) for _ in range(chance.randrange(1, 12))] for number in range(4)}
    archive.write(files)
    archive.publish(each for clicks in files.values() for each in clicks)
    before = windows(files, window)

    for _ in range(6):
        changed = {path: list(clicks) for path, clicks in files.items()}
        for _ in range(chance.randrange(1, 4)):
            mutate(chance, changed)
        archive.write(changed)
        for path in files.keys() - changed.keys():
            archive.path(path).unlink()

        named = {
            (None if each.is_of_any_key else json.loads(key)[0], each.window.start_ms, each.window.end_ms)
            for stale_day in archive.stale().days
            for each in stale_day.windows
            for key in (each.keys or {'["a"]'})
        }

        after = windows(changed, window)
        wrong = {place for place in {*before, *after} if before[place] != after[place]}
        missed = {place for place in wrong if place not in named and (None, *place[1:]) not in named}
        # The name of a session that becomes another one, or is split, may be that of the published one.
        assert not (missed if window == HOURLY else missed & {*before})
        if window == HOURLY:
            days = {start // DAY_MS for _, start, _ in wrong}
            assert {start // DAY_MS for _, start, _ in named} == days
        archive.restore()


def random_click(chance: random.Random) -> Click:
    return click(chance.randrange(DAYS * 1440 // 20) * 20, chance.choice("ab"))


def mutate(chance: random.Random, files: dict[str, list[Click]]) -> None:
    path = chance.choice(sorted(files))
    change = chance.choice(("append", "delete", "rename", "move"))
    if change == "append":
        files[path].append(random_click(chance))
    elif change == "delete":
        files[path] = files[path][1:]
    elif change == "rename":
        files[f"{path}r"] = files.pop(path)
    elif len(files) > 1:
        moved = files.pop(path)
        files[chance.choice(sorted(files))] += moved


def windows(files: Mapping[str, Iterable[Click]], window: str) -> Counter[tuple[str, int, int]]:
    """Return the number of clicks by page and window of the published days."""
    clicks = sorted((each.page, instant_ms(each.ts, "ts")) for part in files.values() for each in part)
    counted: Counter[tuple[str, int, int]] = Counter()
    if window == HOURLY:
        return Counter((page, at - at % HOUR_MS, at - at % HOUR_MS + HOUR_MS) for page, at in clicks)
    last: tuple[str, int, int] | None = None
    for page, at in clicks:
        if last and last[0] == page and at <= last[2]:
            count, last = counted.pop(last), (page, last[1], at + GAP_MS)
        else:
            count, last = 0, (page, at, at + GAP_MS)
        counted[last] = count + 1
    return counted
