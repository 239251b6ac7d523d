"""Several sources of different formats are one stream, with the watermarks that Flink's union of sources has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.prepared import events as made
from tests.prepared.events import FIRST_DAY, Event
from tests.sources import tables

import backstream
from backstream.definition.loader import load_definition
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import Pane, PaneTiming, WindowResults, fire_windows
from backstream.lake.catalog import open_catalog
from backstream.runs.home import Home
from backstream.workflow.advice_text import advice_text
from backstream.workflow.advise import prepare_advice, recommend_delay
from backstream.workflow.checks.check_definition import check_definition
from backstream.workflow.checks.check_sample import check_sample
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

Settings = Mapping[str, str]
WATERMARKS: Mapping[str, Settings] = {
    "one delay, from the index": {
        "shared": 'strategy = "bounded_out_of_orderness"\ndelay = "20m"',
    },
    "two delays": {
        "web": 'strategy = "bounded_out_of_orderness"\ndelay = "5m"',
        "shop": 'strategy = "bounded_out_of_orderness"\ndelay = "40m"',
    },
    "markers and idleness": {
        "shared": 'strategy = "bounded_out_of_orderness"\ndelay = "10m"\nidle_timeout = "3h"',
        "shop": 'strategy = "punctuated"\nmarker = "amount % 3 = 0"\ndelay = "15m"\nidle_timeout = "2h"',
    },
    "a time lag beside a maximum": {
        "shared": 'emit_interval = "1m"',
        "web": 'strategy = "time_lag"\ndelay = "30m"\nidle_timeout = "1h"',
        "shop": 'strategy = "monotonous"\nidle_timeout = "1h"',
    },
}
DEFINITION = """
name = "orders"
[[source]]
name = "web"
format = "json"
path = "{folder}/web"
event_time = "payload.at"
arrival_time = "received"
arrival_time_unit = "ms"
partition = "partition"
sequence = "offset"
key = ["user"]
derive = {{ user = "payload.user.id", amount = "payload.amount" }}
[source.columns]
partition = "int"
offset = "bigint"
received = "bigint"
payload = "struct<at: string, user: struct<id: string>, amount: bigint>"
{web}
[[source]]
name = "shop"
format = "avro"
path = "{folder}/shop"
event_time = "at"
arrival_time = "received"
arrival_time_unit = "us"
partition = "partition"
sequence = "offset"
key = ["user"]
{shop}
[window]
{window}
[watermark]
{shared}
[lateness]
allowed = "10m"
[aggregates]
orders = "count(*)"
revenue = "sum(amount)"
[backfill]
chunk = "{chunk}"
engine = "{engine}"
publish = "live"
[quality]
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
"""
HOURS = 'kind = "tumbling"\nsize = "1h"'
SESSIONS = 'kind = "session"\ngap = "5m"'


def make_source(seed: int, silent: range) -> list[Event]:
    """Return events of three days with whole milliseconds, none of which arrived in the silent hours."""
    return [
        replace(event, at=_stretch(event.at), arrived=_stretch(event.arrived))
        for event in made.make_events(600, seed)
        if (_stretch(event.arrived) - FIRST_DAY) // timedelta(hours=1) not in silent
    ]


def _stretch(instant: datetime) -> datetime:
    return floor_ms(FIRST_DAY + (instant - FIRST_DAY) * 1.5)


def floor_ms(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


SOURCES = {"web": make_source(3, range(20, 31)), "shop": make_source(4, range(44, 53))}


def ms(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


Place = tuple[str, int, int]
"""A key with the start and the end of a window."""
Value = tuple[int, int]
"""A number of orders and their revenue."""


def _place_of(pane: Pane) -> Place:
    return str(pane.key), pane.window.start_ms, pane.window.end_ms


@dataclass(frozen=True, slots=True)
class Expected:
    """The result of the reference engine for the events of all sources."""

    partitions: list[str]
    records: list[Record]
    results: WindowResults

    def panes(self) -> dict[Place, list[Value]]:
        """Return the count and the sum of each pane by key and window."""
        panes: dict[Place, list[Value]] = {}
        for pane in self.results.panes:
            values = [self.records[number].value for number in pane.records]
            panes.setdefault(_place_of(pane), []).append((len(values), sum(values)))
        return panes

    def on_time(self) -> set[Place]:
        """Return the windows that a watermark fired."""
        return {_place_of(pane) for pane in self.results.panes if pane.timing is PaneTiming.ON_TIME}

    def dropped(self) -> list[tuple[str, int, int]]:
        """Return partition, arrival, and event time of the dropped records."""
        records = [self.records[number] for number in self.results.dropped]
        return sorted(
            (self.partitions[record.source_partition], record.arrival_time_ms, record.event_time_ms)
            for record in records
        )


def expect(definition_path: Path, delay_ms: int | None = None) -> Expected:
    """Run all events through the reference engine, in arrival order.

    With a delay, all sources have bounded watermarks with this delay.
    """
    definition = load_definition(definition_path)
    partitions = ["shop/0", "shop/1", "web/0", "web/1"]
    arrivals = sorted(
        (ms(event.arrived), event.offset, f"{name}/{event.partition}", event)
        for name, events in SOURCES.items()
        for event in events
    )
    records = [
        Record(at_ms, partitions.index(name), event.user, ms(event.at), event.amount, event.amount % 3 == 0)
        for at_ms, _, name, event in arrivals
    ]
    emission = definition.emission.with_partitions(partitions)
    if delay_ms is not None:
        strategies = {
            source.name: replace(source.strategy, kind=StrategyKind.BOUNDED, delay_ms=delay_ms)
            for source in emission.sources
        }
        sources = [replace(source, strategy=strategies[source.name]) for source in emission.sources]
        emission = Emission.from_sources(sources)
    clock = SourceClock(arrivals[0][0], emission.strategy.interval_ms, arrivals[-1][0])
    watermarks = compute_watermarks(records, emission, clock, range(4))
    lateness_ms = definition.lateness.allowed
    return Expected(partitions, records, fire_windows(records, watermarks, definition.window.spec(), lateness_ms))


def write_definition(folder: Path, watermarks: Settings, *, window: str = HOURS, chunk: str, engine: str) -> Path:
    own = {name: f"[source.watermark]\n{watermarks[name]}" for name in ("web", "shop") if name in watermarks}
    path = folder / "orders.toml"
    content = {"web": "", "shop": "", "shared": watermarks.get("shared", ""), **own}
    path.write_text(DEFINITION.format(folder=folder, window=window, chunk=chunk, engine=engine, **content))
    return path


def table(home: Home, suffix: str) -> list[dict[str, Any]]:
    with open_catalog(home) as catalog:
        rows: list[dict[str, Any]] = catalog.load_table(f"backstream.orders{suffix}").scan().to_arrow().to_pylist()
    return rows


def place(row: Mapping[str, Any]) -> Place:
    return row["user"], ms(row["window_start"]), ms(row["window_end"])


def published(home: Home) -> dict[Place, Value]:
    return {place(row): (row["orders"], row["revenue"]) for row in table(home, "")}


def panes(home: Home, pane: str) -> dict[Place, Value]:
    """Return the first or the live value of all windows that have one."""
    rows = [row for row in table(home, "__panes") if row[f"orders__{pane}"] is not None]
    return {place(row): (row[f"orders__{pane}"], row[f"revenue__{pane}"]) for row in rows}


def dropped(home: Home, run_id: str) -> list[tuple[str, int, int]]:
    return sorted(
        (row["source_partition"], ms(row["arrival_time"]), ms(row["event_time"]))
        for row in table(home, "__dropped")
        if row["run_id"] == run_id
    )


def write_files(folder: Path) -> None:
    """Write each source in several files, in its own format."""
    for name, events in SOURCES.items():
        write = made.write_json if name == "web" else made.write_avro
        for start in range(0, len(events), 200):
            write(folder / name, f"{start}.{'json' if name == 'web' else 'avro'}", events[start : start + 200])


def run(path: Path, home: Home, mode: str = "replay") -> str:
    """Publish the three days, and return the ID of the run."""
    result = backstream.run(path, "2024-03-01", "2024-03-04", mode=mode, home=home.path, allow_unsealed=True)
    return result.plan.run_id


CASES = [
    (HOURS, "one delay, from the index", [("1d", "native")]),
    (HOURS, "two delays", [("1d", "native")]),
    (HOURS, "markers and idleness", [("3d", "spark"), ("1d", "native")]),
    (HOURS, "a time lag beside a maximum", [("1d", "spark")]),
    (SESSIONS, "two delays", [("1d", "native")]),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("window", "name", "ways"), CASES)
def test_a_union_is_replayed_as_by_the_reference(
    window: str, name: str, ways: Sequence[tuple[str, str]], tmp_path: Path
) -> None:
    write_files(tmp_path)
    home = Home(tmp_path / "home")
    for chunk, engine in ways:
        path = write_definition(tmp_path, WATERMARKS[name], window=window, chunk=chunk, engine=engine)
        run_id = run(path, home)

        expected = expect(path)
        assert len(expected.dropped()) > 10
        assert dropped(home, run_id) == expected.dropped()
        assert published(home) == panes(home, "live") == {at: each[-1] for at, each in expected.panes().items()}
        if window == HOURS:
            assert any(len(each) > 1 for each in expected.panes().values())
            assert panes(home, "first") == {
                at: each[0] for at, each in expected.panes().items() if at in expected.on_time()
            }


@pytest.mark.usefixtures("spark")
def test_a_union_is_recomputed_from_all_events(tmp_path: Path) -> None:
    write_files(tmp_path)
    home = Home(tmp_path / "home")
    path = write_definition(tmp_path, WATERMARKS["two delays"], chunk="1d", engine="auto")
    path.write_text(path.read_text().replace('publish = "live"', ""))
    run(path, home, "recompute")

    sums = made.sums_by_hour(event for events in SOURCES.values() for event in events)
    assert published(home) == {
        (user, ms(start), ms(start) + HOUR_MS): value for (user, start), value in sums.items()
    }


def test_the_advised_delay_is_one_for_all_sources(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path)
    home = Home(tmp_path / "home")
    path = write_definition(tmp_path, WATERMARKS["markers and idleness"], chunk="3d", engine="auto")
    prepare_source(path, home, SparkRunner(lambda: spark))

    request = prepare_advice(path, ms(FIRST_DAY), ms(FIRST_DAY + timedelta(days=3)), 0.99, home)
    advice = recommend_delay(spark, request)

    for delay_ms in (0, 5 * MINUTE_MS, 20 * MINUTE_MS, 80 * MINUTE_MS):
        fates = Counter(expect(path, delay_ms).results.fates)
        effect = advice.at(delay_ms)
        assert (effect.late, effect.dropped) == (fates[Fate.LATE], fates[Fate.DROPPED])
    assert advice.current_ms is None
    assert "idle after 2h or idle after 3h" in advice_text(request, advice)


def test_check_reads_a_sample_of_each_source(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path)
    home = Home(tmp_path / "home")
    path = write_definition(tmp_path, WATERMARKS["markers and idleness"], chunk="3d", engine="auto")

    checked = check_definition(path, home)
    sample = check_sample(spark, path, 100_000, home)

    assert (checked.problems, checked.reason) == ((), "there are several sources")
    assert any(line.startswith("source      web json, shop avro, 6 files") for line in checked.lines)
    expected = expect(path)
    assert sample.read == len(expected.records)
    assert sample.fates == Counter(fate.value for fate in expected.results.fates)

    path.write_text(path.read_text().replace('"sum(amount)"', '"sum(price)"'))
    (problem,) = check_definition(path, home).problems
    assert str(problem).startswith("aggregates.revenue names 'price', which is not a column, in 'sum(price)'")


def test_late_records_of_an_iceberg_table_and_of_files_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, home = tables.on_disk(tmp_path / "archive"), Home(tmp_path / "home")
    archive.configure(monkeypatch.setenv)
    web, shop = made.make_events(120, 5), made.make_events(120, 6)
    made.write_json(tmp_path / "web", "0.json", web[:60])
    archive.append(shop[:90])
    path = write_definition(tmp_path, {"shared": ""}, chunk="1d", engine="auto")
    path.write_text(
        path.read_text()
        .replace('format = "avro"', 'format = "iceberg"')
        .replace(f'path = "{tmp_path}/shop"', 'path = "archive.sales.orders"')
        .replace('arrival_time_unit = "us"', "")
        .replace('publish = "live"', "")
        .replace('allowed = "10m"', "")
    )

    def stale_days() -> list[int]:
        prepare_source(path, home, SparkRunner(lambda: spark))
        return [(day.day_ms - ms(FIRST_DAY)) // DAY_MS for day in find_stale_days(path, home).days]

    def sums(*events: Event) -> dict[Place, Value]:
        return {
            (user, ms(start), ms(start) + HOUR_MS): value
            for (user, start), value in made.sums_by_hour(events).items()
        }

    run(path, home, "recompute")
    assert published(home) == sums(*web[:60], *shop[:90])
    assert stale_days() == []

    archive.append(shop[90:])
    assert stale_days() == [1]
    made.write_json(tmp_path / "web", "1.json", web[60:])
    run(path, home, "recompute")
    assert published(home) == sums(*web, *shop)
    assert stale_days() == []
