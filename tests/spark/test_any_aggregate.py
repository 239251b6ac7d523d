"""Compare aggregates of every family with plain Python over the records of each pane, for every kind of window."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, Place, Row, definition_of, random_history, write_history
from tests.spark.runs import WINDOWS, in_ms, planned, rows

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

AGGREGATES = {
    "events": "count(*)",
    "total": "sum(value)",
    "different": "count(distinct value)",
    "about_different": "approx_count_distinct(value)",
    "origins": "collect_set(origin)",
    "listed": "sort_array(collect_list(value), false)",
    "named": "listagg(origin, '+') within group (order by origin)",
    "middle": "percentile(value, 0.5)",
    "quartiles": "percentile_approx(value, array(0.25, 0.75))",
    "upper": "percentile_cont(0.9) within group (order by value)",
    "top": "max_by(seq, value)",
    "bottom": "min_by(origin, value)",
    "common": "mode(value)",
    "is_any_big": "bool_or(value > 6)",
    "spread": "stddev_pop(value)",
    "together": "covar_pop(value, seq)",
    "big": "sum(value) filter (where value > 4)",
    "small": "count(distinct origin) filter (where value <= 4)",
    "mean": "sum(value) / count(*)",
    "range": "max(value) - min(value) + 1",
}
DERIVED = {"hours": "(unix_millis(window_end) - unix_millis(window_start)) / 3600000", "share": "big / total"}


def reference(records: Sequence[Row]) -> dict[str, Any]:
    """Return the values of `AGGREGATES` over some records, in plain Python."""
    values, seqs, origins = [row[5] for row in records], [row[3] for row in records], [row[2] for row in records]
    ordered, count = sorted(values), len(records)
    big = [value for value in values if value > 4]

    def quantile(share: float) -> float:
        low = math.floor(share * (count - 1))
        high, rest = min(low + 1, count - 1), share * (count - 1) - low
        return ordered[low] + (ordered[high] - ordered[low]) * rest

    return {
        "events": count,
        "total": sum(values),
        "different": len(set(values)),
        "about_different": len(set(values)),
        "origins": sorted(set(origins)),
        "listed": ordered[::-1],
        "named": "+".join(sorted(origins)),
        "middle": statistics.median(values),
        "quartiles": [ordered[math.ceil(share * count) - 1] for share in (0.25, 0.75)],
        "upper": quantile(0.9),
        "top": max((row[5], row[3]) for row in records)[1],
        "bottom": min((row[5], row[2]) for row in records)[1],
        "common": min(set(values), key=lambda value: (-values.count(value), value)),
        "is_any_big": max(values) > 6,
        "spread": statistics.pstdev(values),
        "together": sum(v * s for v, s in zip(values, seqs, strict=True)) / count
        - statistics.fmean(values) * statistics.fmean(seqs),
        "big": sum(big) if big else None,
        "small": len({row[2] for row in records if row[5] <= 4}),
        "mean": sum(values) / count,
        "range": max(values) - min(values) + 1,
    }


class Reference(Expected):
    """The expected values of all aggregates and derived columns of a range."""

    def _value(self, numbers: Sequence[int]) -> Any:
        return reference([self.unique[number] for number in numbers])

    def all_panes(self) -> Mapping[Place, Sequence[Any]]:
        """Return the first, live, and final values of each window."""
        return self.values()

    def all_published(self) -> Mapping[Place, Any]:
        """Return the final values of each window."""
        return self.published()

    def firings(self) -> dict[Place, list[Any]]:
        """Return the values of all firings of each window, in order."""
        fired: dict[Place, list[Any]] = {}
        for pane in self.panes.panes:
            if self.interval.start_ms <= pane.window.start_ms < self.interval.end_ms:
                fired.setdefault((str(pane.key), *pane.window), []).append(self._value(pane.records))
        return fired


def with_derived(place: Place, value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    share = None if value["big"] is None or not value["total"] else value["big"] / value["total"]
    return {**value, "hours": (place[2] - place[1]) / 3_600_000, "share": share}


def values_of(row: Mapping[str, Any], suffix: str = "") -> dict[str, Any] | None:
    if row[f"events{suffix}"] is None:
        assert all(row[f"{name}{suffix}"] is None for name in (*AGGREGATES, *DERIVED))
        return None
    return {name: row[f"{name}{suffix}"] for name in (*AGGREGATES, *DERIVED)}


def assert_equal(actual: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    assert sorted(actual) == sorted(expected)
    for place, value in expected.items():
        for name, each in (value or {}).items():
            wanted = pytest.approx(each, rel=1e-9, abs=1e-9) if isinstance(each, float) else each
            assert actual[place][name] == wanted, (place, name)
        assert (actual[place] is None) == (value is None)


def run(
    spark: SparkSession, folder: Path, kind: str, mode: Mode, **sections: Any
) -> tuple[list[Manifest], Reference]:
    history = random_history(len(kind) + 3, rows=150)
    write_history(folder / "data", history)
    content = definition_of(
        folder / "data",
        window=WINDOWS[kind],
        aggregates=AGGREGATES,
        derive_after=DERIVED | {"share": "try_divide(big, total)"},
        **{"backfill": {"chunk": "3d", "engine": "auto", "keep_firings": True}, **sections},
    )
    plan = planned(folder, content, mode, since=0, until=3)
    return list(replay_chunks(SparkEngine(spark), plan, plan.chunks)), Reference(
        history, parse_definition(content, "test"), plan.range
    )


KINDS = ["tumbling", "sliding, size no multiple", "cumulate", "session"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_pane_and_firing_of_a_replay_has_the_values_of_its_records(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    manifests, expected = run(spark, tmp_path, kind, Mode.REPLAY)

    panes = {in_ms(row): row for row in rows(manifests, "panes")}
    for number, pane in enumerate(("first", "live", "final")):
        assert_equal(
            {place: values_of(row, f"__{pane}") for place, row in panes.items()},
            {place: with_derived(place, value[number]) for place, value in expected.all_panes().items()},
        )
    fired: dict[tuple[Any, ...], Any] = {}
    for row in rows(manifests, "firings"):
        fired[(*in_ms(row), row["pane_index"])] = values_of(row)
    assert len(fired) == sum(map(len, expected.firings().values())) > len(panes) * 0.5
    assert_equal(
        fired,
        {
            (*place, number): with_derived(place, value)
            for place, values in expected.firings().items()
            for number, value in enumerate(values)
        },
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_recompute_publishes_the_values_of_all_records(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    manifests, expected = run(spark, tmp_path, kind, Mode.RECOMPUTE)

    assert_equal(
        {in_ms(row): values_of(row) for row in rows(manifests, "")},
        {place: with_derived(place, value) for place, value in expected.all_published().items()},
    )


CONDITION = "events > 1 and share > 0.5 or key = 'x'"


def is_published(place: Place, value: Mapping[str, Any]) -> bool:
    share = (with_derived(place, value) or {})["share"]
    return (value["events"] > 1 and (share or 0) > 0.5) or place[0] == "x"


@pytest.mark.parametrize(
    ("kind", "mode"), [("sliding, size no multiple", Mode.REPLAY), ("session", Mode.RECOMPUTE)]
)
def test_rows_that_do_not_meet_the_condition_are_counted_and_not_published(
    spark: SparkSession, tmp_path: Path, kind: str, mode: Mode
) -> None:
    manifests, expected = run(spark, tmp_path, kind, mode, having={"condition": CONDITION})

    final = expected.all_published()
    published = {place: value for place, value in final.items() if is_published(place, value)}
    withheld: dict[tuple[int, ...], list[int]] = {}
    for place, value in final.items():
        if place not in published:
            rows_and_records = withheld.setdefault(place[1:], [0, 0])
            rows_and_records[0] += 1
            rows_and_records[1] += value["events"]
    assert 0 < len(published) < len(final)
    assert sorted(in_ms(row) for row in rows(manifests, "")) == sorted(published)
    assert {
        in_ms({**row, "key": ""})[1:]: [row["rows"], row["record_count"]] for row in rows(manifests, "withheld")
    } == withheld


@pytest.mark.parametrize(
    ("kind", "mode"), [("tumbling", Mode.RECOMPUTE), ("sliding", Mode.REPLAY), ("session", Mode.REPLAY)]
)
def test_the_native_engine_stages_the_same_rows(
    spark: SparkSession, tmp_path: Path, kind: str, mode: Mode
) -> None:
    write_history(tmp_path / "data", random_history(29, rows=150))
    tables: dict[str, dict[str, list[str]]] = {}
    for engine in ("native", "spark"):
        (tmp_path / engine).mkdir()
        content = definition_of(
            tmp_path / "data",
            window=WINDOWS[kind],
            derive_after={"share": "try_divide(total, events)", "hour": "hour(window_start)"},
            having={"condition": "share > 3 or hour = 5"},
            backfill={"chunk": "1d", "engine": engine},
        )
        plan = planned(tmp_path / engine, content, mode, since=0, until=3)
        manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
        tables[engine] = {
            suffix: sorted(str(row | {"run_id": ""}) for row in rows(manifests, suffix)) for suffix in plan.tables
        }

    assert tables["native"] == tables["spark"]
    assert len(tables["native"][""]) > 0
    assert len(tables["native"]["withheld"]) > 0
