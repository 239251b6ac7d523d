from __future__ import annotations

from pathlib import Path

import pytest

from backstream.definition.column_lineage import ColumnLineage, Origin, Step, find_origins
from backstream.definition.loader import load_definition

ORDERS = """\
name = "orders"

[source]
path = "/data/orders"
event_time = "payload.at"
arrival_time = "received"
key = ["payload.shop", "day"]
deduplicate_on = ["id"]
where = "net > 0"

[source.derive]
net = "payload.price - discount"
day = "date_trunc('day', cast(net as timestamp))"

[window]
kind = "tumbling"
size = "1h"

[aggregates]
orders = "count(*)"
revenue = "sum(net)"

[derive_after]
mean = "revenue / orders"

[having]
condition = "orders > 1"
"""
CODE = """
[job]
function = "shop:scores"
columns = {score = "double"}
"""


def origins(folder: Path, text: str, *, is_replay: bool = False) -> ColumnLineage:
    file = folder / "orders.toml"
    file.write_text(text)
    found = find_origins(load_definition(file), is_replay=is_replay, known=["discount", "id"])
    assert found is not None
    return found


def test_each_column_of_the_result_has_the_columns_of_the_files_behind_it(tmp_path: Path) -> None:
    time = (Origin("payload.at", Step.TRANSFORMATION, "tumbling"),)
    net = ("discount", "payload.price")
    assert origins(tmp_path, ORDERS).columns == {
        "window_start": time,
        "window_end": time,
        "payload_shop": (Origin("payload.shop", Step.IDENTITY),),
        "day": tuple(Origin(path, Step.TRANSFORMATION) for path in net),
        "orders": (),
        "revenue": tuple(Origin(path, Step.AGGREGATION, "sum(net)") for path in net),
        "mean": tuple(Origin(path, Step.AGGREGATION, "revenue / orders") for path in net),
    }


@pytest.mark.parametrize(
    ("is_replay", "late"), [(False, []), (True, [Origin("received", Step.FILTER, "arrival_time")])]
)
def test_columns_that_decide_about_rows_belong_to_the_whole_result(
    tmp_path: Path, is_replay: bool, late: list[Origin]
) -> None:
    assert list(origins(tmp_path, ORDERS, is_replay=is_replay).rows) == [
        Origin("payload.shop", Step.GROUP_BY),
        Origin("discount", Step.GROUP_BY),
        Origin("payload.price", Step.GROUP_BY),
        Origin("payload.at", Step.WINDOW, "tumbling"),
        Origin("id", Step.FILTER, "deduplicate_on"),
        Origin("discount", Step.FILTER, "net > 0"),
        Origin("payload.price", Step.FILTER, "net > 0"),
        *late,
    ]


def test_a_condition_over_an_aggregate_names_the_columns_of_the_aggregate(tmp_path: Path) -> None:
    rows = origins(tmp_path, ORDERS.replace("orders > 1", "mean > 1")).rows
    assert rows[-2:] == tuple(Origin(path, Step.FILTER, "mean > 1") for path in ("discount", "payload.price"))


def test_an_order_names_the_columns_behind_its_expressions(tmp_path: Path) -> None:
    found = origins(tmp_path, f'{ORDERS}[top]\nn = 1\nby = "revenue desc, orders"\nrank = "place"\n')
    over = "row_number() OVER (ORDER BY revenue desc, orders)"
    net = ("discount", "payload.price")
    assert found.columns["place"] == tuple(Origin(path, Step.AGGREGATION, over) for path in net)
    assert found.rows[-2:] == tuple(Origin(path, Step.FILTER, over) for path in net)


@pytest.mark.parametrize(("reads", "named"), [("", ["discount", "id"]), ('reads = ["received"]', ["received"])])
def test_a_column_of_user_code_derives_from_every_column_that_the_code_reads(
    tmp_path: Path, reads: str, named: list[str]
) -> None:
    text = ORDERS.partition("[aggregates]")[0] + CODE + reads
    found = origins(tmp_path, text).columns["score"]
    assert found == tuple(Origin(name, Step.TRANSFORMATION, "shop:scores") for name in named)


def test_behind_a_function_that_changes_the_records_nothing_is_claimed(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(ORDERS.replace("[source.derive]", 'transform = "shop:clean"\n\n[source.derive]'))
    assert find_origins(load_definition(file), is_replay=False) is None
