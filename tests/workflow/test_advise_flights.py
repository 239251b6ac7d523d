"""Compare the advice on the flights of February 2013 with a replay for each of several delays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from array import array
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from demo.flights import prepare
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from backstream.cli import app
from backstream.definition.loader import load_definition
from backstream.errors import PlanError, SpecError
from backstream.eventtime.delay_analysis import DelayAdvice
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS, instant_ms
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.runs.home import Home
from backstream.spark.session import SMALL_DATA_SETTINGS
from backstream.variables import HOME_VARIABLE
from backstream.workflow.advice_text import advice_text
from backstream.workflow.advise import AdviceRequest, prepare_advice, recommend_delay

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
FLIGHTS = PROJECT / "pipelines" / "definitions" / "flights.toml"
DOCUMENTATION = PROJECT / "docs" / "watermarks.md"
SINCE_MS, UNTIL_MS = instant_ms("2013-02-01", "since"), instant_ms("2013-03-01", "until")
FIRST_DAY, LAST_DAY = "2013-01-29", "2013-03-02"
"""First and last arrival date of the recording: the source was opened on the first and ended on the last."""
DELAYS_MS = [
    *(minutes * MINUTE_MS for minutes in (0, 1, 20, 45, 90)),
    *(hours * HOUR_MS for hours in (4, 14)),
    *(185 * MINUTE_MS + more for more in (0, 1)),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home with the shortened recording."""
    path = tmp_path_factory.mktemp("home")
    for folder in prepare(path).history.glob("arrival_date=*"):
        if not FIRST_DAY <= folder.name.removeprefix("arrival_date=") <= LAST_DAY:
            shutil.rmtree(folder)
    return Home(path)


@pytest.fixture(scope="module")
def advice_request(home: Home) -> AdviceRequest:
    return prepare_advice(FLIGHTS, SINCE_MS, UNTIL_MS, 0.999, home)


@pytest.fixture(scope="module")
def advice(spark: SparkSession, advice_request: AdviceRequest) -> DelayAdvice:
    return recommend_delay(spark, advice_request)


@dataclass(frozen=True)
class Recording:
    """The flights as input of the reference engine."""

    records: list[Record]
    partitions: list[str]

    @classmethod
    def read(cls, folder: Path) -> Recording:
        """Read all rows in arrival order."""
        columns = ["departed_at", "seq", "origin", "scheduled_departure"]
        table = pq.read_table(folder, columns=columns, partitioning=None)
        origins = sorted(set(table["origin"].to_pylist()))
        arrived_us, event_us = (table[name].cast("int64").to_pylist() for name in (columns[0], columns[3]))
        rows = zip(arrived_us, table["seq"].to_pylist(), table["origin"].to_pylist(), event_us, strict=True)
        return cls(
            [
                Record(at // 1000, origins.index(origin), "", event // 1000)
                for at, _, origin, event in sorted(rows)
            ],
            origins,
        )

    def fates(self, delay_ms: int) -> Counter[Fate]:
        """Count the fates of the flights of February with this delay in the definition."""
        definition = load_definition(FLIGHTS)
        section, arrivals_ms = definition.watermark, [record.arrival_time_ms for record in self.records]
        strategy = WatermarkStrategy(StrategyKind.BOUNDED, delay_ms, section.emit_interval, section.idle_timeout)
        clock = SourceClock(arrivals_ms[0], section.emit_interval, arrivals_ms[-1])
        watermarks = compute_watermarks(self.records, Emission(strategy), clock, range(len(self.partitions)))
        result = fire_windows(self.records, watermarks, definition.window.spec(), definition.lateness.allowed)
        fates = zip(self.records, result.fates, strict=True)
        return Counter(fate for record, fate in fates if SINCE_MS <= record.event_time_ms < UNTIL_MS)


@pytest.fixture(scope="module")
def recording(home: Home) -> Recording:
    return Recording.read(home.data / "flights")


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_the_advice_has_the_same_counts_as_a_replay(
    advice: DelayAdvice, recording: Recording, delay_ms: int
) -> None:
    fates = recording.fates(delay_ms)

    effect = advice.at(delay_ms)

    assert effect.dropped == fates[Fate.DROPPED]
    assert effect.late == fates[Fate.LATE]
    assert advice.records == fates.total()


def test_no_smaller_delay_keeps_as_much(advice: DelayAdvice, recording: Recording) -> None:
    best_ms = advice.recommended_ms

    dropped = [recording.fates(delay_ms)[Fate.DROPPED] for delay_ms in (best_ms - 1, best_ms)]

    assert best_ms == 185 * MINUTE_MS + 1
    assert [1 - count / advice.records >= advice.keep for count in dropped] == [False, True]


def test_the_command_prints_the_output_in_the_documentation(home: Home, tmp_path: Path) -> None:
    command = "backstream advise flights --since 2013-02-01 --until 2013-03-01"
    _, _, rest = DOCUMENTATION.read_text(encoding="utf-8").partition(f"$ {command}\n")
    shown, _, _ = rest.partition("```")
    # For a month of flights, compiling costs more than running.
    settings = {key: value for key, value in SMALL_DATA_SETTINGS.items() if key.startswith("spark.sql.codegen")}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    result = subprocess.run(
        [Path(sys.executable).with_name("backstream"), *command.split()[1:]],
        env=os.environ | {HOME_VARIABLE: str(home.path), "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, shown)


@pytest.mark.usefixtures("spark")
def test_the_command_prints_the_whole_curve_as_json(
    home: Home, advice: DelayAdvice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # other tests use the session after the command

    result = CliRunner(env={HOME_VARIABLE: str(home.path)}).invoke(
        app, ["advise", "flights", "--since", "2013-02-01", "--until", "2013-03-01", "--format", "json"]
    )

    assert (result.exit_code, result.stdout) == (0, advice.json_text())


def test_the_curve_in_the_file_is_the_advice_at_every_minute(advice: DelayAdvice) -> None:
    curve = json.loads(advice.json_text())["curve"]
    points = list(zip(curve["delay_ms"], curve["dropped"], curve["late"], strict=True))

    for delay_ms in range(0, 14 * HOUR_MS, MINUTE_MS):
        _, dropped, late = max(point for point in points if point[0] <= delay_ms)
        assert (dropped, late) == (advice.at(delay_ms).dropped, advice.at(delay_ms).late)


def test_the_advice_lists_its_limits(advice_request: AdviceRequest, advice: DelayAdvice) -> None:
    windows = replace(advice.firings, watermark_ms=array("q"), risen_at_ms=array("q"))
    limited = replace(advice, firings=windows, dropped=replace(advice.dropped, step_ms=10))

    lines = advice_text(advice_request, limited).splitlines()

    assert "521 of the windows fire only because the recording ends." in lines
    assert "Delays are counted in steps of 10ms." in lines


def written(folder: Path, *replaced: tuple[str, str]) -> Path:
    """Write the definition of the flights with some lines replaced."""
    text = FLIGHTS.read_text(encoding="utf-8")
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    file = folder / "flights.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_advice_for_another_strategy_has_no_current_delay(
    home: Home, spark: SparkSession, advice: DelayAdvice, tmp_path: Path
) -> None:
    bounded = 'strategy = "bounded_out_of_orderness"\ndelay = "30m"'
    file = written(tmp_path, (bounded, 'strategy = "punctuated"\nmarker = "seq % 2 = 0"'))
    other = prepare_advice(file, SINCE_MS, UNTIL_MS, 0.999, home)

    other_advice = recommend_delay(spark, other)

    assert (other_advice.current_ms, other_advice.recommended_ms) == (None, advice.recommended_ms)
    assert other_advice.at(HOUR_MS) == advice.at(HOUR_MS)
    assert "(median); the definition has no delay of this kind to compare with." in advice_text(
        other, other_advice
    )


REFUSED = [
    (
        ('kind = "tumbling"\nsize = "1h"', 'kind = "session"\ngap = "1h"'),
        "it has session windows ({file})",
        "the sessions of a record depend on the records before it, and therefore on the delay",
    ),
    (
        ("[source]", 'time = "ingestion"\n\n[source]'),
        "its windows use ingestion time ({file})",
        "only windows of event time can have records out of order",
    ),
]


@pytest.mark.parametrize(("replaced", "problem", "fact"), REFUSED)
def test_windows_without_advice_are_refused(
    home: Home, tmp_path: Path, replaced: tuple[str, str], problem: str, fact: str
) -> None:
    file = written(tmp_path, replaced)

    with pytest.raises(SpecError) as caught:
        prepare_advice(file, SINCE_MS, UNTIL_MS, 0.999, home)
    assert str(caught.value) == f"cannot advise on flights: {problem.format(file=file)}\n  {fact}"


def test_a_source_without_arrival_times_is_refused(home: Home, tmp_path: Path) -> None:
    file = written(tmp_path, ('arrival_time = "departed_at"\n', ""))

    with pytest.raises(PlanError) as caught:
        prepare_advice(file, SINCE_MS, UNTIL_MS, 0.999, home)
    assert str(caught.value) == (
        f"cannot advise on flights: the source has no arrival times ({file})\n"
        "  source.arrival_time is None\n\n"
        "hint: it must be a timestamp column whose Parquet footers have min and max"
    )


def test_a_range_without_records_is_refused(home: Home, spark: SparkSession) -> None:
    june, july = instant_ms("2013-06-01", "since"), instant_ms("2013-07-01", "until")
    with pytest.raises(PlanError) as caught:
        prepare_advice(FLIGHTS, june, july, 0.999, home)
    message = "cannot advise on flights: no record from {}"
    assert str(caught.value) == message.format("2013-06-01T00:00Z to 2013-07-01T00:00Z")

    # A file has flights on both sides of this night, but none in it.
    night = prepare_advice(
        FLIGHTS, instant_ms("2013-02-01T06:00Z", "s"), instant_ms("2013-02-01T07:00Z", "u"), 1.0, home
    )
    with pytest.raises(PlanError) as caught:
        recommend_delay(spark, night)
    assert str(caught.value) == message.format("2013-02-01T06:00Z to 2013-02-01T07:00Z")
