"""Kill runs at each named step."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests.crash.conftest import DAYS
from tests.crash.world import World

pytestmark = pytest.mark.slow

METADATA = r"create .*/clicks/metadata/.*-m\d+.avro"
"""The first file that the commit of the windows writes."""


class Point(NamedTuple):
    """The moment at which a run dies, its finished chunks then, and whether its result is visible."""

    name: str
    patterns: list[str]
    chunks: int
    is_visible: bool = False


POINTS = [
    Point("plan written", [r"os.mkdir .*/data/"], 0),
    Point("chunk half done", ["a Parquet file is half written"], 0),
    Point("chunk done without manifest", [r"os.rename .*/chunks/0000.json"], 0),
    Point("second chunk half done", [r"os.rename .*/chunks/0000.json", "a Parquet file is half written"], 1),
    Point("staged", [r"os.rename .*/audit.parquet"], 3),
    Point("audited", [r"os.rename .*/audit_result.json", "connection given back"], 3),
    Point("a side table half written", [r"create .*/clicks__metrics/metadata/.*.metadata.json"], 3),
    Point("side tables written", [METADATA], 3),
    Point("metadata written", [METADATA, r"create .*/clicks/metadata/.*metadata.json", "before UPDATE"], 3),
    Point("inside the catalog transaction", [METADATA, "after UPDATE"], 3),
    Point(
        "committed without acknowledgement",
        [METADATA, "after UPDATE", "connection given back"],
        3,
        is_visible=True,
    ),
    Point("ledger written", [METADATA, r"os.rename .*/publication.json"], 3, is_visible=True),
    Point("before the report", [r"os.rename .*/report.html"], 3, is_visible=True),
]


AROUND_THE_COMMIT = [point for point in POINTS if METADATA in point.patterns]
"""The moments for which the database of the catalog matters."""


@pytest.mark.parametrize(
    ("world", "points"), [("sqlite", POINTS), ("postgres", AROUND_THE_COMMIT)], indirect=["world"]
)
def test_a_retry_completes_a_run_that_was_killed_at_any_step(world: World, points: list[Point]) -> None:
    world.run_to_end("first", DAYS, 0)
    for number, point in enumerate(points, start=1):
        before = world.states[-1]

        (killed,) = world.forks.run(world.job(f"k{number}", DAYS, number, die_at=point.patterns))

        assert (killed["exit"], len(killed["moments"])) == (-9, 1), point.name
        chunks = world.manifests(f"k{number}")
        assert len(chunks) == point.chunks, point.name
        assert world.current_state() == (
            world.state_with(f"k{number}", DAYS, number) if point.is_visible else before
        )
        retried = world.run_to_end(f"k{number}", DAYS, number)
        assert retried["outcome"][0] == ("already" if point.is_visible else "published"), point.name
        assert world.current_state() == world.states[-1]
        assert {name: world.manifests(f"k{number}")[name] for name in chunks} == chunks
    world.require_complete()
