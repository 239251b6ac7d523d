"""Test the causes that reconcile finds for session windows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from tests.reconcile.conftest import DEFINITION, TYPES, Published, clicks
from tests.spark.runs import replay_chunk
from tests.workflow.history import write_clicks, write_definition

from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.publication.publish import publish_range
from backstream.reconcile.rules import Cause
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

VALUES = ["clicks", "seconds", "longest", "mean"]


@pytest.fixture(scope="module")
def sessions(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Publish a day of clicks in sessions."""
    folder = tmp_path_factory.mktemp("sessions")
    write_clicks(folder / "data/0.parquet", clicks("A", 0, seed=0), TYPES)
    text = DEFINITION.replace('kind = "tumbling"\nsize = "1h"', 'kind = "session"\ngap = "12m"')
    definition = write_definition(folder, text)
    span_ms = (instant_ms("2024-03-05", "since"), instant_ms("2024-03-06", "until"))
    plan = plan_run(
        PlanRequest(definition, Interval(*span_ms), mode=Mode.REPLAY, trigger="test", home=Home(folder / "home"))
    )
    publish_range(plan, [replay_chunk(spark, plan, chunk) for chunk in plan.chunks])
    return Published(folder, plan)


def causes_by_start(sessions: Published, theirs: pd.DataFrame) -> dict[tuple[pd.Timestamp, str], str]:
    found = sessions.compare(theirs).differing.to_pylist()
    return {(pd.Timestamp(row["window_start"]), row["page"]): row["cause"] for row in found}


def place(truth: pd.DataFrame, at: int) -> tuple[pd.Timestamp, str]:
    row: Any = truth.loc[at]
    return row["window_start"], row["page"]


def test_sessions_equal_themselves_and_a_session_with_another_end_differs(sessions: Published) -> None:
    truth = sessions.truth()
    assert sessions.compare(truth).causes == {}
    assert len(truth) > 50

    shorter: Any = truth.copy()
    shorter.loc[3, "window_end"] -= pd.Timedelta(minutes=1)
    assert place(truth, 3) in causes_by_start(sessions, shorter)


def test_reconcile_finds_each_cause_that_applies_to_sessions(sessions: Published) -> None:
    truth = sessions.truth()
    doubled, *in_seconds, noisy, twice = [int(at) for at in truth.index[truth["clicks"] >= 5][:7]]
    theirs: Any = truth.copy()
    theirs.loc[doubled, ["clicks", "seconds"]] *= 2
    theirs.loc[in_seconds, "mean"] *= 60
    theirs.loc[noisy, "longest"] += 0.5

    assert causes_by_start(sessions, pd.concat([theirs, theirs.loc[[twice]]])) == {
        place(truth, doubled): Cause.DUPLICATE,
        **{place(truth, at): Cause.CODE for at in in_seconds},
        place(truth, noisy): Cause.UNKNOWN,
        place(truth, twice): Cause.DUPLICATE,
    }


def test_a_stream_that_missed_late_records_of_its_sessions(sessions: Published) -> None:
    bounds = ["window_start", "window_end", "page"]
    theirs: Any = sessions.truth().set_index(bounds)
    live: Any = sessions.panes().rename(columns={f"{name}__live": name for name in VALUES}).set_index(bounds)
    is_late = live["clicks"].notna() & (live["clicks"] != live["clicks__final"])
    late = live[is_late & live.index.isin(theirs.index)]
    assert len(late) > 0
    theirs.loc[late.index, VALUES] = late[VALUES]

    assert causes_by_start(sessions, theirs.reset_index()) == {
        (start, page): Cause.LATE_DATA for start, _, page in late.index
    }
