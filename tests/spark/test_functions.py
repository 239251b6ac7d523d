"""Custom functions in SQL: for one record, for pandas series, for all records of a window, and of Java."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, Place, definition_of, random_history, write_history
from tests.spark.runs import WINDOWS, in_ms, planned, rows, toml_value

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition, require_unchanged_code
from backstream.errors import PlanError, SpecError, UserCodeError
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

CODE = """\
import numpy as np


def grade(value):
    return None if value is None else "big" if value > 4 else "small"


def halved(values):
    return values / 2.0


def spread(values, seqs):
    return np.sqrt(((values - values.mean()) ** 2).mean()) + 0 * seqs.iloc[0]


def broken(value):
    raise ValueError(f"no value {value}")
"""
FUNCTIONS: dict[str, Any] = {
    "grade": {"function": "house.sql:grade", "returns": "string"},
    "halved": {"function": "house.sql:halved", "returns": "double", "kind": "pandas"},
    "spread": {"function": "house.sql:spread", "returns": "double", "kind": "aggregate"},
}
AGGREGATES = {
    "events": "count(*)",
    "total": "sum(value)",
    "big": "count_if(grade(value) = 'big')",
    "grades": "collect_set(grade(value))",
    "halves": "sum(halved(value))",
    "deviation": "spread(value, seq)",
    "deviation_of_big": "spread(value, seq) filter (where value > 4)",
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a package that only this process finds."""
    package = tmp_path / "code" / "house"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sql.py").write_text(CODE)
    monkeypatch.syspath_prepend(package.parent)
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        monkeypatch.delitem(sys.modules, name)  # of another test
    return package / "sql.py"


class Reference(Expected):
    """The expected values of `AGGREGATES`."""

    def _value(self, numbers: Any) -> Any:
        values = [self.unique[number][5] for number in numbers]
        big = [value for value in values if value > 4]

        def deviation(some: list[int]) -> float | None:
            mean = sum(some) / len(some) if some else 0
            return math.sqrt(sum((value - mean) ** 2 for value in some) / len(some)) if some else None

        return {
            "events": len(values),
            "total": sum(values),
            "big": len(big),
            "grades": sorted({"big" if value > 4 else "small" for value in values}),
            "halves": sum(values) / 2,
            "deviation": deviation(values),
            "deviation_of_big": deviation(big),
            "verdict": "big" if sum(values) > 4 else "small",
        }


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_custom_functions_have_their_values_in_every_pane_and_firing(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    history = random_history(31, rows=80)
    write_history(tmp_path / "data", history)
    content = definition_of(
        tmp_path / "data",
        window=WINDOWS[kind],
        functions=FUNCTIONS,
        aggregates=AGGREGATES,
        derive_after={"verdict": "grade(total)"},
        backfill={"chunk": "3d", "keep_firings": True, "engine": "auto"},
    )
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Reference(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    panes = {in_ms(row): row for row in rows(manifests, "panes")}
    assert sorted(panes) == sorted(expected.values())
    results: dict[Place, Any] = dict(expected.values())
    for place, values in results.items():
        for pane, value in zip(("first", "live", "final"), values, strict=True):
            assert_value(panes[place], value, f"__{pane}", place)
    assert rows(manifests, "firings")


def assert_value(row: dict[str, Any], value: dict[str, Any] | None, suffix: str, place: Place) -> None:
    for name in (*AGGREGATES, "verdict"):
        wanted = None if value is None else value[name]
        close = pytest.approx(wanted, abs=1e-9) if isinstance(wanted, float) else wanted
        assert row[f"{name}{suffix}"] == close, (place, name, suffix)


@pytest.mark.usefixtures("house")
def test_custom_functions_select_and_derive_records_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    history = random_history(3, rows=40)
    write_history(tmp_path / "data", history)
    content = definition_of(
        tmp_path / "data",
        window=WINDOWS["tumbling"],
        functions=FUNCTIONS,
        aggregates={"records": "count(*)", "halves": "sum(half)"},
        backfill={"chunk": "3d", "engine": "auto"},
    )
    content["source"] |= {"where": "grade(value) = 'big'", "derive": {"half": "halved(value)"}}
    file = tmp_path / "events.toml"
    file.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    prepare_source(file, Home(tmp_path / "home"), SparkRunner(lambda: spark))

    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    published = rows(list(replay_chunks(SparkEngine(spark), plan, plan.chunks)), "")

    big = {row for row in history if row[5] > 4 and row[0] >= plan.since_ms}
    assert sum(row["records"] for row in published) == len(big) > 0
    assert sum(row["halves"] for row in published) == sum(row[5] for row in big) / 2


def test_changed_code_is_refused_and_an_error_shows_the_users_line(
    spark: SparkSession, tmp_path: Path, house: Path
) -> None:
    write_history(tmp_path / "data", random_history(3, rows=20))
    own = {"broken": {"function": "house.sql:broken", "returns": "bigint"}}
    content = definition_of(
        tmp_path / "data",
        window=WINDOWS["tumbling"],
        functions=own,
        aggregates={"total": "sum(broken(value))"},
        backfill={"chunk": "3d", "engine": "auto"},
    )
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    with pytest.raises(UserCodeError) as failed:
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    house.write_text(CODE + "\n# another version\n")
    with pytest.raises(PlanError) as refused:
        require_unchanged_code(plan)

    assert str(failed.value).startswith(
        f"function house.sql:broken failed in chunk 0000 of {plan.run_id}: ValueError: no value "
    )
    assert 'house/sql.py", line 17, in broken' in str(failed.value)
    assert str(refused.value).startswith(
        f"cannot run {plan.run_id}: the code of the function house.sql:broken changed since it was planned\n"
    )


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            {"function": "house.sql:absent", "returns": "bigint"},
            "function house.sql:absent cannot be imported: house.sql has no function 'absent'",
        ),
        (
            {"java_class": "com.acme.Absent", "returns": "bigint"},
            (
                "functions.mine cannot be registered: Can not load class com.acme.Absent, please make sure it is"
                " on the classpath.\n\nhint: add the jar with the class to spark.jars"
            ),
        ),
    ],
)
def test_a_function_that_is_not_there_is_named(
    spark: SparkSession, tmp_path: Path, function: dict[str, str], said: str
) -> None:
    write_history(tmp_path / "data", random_history(3, rows=20))
    content = definition_of(
        tmp_path / "data",
        window=WINDOWS["tumbling"],
        functions={"mine": function},
        aggregates={"total": "sum(mine(value))"},
        backfill={"chunk": "3d", "engine": "auto"},
    )
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    with pytest.raises(SpecError) as refused:
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert str(refused.value) == said


JAVA = """\
package house;

public class Twice implements org.apache.spark.sql.api.java.UDF1<Long, Long> {
    public Long call(Long value) {
        return value == null ? null : 2 * value;
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
def test_a_java_function_on_the_class_path_is_called(spark: SparkSession, tmp_path: Path) -> None:
    source, jar = tmp_path / "Twice.java", tmp_path / "house.jar"
    source.write_text(JAVA)
    class_path = str(Path(pyspark.__path__[0]) / "jars" / "*")
    compiler = ["javac", "--release", "17", "-cp", class_path, "-d", str(tmp_path / "classes"), str(source)]
    subprocess.run(compiler, check=True)
    with ZipFile(jar, "w") as archive:
        archive.write(tmp_path / "classes/house/Twice.class", "house/Twice.class")
    spark.sql(f"ADD JAR '{jar}'")
    history = random_history(3, rows=40)
    write_history(tmp_path / "data", history)
    content = definition_of(
        tmp_path / "data",
        window=WINDOWS["tumbling"],
        functions={"twice": {"java_class": "house.Twice", "returns": "bigint"}},
        aggregates={"double": "sum(twice(value))", "total": "sum(value)"},
        derive_after={"fourfold": "twice(double)"},
        backfill={"chunk": "3d", "engine": "auto"},
    )
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    published = rows(list(replay_chunks(SparkEngine(spark), plan, plan.chunks)), "")

    assert all(row["double"] == 2 * row["total"] and row["fourfold"] == 4 * row["total"] for row in published)
    assert sum(row["total"] for row in published) == sum(row[5] for row in set(history) if row[0] >= plan.since_ms)
