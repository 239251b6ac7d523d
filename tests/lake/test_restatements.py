from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from backstream.errors import ConflictError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.publication import publish as module
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.restatements import read_restatements
from backstream.lake.published_runs import find_published_run, load_replacement
from backstream.lake.reader import load_published_rows, load_rows

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

RANGE = ("2013-02-01", "2013-02-03")


def restatements(lake: Lake) -> list[tuple[Any, ...]]:
    """Return the restatements: start of the window, change, aggregate, values, difference, the two runs."""
    columns = ("change", "aggregate", "old_value", "new_value", "difference", "old_run_id", "run_id")
    found = load_published_rows(lake.home, "flights", "restatements").to_pylist()
    return [(row["window_start"].strftime("%d %H:%M"), *(row[name] for name in columns)) for row in found]


def test_a_first_publication_restates_nothing(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    lake.publish("2013-02-03", "2013-02-04", {"2013-02-03T05:00Z": 1})

    with open_catalog_for_writing(lake.home) as catalog:
        assert not catalog.table_exists(table_identifier("flights__restatements"))
    assert restatements(lake) == []


def test_a_second_publication_records_the_changed_rows_and_their_runs(lake: Lake) -> None:
    first = lake.publish(*RANGE, {"2013-02-01T05:00Z": 1, "2013-02-01T06:00Z": 2, "2013-02-02T05:00Z": 3})
    second = lake.publish(
        *RANGE, {"2013-02-01T05:00Z": 1, "2013-02-01T06:00Z": 7, "2013-02-02T07:00Z": 4}, trigger="later"
    )

    old, new = first.run_id, second.run_id
    assert restatements(lake) == [
        ("01 06:00", "changed", "departures", "2", "7", 5.0, old, new),
        ("02 05:00", "removed", "departures", "3", None, None, old, new),
        ("02 05:00", "removed", "mean_delay_min", "0.5", None, None, old, new),
        ("02 07:00", "added", "departures", None, "4", None, None, new),
        ("02 07:00", "added", "mean_delay_min", None, "0.5", None, None, new),
    ]


def test_the_recorded_changes_of_a_run_are_those_of_its_files(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1, "2013-02-01T06:00Z": 2, "2013-02-02T05:00Z": 3})
    trigger = "scheduled__2013-03-01T00:00:00+00:00"
    run_id = lake.publish(*RANGE, {"2013-02-01T06:00Z": 7, "2013-02-02T07:00Z": 4}, trigger=trigger).run_id
    lake.publish(*RANGE, {"2013-02-01T06:00Z": 8}, trigger=trigger.replace("03-01", "03-02"))

    with open_catalog_for_writing(lake.home) as catalog:
        run = find_published_run(catalog, run_id)
        assert run is not None
        recorded = pa.concat_tables(read_restatements(catalog, "flights", run_id, ["carrier"]))
        compared = pa.concat_tables(load_replacement(run).changes())

    assert recorded.num_rows == 7
    assert recorded.to_pylist() == compared.to_pylist()
    assert recorded.column_names == compared.column_names


def test_the_same_rows_again_restate_nothing(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1}, trigger="later")

    assert restatements(lake) == []


def test_rows_outside_the_range_are_left_out(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 3})
    lake.publish("2013-02-02", "2013-02-03", {"2013-02-02T05:00Z": 4}, trigger="later")

    assert [row[:5] for row in restatements(lake)] == [("02 05:00", "changed", "departures", "3", "4")]


def test_removed_rows_of_an_emptied_range_are_recorded(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 3})
    lake.publish(*RANGE, {}, trigger="later")

    changes = [row[:5] for row in restatements(lake) if row[2] == "departures"]
    assert changes == [
        ("01 05:00", "removed", "departures", "1", None),
        ("02 05:00", "removed", "departures", "3", None),
    ]


def test_an_interval_takes_the_windows_that_start_in_it(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1, "2013-02-02T05:00Z": 3})
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 2, "2013-02-02T05:00Z": 4}, trigger="later")
    second_day = Interval(instant_ms("2013-02-02", "since"), instant_ms("2013-02-03", "until"))

    found = load_published_rows(lake.home, "flights", "restatements", second_day)

    assert found["new_value"].to_pylist() == ["4"]


def test_a_run_that_died_before_its_commit_has_restated_nothing_and_a_retry_writes_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*RANGE, "later")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2}, metrics=[("EWR", 2)])
    finish = module._commit_windows  # noqa: SLF001 - the fault is injected here
    monkeypatch.setattr(module, "_commit_windows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish_range(plan, manifests)
    monkeypatch.setattr(module, "_commit_windows", finish)
    assert load_rows(lake.home, "flights__restatements").num_rows == 1
    assert load_published_rows(lake.home, "flights", "metrics").num_rows == 0
    assert restatements(lake) == []

    publish_range(plan, manifests)

    assert [row[1:5] for row in restatements(lake)] == [("changed", "departures", "1", "2")]
    assert load_published_rows(lake.home, "flights", "metrics").num_rows == 1
    assert len(lake.table("flights__restatements").snapshots()) == 1
    folder = lake.home.warehouse / "backstream" / "flights__restatements" / "data"
    assert len(list(folder.rglob("*.parquet"))) == 1  # the second attempt writes no file


def test_a_run_that_lost_restates_nothing(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    plan = lake.plan(*RANGE, "late")
    manifests = lake.staged(plan, {"2013-02-01T05:00Z": 2})
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1}, trigger="quick")

    with pytest.raises(ConflictError):
        publish_range(plan, manifests)

    assert restatements(lake) == []


def test_a_new_aggregate_changes_from_null(lake: Lake) -> None:
    lake.publish(*RANGE, {"2013-02-01T05:00Z": 1})
    with lake.table().update_schema() as update:
        update.rename_column("mean_delay_min", "former")
    plan = lake.plan(*RANGE, "grown")
    publish_range(plan, lake.staged(plan, {"2013-02-01T05:00Z": 1}))

    assert [row[1:5] for row in restatements(lake)] == [
        ("changed", "former", "0.5", None),
        ("changed", "mean_delay_min", None, "0.5"),
    ]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
