from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from backstream.errors import ContractError, LedgerError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.reader import content_hash, load_rows

if TYPE_CHECKING:
    from tests.lake.conftest import Lake

FEBRUARY_2 = Interval(instant_ms("2013-02-02", "test"), instant_ms("2013-02-03", "test"))


def test_an_interval_takes_the_windows_that_start_in_it(lake: Lake) -> None:
    lake.publish(
        "2013-02-01", "2013-02-04", {"2013-02-01T23:59Z": 1, "2013-02-02T00:00Z": 2, "2013-02-03T00:00Z": 3}
    )

    assert load_rows(lake.home, "flights", FEBRUARY_2)["departures"].to_pylist() == [2]


def test_a_snapshot_shows_the_table_as_it_was(lake: Lake) -> None:
    first = lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3})
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 30}, trigger="later")

    then = load_rows(lake.home, "flights", snapshot_id=first.snapshots[""])

    assert then["departures"].to_pylist() == [3]
    assert load_rows(lake.home, "flights")["departures"].to_pylist() == [30]


def test_a_table_in_which_nothing_was_published_has_no_rows(lake: Lake) -> None:
    lake.make(lake.plan("2013-02-01", "2013-02-02"))

    assert load_rows(lake.home, "flights").num_rows == 0


def test_a_snapshot_that_is_not_there_is_named(lake: Lake) -> None:
    lake.make(lake.plan("2013-02-01", "2013-02-02"))

    with pytest.raises(LedgerError) as caught:
        load_rows(lake.home, "flights", snapshot_id=7)

    assert str(caught.value) == "table `flights` has no snapshot 7"


def test_an_interval_of_a_table_without_windows_is_refused(lake: Lake) -> None:
    lake.make(lake.plan("2013-02-01", "2013-02-02"))

    with pytest.raises(ContractError) as caught:
        load_rows(lake.home, "flights__metrics", FEBRUARY_2)

    assert str(caught.value) == (
        "table `flights__metrics` has no column `window_start`,"
        " so that 2013-02-02T00:00Z to 2013-02-03T00:00Z cannot be selected"
    )


def test_two_runs_that_publish_the_same_have_the_same_hash(lake: Lake) -> None:
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T05:00Z": 3, "2013-02-01T06:00Z": 4})
    first = load_rows(lake.home, "flights")
    lake.publish("2013-02-01", "2013-02-02", {"2013-02-01T06:00Z": 4, "2013-02-01T05:00Z": 3}, trigger="again")
    second = load_rows(lake.home, "flights")

    assert first["run_id"].to_pylist() != second["run_id"].to_pylist()
    assert content_hash(first) == content_hash(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}),
        ({"a": [1, 2]}, {"b": [1, 2]}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": [""]}, {"a": [None]}),
        ({"a": ["x,y"], "b": ["z"]}, {"a": ["x"], "b": ["y,z"]}),
    ],
)
def test_different_rows_have_different_hashes(one: dict[str, list[str]], other: dict[str, list[str]]) -> None:
    assert content_hash(pa.table(one)) != content_hash(pa.table(other))


def test_neither_order_nor_batches_matter_to_the_hash() -> None:
    one = pa.table({"a": [2, None, 1], "b": ["y", "z", "x"], "run_id": ["r", "r", "r"]})
    other = pa.concat_tables(
        [
            pa.table({"a": pa.array([None], pa.int64()), "b": ["z"], "run_id": ["s"]}),
            pa.table({"a": [1, 2], "b": ["x", "y"], "run_id": ["s", "t"]}),
        ]
    )

    assert content_hash(one) == content_hash(other)
