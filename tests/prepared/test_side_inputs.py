"""A transformation joins the records with side inputs, whose version is part of the plan."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.prepared import events as made
from tests.prepared.events import Event, make_events, sums_by_hour
from tests.prepared.test_prepared import ORDERS, published, write_definition

import backstream
from backstream.errors import BackstreamError, PlanError, SpecError
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

CODE = """
def enrich(orders, customers, rates):
    joined = orders.join(customers, orders.payload.user.id == customers.id)
    at = "timestamp_millis(received)"
    is_valid = f"{at} >= since and ({at} < valid_until or valid_until is null)"
    return joined.join(rates, on="country").where(is_valid).selectExpr("*", "payload.amount * rate as cents")
"""
INPUTS = """
[inputs.customers]
format = "csv"
path = "{folder}/customers.csv"
options = {{ header = "true" }}
columns = {{ id = "string", country = "string" }}
key = ["id"]

[inputs.rates]
format = "json"
path = "{folder}/rates"
columns = {{ country = "string", since = "timestamp", rate = "int" }}
key = ["country"]
as_of = "since"
"""
MARCH_2 = datetime(2024, 3, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user on the path."""
    (tmp_path / "enriching.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("enriching", None)


def write_inputs(folder: Path, rate: int = 7) -> Path:
    """Write records, users a and b of two countries, and their rates, one of which changes on March 2."""
    (folder / "customers.csv").write_text("country,id\nSE,a\nNO,b\n")  # not in the order of `columns`
    write_rates(folder, rate)
    source = 'transform = "enriching:enrich"\n' + ORDERS
    path = write_definition(folder, source, "cents")
    path.write_text(path.read_text() + INPUTS.format(folder=folder))
    return path


def write_rates(folder: Path, rate: int) -> None:
    """Write the rates; `rate` is valid from March 2 on."""
    (folder / "rates").mkdir(exist_ok=True)
    (folder / "rates/rates.jsonl").write_text(
        '{"country": "SE", "since": "2020-01-01T00:00:00Z", "rate": 2}\n'
        f'{{"country": "SE", "since": "2024-03-02T00:00:00Z", "rate": {rate}}}\n'
        '{"country": "NO", "since": "2020-01-01T00:00:00Z", "rate": 3}\n'
    )


def with_rates(events: list[Event], rate: int) -> list[Event]:
    def amount(event: Event) -> int:
        swedish = rate if event.arrived >= MARCH_2 else 2
        return event.amount * (swedish if event.user == "a" else 3)

    known = (event for event in events if event.user in "ab")
    return [
        Event(event.at, event.arrived, event.partition, event.offset, event.user, amount(event)) for event in known
    ]


@pytest.mark.usefixtures("spark")
def test_a_changed_input_is_refused_by_its_plan_and_changes_the_next_run(tmp_path: Path) -> None:
    home, events = Home(tmp_path / "home"), make_events(60)
    made.write_json(tmp_path / "data", "events.json", events)
    definition = write_inputs(tmp_path, rate=7)

    def run() -> None:
        backstream.run(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)

    run()
    assert published(home, "payload_user_id") == sums_by_hour(with_rates(events, 7))

    plan = backstream.plan(definition, "2024-03-01", "2024-03-03", home=home.path, allow_unsealed=True)
    notes = dict(describe_inputs(plan))
    assert notes["Transformed"] == f"source.transform read 60 records and returned {len(with_rates(events, 7))}"
    assert [text for label, text in describe_inputs(plan) if label == "Input"] == [
        f"{name}: {pinned}" for name, pinned in plan.side_inputs.items()
    ]
    write_rates(tmp_path, rate=11)
    changed = (
        f"^cannot run {plan.run_id}: the input 'rates' changed since it was planned"
        rf" \({definition}, inputs.rates\)\n  1 file, 186 bytes \(\w+\) -> 1 file, 187 bytes \(\w+\)\n"
    )
    with pytest.raises(PlanError, match=changed):
        backstream.execute(plan)

    run()
    assert published(home, "payload_user_id") == sums_by_hour(with_rates(events, 11))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "customers.csv",
            "id,country\na,SE\na,NO\n",
            "2 rows of the input have id = a, a join would multiply records ({place}, inputs.customers)",
        ),
        (
            "rates/rates.jsonl",
            "{broken\n",
            "a line is not json, or has a value of another type: '{{broken' ({place}, inputs.rates)",
        ),
    ],
)
def test_an_input_that_cannot_be_joined_is_named(file: str, content: str, message: str, tmp_path: Path) -> None:
    made.write_json(tmp_path / "data", "events.json", make_events(5))
    definition = write_inputs(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(SpecError, match=f"^{re.escape(message.format(place=definition))}$"):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=tmp_path / "home", allow_unsealed=True)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone.csv", "no file or folder at {folder}/gone.csv ({place}, inputs.customers.path)"),
        ("data/*.csv", "no csv files under {folder}/data/*.csv ({place}, inputs.customers.path)"),
        (
            "ftp://host/customers.csv",
            "an object store must be one of .*, got 'ftp' ({place}, inputs.customers.path)",
        ),
    ],
)
def test_a_missing_input_is_named_by_its_own_key(
    path: str, message: str, spark: SparkSession, tmp_path: Path
) -> None:
    made.write_json(tmp_path / "data", "events.json", make_events(5))
    definition = write_inputs(tmp_path)
    own = path if "://" in path else f"{tmp_path}/{path}"
    definition.write_text(definition.read_text().replace(f"{tmp_path}/customers.csv", own))
    expected = re.escape(message.format(folder=tmp_path, place=definition)).replace(r"\.\*,", ".*,")
    with pytest.raises(BackstreamError, match=f"^{expected}"):
        prepare_source(definition, Home(tmp_path / "home"), SparkRunner(lambda: spark))


def test_a_new_file_is_prepared_alone_and_a_changed_input_prepares_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, home = make_events(30), Home(tmp_path / "home")
    made.write_json(tmp_path / "data", "a.json", events[:10])
    definition = write_inputs(tmp_path)

    def prepared_files() -> int:
        prepared = prepare_source(definition, home, SparkRunner(lambda: spark))
        return prepared.files if prepared else 0

    assert (prepared_files(), prepared_files()) == (1, 0)
    made.write_json(tmp_path / "data", "b.json", events[10:20])
    assert (prepared_files(), prepared_files()) == (1, 0)
    made.write_json(tmp_path / "data", "b.json", events[10:30])
    assert (prepared_files(), prepared_files()) == (1, 0)
    write_rates(tmp_path, rate=11)
    assert (prepared_files(), prepared_files()) == (2, 0)


def test_an_input_without_a_transformation_has_no_meaning(tmp_path: Path) -> None:
    definition = write_inputs(tmp_path)
    definition.write_text(definition.read_text().replace('transform = "enriching:enrich"', ""))
    sentence = "inputs.customers has no meaning without source.transform, which gets it"
    with pytest.raises(SpecError, match=sentence):
        backstream.plan(definition, "2024-03-01", "2024-03-03", home=tmp_path / "home")
