from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.__main__ import main
from benchmarks.comparisons import SHUFFLED, WHOLE_JOBS, Asked, ratio
from benchmarks.data import FIRST_DAY_MS, Sparse, Stream, parquet, sparse_parquet
from benchmarks.results import Results, Runs
from benchmarks.whole_jobs import JobError, WholeJob, difference, in_order, totals
from pyspark.sql import SparkSession

from backstream.eventtime.instants import DAY_MS
from benchmarks import shapes, table

pytestmark = pytest.mark.slow

TOY = ["--only", "job", "--rows", "3000", "--rounds", "1", "--heap", "1g"]


@pytest.mark.long
def test_jobs_at_toy_size_write_the_same_rows_as_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([*TOY, "--shapes", "hourly", "--folder", str(tmp_path)])

    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if "differ" in line or "ended with status" in line] == []
    assert status == 0
    for part in ("recompute, 20,000 keys x 1 h, files in arrival order", "hourly, by hand", "at most 1.5 x"):
        assert part in told
    assert list((tmp_path / "jobs").iterdir()) == []


def test_the_script_of_sessions_keeps_one_over_midnight_whole(tmp_path: Path) -> None:
    before, after, later = (
        datetime(2024, 2, 29, 23, 50, tzinfo=UTC),
        datetime(2024, 3, 1, 0, 10, tzinfo=UTC),
        datetime(2024, 3, 1, 12, tzinfo=UTC),
    )
    times = pa.array([before, after, later], pa.timestamp("us", "UTC"))
    source, out, script = tmp_path / "source.parquet", tmp_path / "out", tmp_path / "job.py"
    pq.write_table(pa.table({"event_time": times, "key": [1, 1, 1], "value": [2, 3, 5]}), source)
    script.write_text(shapes.SHAPES["session"].by_hand(source, out, "1g"))

    subprocess.run([sys.executable, script], check=True, capture_output=True)

    # The session of the first two events is of the day before. Spark writes instants without a zone, in UTC.
    start = later.replace(tzinfo=None)
    assert pq.read_table(out).to_pylist() == [{"key": 1, "window_start": start, "events": 1, "total": 5}]


def rows(*each: tuple[int, int, int, int]) -> pa.Table:
    key, minute, events, total = zip(*each, strict=True)
    starts = pa.array([at * 60_000_000 for at in minute], pa.timestamp("us", "UTC"))
    return pa.table({"key": key, "window_start": starts, "events": events, "total": total})


def test_rows_are_compared_one_by_one_in_whatever_order_they_were_written() -> None:
    one, other = rows((1, 0, 2, 7), (1, 1, 1, 3), (2, 0, 1, 1)), rows((2, 0, 1, 1), (1, 1, 1, 3), (1, 0, 2, 7))

    assert difference(in_order(one), in_order(other)) is None
    assert difference(in_order(one), in_order(other.slice(1))) == "3 rows, not 2"
    # Two mistakes that add up to nothing: sums would not tell.
    swapped = rows((1, 0, 2, 3), (1, 1, 1, 7), (2, 0, 1, 1))
    assert difference(in_order(swapped), in_order(one)) == (
        "2 of 3 rows differ, such as key 1, window_start 1970-01-01 00:00:00+00:00, events 2, total 3,"
        " not key 1, window_start 1970-01-01 00:00:00+00:00, events 2, total 7"
    )
    assert difference(totals(swapped), totals(one)) is None
    assert difference(totals(one), totals(one.slice(1))) == (
        "1 of 1 rows differ, such as rows 3, events 4, total 11, not rows 2, events 2, total 4"
    )


def test_a_job_that_fails_is_quoted(tmp_path: Path) -> None:
    job = WholeJob(
        "a job",
        1,
        [sys.executable, "-c", "print('no memory left'); raise SystemExit(3)"],
        tmp_path / "job.log",
        prepare=lambda: None,
        written=list,
    )

    with pytest.raises(JobError) as caught:
        job.run()

    assert str(caught.value) == "a job ended with status 3\n  no memory left"


def test_a_job_takes_processor_time_which_that_of_its_children_is_part_of(tmp_path: Path) -> None:
    # The kernel counts processor time in ticks, so the child works longer than what is asserted.
    busy = "import time\nwhile time.process_time() < 0.6: pass"
    program = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {busy!r}]); time.sleep(0.5)"
    job = WholeJob(
        "a job", 1, [sys.executable, "-c", program], tmp_path / "log", prepare=lambda: None, written=list
    )

    took = job.run()

    assert 0.5 <= took["processor_s"] < took["seconds"] + 0.5
    assert took["seconds"] >= 1


def test_every_shape_is_compared_in_both_orders_of_files() -> None:
    compared = {name.partition(",")[0] for each in WHOLE_JOBS for name in (each.job, each.base)}

    assert compared == {*shapes.NAMES}
    assert {name for name in shapes.SHAPES if f"{name}{SHUFFLED}" in shapes.SHAPES} == {
        "dense",
        "hourly",
        "sliding",
        "session",
        "uniform",
    }
    assert {each.section for each in WHOLE_JOBS} == {"job"}


def test_seconds_are_held_to_a_limit_where_a_job_has_nothing_beside_it() -> None:
    (alone,) = (each for each in WHOLE_JOBS if each.asked is Asked.SECONDS)
    measured = [
        {"seconds": each, "processor_s": 30.5, "rss_mb": 700, "events": 9, "rows": 4} for each in (21, 19, 25)
    ]
    results = Results(9, 3, "1g", "2026-01-01", {}, jobs={alone.job: Runs("backstream", "Parquet", "", measured)})

    assert ratio(alone, results) == (21, 19, 25)
    assert table.ratio_rows(results, [alone]) == [
        ("recompute of 11 years in 134 chunks", "-", "21.00 s", "19.00 to 25.00", "at most 20 s", "no")
    ]
    assert table.whole_job_rows(results) == [
        ("many-chunks, recompute", "9", "4", "21.0", "19.0 to 25.0", "30.5 s", "700 MB")
    ]


def test_the_page_has_whole_jobs_before_kernels() -> None:
    one = [{"seconds": 2.0, "processor_s": 3.0, "rss_mb": 1.0, "events": 9.0, "rows": 4.0}]
    names = {name for each in WHOLE_JOBS[:1] for name in (each.job, each.base)}
    results = Results(
        9, 1, "1g", "2026-01-01", {}, jobs={name: Runs("Spark", "Parquet", "", one) for name in names}
    )

    text = table.markdown([results], WHOLE_JOBS)

    assert text.splitlines()[:7] == [
        "### Whole jobs",
        "",
        "From start to exit of a process, median of 1 rounds. Measured on 2026-01-01.",
        "",
        "| job | against | ratio | in the rounds | asked | met |",
        "| --- | --- | --: | --: | --: | --: |",
        (
            "| recompute, 100,000 keys of equal frequency x 1 min, files in arrival order | a script by hand"
            " | 1.00 x | 1.00 to 1.00 | at most 0.5 x | no |"
        ),
    ]


def test_shuffled_files_have_the_same_rows_and_each_has_some_of_the_whole_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(2_000, files=4, even_keys=10)
    plain, shuffled = (
        parquet(spark, each, tmp_path) for each in (stream, Stream(2_000, files=4, even_keys=10, is_shuffled=True))
    )

    by_seq = [pq.read_table(path).sort_by("arrival_seq") for path in (plain, shuffled)]
    assert by_seq[0].equals(by_seq[1])
    assert set(by_seq[0]["key"].to_pylist()) == {*range(10)}
    for file in shuffled.glob("*.parquet"):
        numbers = pq.read_table(file)["arrival_seq"].to_pylist()
        assert (min(numbers) < 200, max(numbers) >= 1800) == (True, True)
        assert numbers != sorted(numbers)


def test_a_sparse_stream_is_the_same_each_time(tmp_path: Path) -> None:
    stream = Sparse(500, FIRST_DAY_MS, 50, 5, 3)

    one, other = (sparse_parquet(stream, tmp_path / name) for name in ("one", "other"))

    files = sorted(one.glob("*.parquet"))
    assert [pq.read_table(file) for file in files] == [pq.read_table(other / file.name) for file in files]
    found = pq.read_table(one)
    assert (len(files), found.num_rows, set(found["key"].to_pylist())) == (3, 500, {*range(5)})
    times = [at.timestamp() * 1000 for at in found["event_time"].to_pylist()]
    assert FIRST_DAY_MS <= min(times) < max(times) < FIRST_DAY_MS + 50 * DAY_MS
    arrivals = found["arrival_time"].to_pylist()
    assert arrivals == sorted(arrivals)
