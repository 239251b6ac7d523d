"""Compare published ranks with plain Python: after a condition, in an order with ties, on both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, Place, definition_of, random_history, write_history
from tests.spark.runs import WINDOWS, in_ms, planned, rows

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.eventtime.ranks import rank_rows
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "mode", "engine", "ties"),
    [
        ("sliding", Mode.REPLAY, "native", "break"),
        ("cumulate", Mode.RECOMPUTE, "spark", "keep"),
    ],
)
def test_the_first_rows_of_each_window_are_published_and_all_others_are_counted(
    spark: SparkSession, tmp_path: Path, kind: str, mode: Mode, engine: str, ties: str
) -> None:
    history = random_history(41, rows=300)
    write_history(tmp_path / "data", history)
    content = definition_of(
        tmp_path / "data",
        window=WINDOWS[kind],
        derive_after={"is_odd": "events % 2 = 1"},
        having={"condition": "events < 9"},
        top={"n": 2, "by": "is_odd desc, events desc", "ties": ties, "rank": "place"},
        backfill={"chunk": "1d", "engine": engine},
    )
    plan = planned(tmp_path, content, mode, since=0, until=3)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    computed = Expected(history, parse_definition(content, "test"), plan.range).published()
    kept = {place: value for place, value in computed.items() if value[0] < 9}

    def order_of(place: Place) -> tuple[Any, ...]:
        events = kept[place][0]
        return (not events % 2, -events, *((place[0],) if ties == "break" else ()))

    ranked = rank_rows(sorted(kept), lambda place: place[1:], order_of, keeps_ties=ties == "keep")
    published = {place: rank for place, rank in ranked if rank <= 2}
    assert {in_ms(row): row["place"] for row in rows(manifests, "")} == published
    withheld: dict[tuple[int, ...], list[int]] = {}
    for place in computed.keys() - published.keys():
        counts = withheld.setdefault(place[1:], [0, 0])
        counts[0] += 1
        counts[1] += computed[place][0]
    assert {
        in_ms({**row, "key": ""})[1:]: [row["rows"], row["record_count"]] for row in rows(manifests, "withheld")
    } == withheld
    assert len(published) > 20
    assert len(withheld) > 5
