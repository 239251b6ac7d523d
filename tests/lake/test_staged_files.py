from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backstream.errors import ContractError
from backstream.eventtime.instants import instant_ms
from backstream.lake.publication.publish import publish_range
from backstream.lake.publication.staged_files import check_staged_files
from backstream.runs.manifest import Manifest, StagedFile
from backstream.runs.plan import Plan

if TYPE_CHECKING:
    from tests.lake.conftest import Lake


def us(text: str) -> int:
    return instant_ms(text, "test") * 1_000


def windows(plan: Plan, starts: Sequence[str | None], **others: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return rows of the windows table, with other columns on request."""
    columns: dict[str, Sequence[Any]] = {
        "window_start": [start and us(start) for start in starts],
        "window_end": [0] * len(starts),
        "carrier": ["UA"] * len(starts),
        "departures": [1] * len(starts),
        "mean_delay_min": [None] * len(starts),
        "record_count": [1] * len(starts),
        "run_id": [plan.run_id] * len(starts),
    }
    return columns | others


def manifest(plan: Plan, *files: StagedFile) -> Manifest:
    return Manifest(plan.run_id, "c1", "0", 0, {}, {"": files, "metrics": ()})


def refusal(lake: Lake, plan: Plan, *files: StagedFile) -> str:
    """Publish these files, check that nothing changed, and return the error."""
    with pytest.raises(ContractError) as caught:
        publish_range(plan, [manifest(plan, *files)])
    assert lake.table().current_snapshot() is None
    assert lake.table("flights__metrics").current_snapshot() is None
    return str(caught.value)


@pytest.fixture
def plan(lake: Lake) -> Plan:
    """A plan of one chunk, c1, of one day."""
    made = lake.plan("2013-02-01", "2013-02-02")
    lake.make(made)
    return made


@pytest.fixture
def good(lake: Lake, plan: Plan) -> StagedFile:
    """A valid staged file."""
    return lake.file(plan, "c1", "", windows(plan, ["2013-02-01T00:00Z", "2013-02-01T23:59Z"]))


def test_a_file_that_breaks_nothing_is_published(plan: Plan, good: StagedFile) -> None:
    assert publish_range(plan, [manifest(plan, good)]).rows == 2


def test_a_file_that_differs_from_its_manifest_is_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    assert refusal(lake, plan, replace(good, rows=3, size_bytes=7)) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {good.path}\n"
        f"  has {good.size_bytes} bytes, expected 7 by its manifest\n"
        "  has 2 rows, expected 3 by its manifest"
    )


def test_a_file_that_changes_after_a_good_check_is_refused(plan: Plan, good: StagedFile) -> None:
    manifests = [manifest(plan, good)]
    assert check_staged_files(plan, "", manifests) == [good]

    Path(good.path).write_bytes(Path(good.path).read_bytes()[1:])
    with pytest.raises(ContractError, match=f"has {good.size_bytes - 1} bytes, expected {good.size_bytes}"):
        check_staged_files(plan, "", manifests)

    Path(good.path).unlink()
    with pytest.raises(ContractError, match="there is no such file"):
        check_staged_files(plan, "", manifests)


def test_a_missing_file_is_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    Path(good.path).unlink()

    assert refusal(lake, plan, good) == (
        f"a file staged for table `flights` breaks its contract\n  {good.path}\n  there is no such file"
    )


def test_a_file_that_is_cut_short_is_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    Path(good.path).write_bytes(Path(good.path).read_bytes()[:-1])

    assert refusal(lake, plan, good) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {good.path}\n"
        "  cannot be read as Parquet: no Parquet footer at its end, 2806 bytes"
    )


def test_a_file_that_is_listed_twice_is_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    assert refusal(lake, plan, good, good) == (
        f"a file staged for table `flights` breaks its contract\n  {good.path}\n  is listed more than once"
    )


def test_a_file_that_another_run_staged_is_refused(lake: Lake, plan: Plan) -> None:
    other = lake.plan("2013-02-01", "2013-02-02", "other")
    file = lake.file(other, "c1", "", windows(other, ["2013-02-01T00:00Z"]))

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        f"  must be in {lake.home.warehouse}/backstream/flights/data/{plan.run_id}"
    )


def test_a_file_that_only_seems_to_lie_in_the_folder_of_its_run_is_refused(lake: Lake, plan: Plan) -> None:
    other = lake.plan("2013-02-01", "2013-02-02", "other")
    file = lake.file(other, "c1", "", windows(other, ["2013-02-01T00:00Z"]))
    folder = f"{lake.home.warehouse}/backstream/flights/data/{plan.run_id}"
    disguised = replace(file, path=f"{folder}/../{other.run_id}/c1-0/part-0.parquet")

    assert refusal(lake, plan, disguised) == (
        f"a file staged for table `flights` breaks its contract\n  {disguised.path}\n  must be in {folder}"
    )


def test_a_file_without_rows_is_refused(lake: Lake, plan: Plan) -> None:
    file = lake.file(plan, "c1", "", windows(plan, []))

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        "  has no rows: a table without rows must be staged without files"
    )


def test_a_window_after_the_chunk_is_refused(lake: Lake, plan: Plan) -> None:
    file = lake.file(plan, "c1", "", windows(plan, ["2013-02-01T05:00Z", "2013-02-02T00:00Z"]))

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        "  window_start: 2013-02-01T05:00Z to 2013-02-02T00:00Z is not within its chunk,"
        " 2013-02-01T00:00Z to 2013-02-02T00:00Z\n"
        "  window_start: 2013-02-01T05:00Z to 2013-02-02T00:00Z is more than one UTC day"
    )


def test_a_window_before_the_chunk_is_refused(lake: Lake, plan: Plan) -> None:
    file = lake.file(plan, "c1", "", windows(plan, ["2013-01-31T23:59:59.999Z"]))

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        "  window_start: 2013-01-31T23:59:59.999Z to 2013-01-31T23:59:59.999Z is not within its chunk,"
        " 2013-02-01T00:00Z to 2013-02-02T00:00Z"
    )


def test_a_file_of_two_days_is_refused(lake: Lake) -> None:
    plan = lake.plan("2013-02-01", "2013-02-03")
    lake.make(plan)
    plan = replace(plan, chunks=(replace(plan.chunks[0], end_ms=plan.until_ms),))
    file = lake.file(plan, "c1", "", windows(plan, ["2013-02-01T23:00Z", "2013-02-02T00:00Z"]))

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        "  window_start: 2013-02-01T23:00Z to 2013-02-02T00:00Z is more than one UTC day"
    )


def test_nulls_in_a_required_column_are_refused(lake: Lake, plan: Plan) -> None:
    file = lake.file(plan, "c1", "", windows(plan, ["2013-02-01T05:00Z", None, None], carrier=["UA", None, "AA"]))

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        "  window_start: must have a value in each row, 2 of 3 have none\n"
        "  carrier: must have a value in each row, 1 of 3 have none"
    )


def test_missing_and_wrong_field_ids_are_refused(lake: Lake, plan: Plan) -> None:
    file = lake.file(
        plan, "c1", "", windows(plan, ["2013-02-01T05:00Z"]), field_ids={"carrier": None, "departures": 9}
    )

    assert refusal(lake, plan, file) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {file.path}\n"
        "  carrier: expected field id 3, found None\n"
        "  departures: expected field id 4, found 9"
    )


def test_missing_changed_and_unknown_columns_are_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    table = pq.read_table(good.path, partitioning=None)
    departures = pa.field("departures", pa.int32(), metadata=table.schema.field("departures").metadata)
    table = table.set_column(3, departures, table["departures"].cast(pa.int32()))
    pq.write_table(table.drop_columns("mean_delay_min").append_column("gate", table["carrier"]), good.path)

    size_bytes = Path(good.path).stat().st_size
    assert refusal(lake, plan, replace(good, size_bytes=size_bytes)) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {good.path}\n"
        "  departures: expected long, found int\n"
        "  mean_delay_min: expected double, found no such column\n"
        "  gate: expected no such column"
    )


def test_timestamps_without_a_zone_are_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    table = pq.read_table(good.path, partitioning=None)
    field = table.schema.field("window_end")
    local = pa.field("window_end", pa.timestamp("us"), metadata=field.metadata)
    pq.write_table(table.set_column(1, local, table["window_end"].cast(pa.timestamp("us"))), good.path)

    assert refusal(lake, plan, replace(good, size_bytes=Path(good.path).stat().st_size)) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {good.path}\n"
        "  window_end: expected timestamptz, found timestamp[us]"
    )


def test_a_footer_without_statistics_is_refused(lake: Lake, plan: Plan, good: StagedFile) -> None:
    pq.write_table(pq.read_table(good.path, partitioning=None), good.path, write_statistics=["window_end"])

    assert refusal(lake, plan, replace(good, size_bytes=Path(good.path).stat().st_size)) == (
        "a file staged for table `flights` breaks its contract\n"
        f"  {good.path}\n"
        "  window_start: must have a value in each row, the footer has no count of nulls\n"
        "  carrier: must have a value in each row, the footer has no count of nulls\n"
        "  record_count: must have a value in each row, the footer has no count of nulls\n"
        "  run_id: must have a value in each row, the footer has no count of nulls"
    )


def test_a_bad_file_of_a_side_table_stops_the_whole_publication(lake: Lake, plan: Plan, good: StagedFile) -> None:
    side = lake.file(
        plan, "c1", "metrics", {"source_partition": ["EWR"], "events": [None], "run_id": [plan.run_id]}
    )
    files = {"": (good,), "metrics": (side,)}

    with pytest.raises(ContractError) as caught:
        publish_range(plan, [Manifest(plan.run_id, "c1", "0", 0, {}, files)])

    assert str(caught.value) == (
        "a file staged for table `flights__metrics` breaks its contract\n"
        f"  {side.path}\n"
        "  events: must have a value in each row, 1 of 1 have none"
    )
    assert lake.table().current_snapshot() is None
