from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import local

import psutil
import pytest
from benchmarks.comparisons import COMPARISONS, Section, wanted
from benchmarks.jobs import Sums
from benchmarks.kinds import KINDS, in_processes, measured_of
from benchmarks.measure import Benchmark, disagreements, in_turn
from benchmarks.peers.environment import CHECKOUT, PeerError, environment
from benchmarks.peers.registry import PEERS, half_in_mb, of_families, run, to_parquet
from benchmarks.results import Results, Runs, machine, today
from benchmarks.table import ratio_rows
from pyspark.errors import PySparkValueError
from pyspark.sql import SparkSession

from benchmarks import spark_jobs

pytestmark = pytest.mark.slow

ROWS = 2_000


def test_a_tiny_benchmark_measures_every_ratio_of_its_section(spark: SparkSession, tmp_path: Path) -> None:
    said: list[str] = []
    comparisons = wanted([Section.TUMBLING], set())
    names = {name for each in comparisons for name in (each.job, each.base)}
    results = Results(ROWS, 1, "1g", today(), machine(spark))
    jobs = spark_jobs.jobs(spark, ROWS, tmp_path, names)

    Benchmark(spark, results, jobs, said.append).measure()

    assert results.disagreements == []
    assert list(results.runs) == ["tumbling, by hand", "tumbling, recompute", "tumbling, replay"]
    assert [row[2] for row in ratio_rows(results, comparisons) if row[2] == "not measured"] == []
    for runs in results.runs.values():
        (measured,) = runs.rounds
        spark_s = {"heap_mb", "spilled_mb", "collected_mb", "longest_task_share"}
        assert measured.keys() == {"seconds", "rss_mb"} | spark_s
        assert 0 < measured["longest_task_share"] < 1
        assert measured["rss_mb"] > 50
        assert measured["heap_mb"] > 1
        assert 0 < measured["collected_mb"] < 10
    assert said[0] == "warm-up: tumbling, by hand"


def test_the_order_of_jobs_differs_between_rounds_and_peers_run_after_them() -> None:
    jobs, peers = ["by hand", "recompute", "replay"], ["duckdb", "polars"]
    rounds = [in_turn(jobs, peers, number) for number in range(1, 6)]

    for names in rounds:
        assert (sorted(names[:3]), sorted(names[3:])) == (jobs, peers)
    for pair in (("by hand", "replay"), ("duckdb", "polars")):
        assert {min(pair, key=names.index) for names in rounds} == set(pair)


def test_each_comparison_is_of_one_kind_and_has_all_it_compares() -> None:
    peers = [peer.name for peer in PEERS]
    of_kinds = [measured_of(kind, COMPARISONS, peers) for kind in KINDS]

    for each in COMPARISONS:
        (names,) = (names for names in of_kinds if each.job in names)
        assert each.base in names
    assert sum(len(names) for names in of_kinds) == len({name for names in of_kinds for name in names})
    assert not {*peers} & {*measured_of("tumbling", COMPARISONS, [])}


def test_each_kind_has_a_process_of_its_own() -> None:
    found = {*in_processes([os.getpid, os.getpid])}

    assert len(found - {os.getpid()}) == 2


def test_measured_results_are_returned_from_their_process() -> None:
    results = Results(
        ROWS, 1, "1g", today(), {"java": "17"}, {"a job": Runs("Spark", "Parquet", "", [{"seconds": 1.0}])}
    )

    (found,) = in_processes([partial(replace, results, rounds=2)])

    assert found == replace(results, rounds=2)


def failing() -> None:
    """As Spark fails: with what cannot be sent to another process."""
    error = PySparkValueError("no space left")
    error.__dict__["origin"] = local()
    raise error


def test_the_error_of_spark_is_returned_from_its_process() -> None:
    with pytest.raises(RuntimeError, match=r"^no space left$"):
        next(in_processes([failing]))


def test_a_process_ends_with_the_one_that_began_it() -> None:
    program = "import time; from functools import partial; from benchmarks.kinds import in_processes"
    program = f"{program}; next(in_processes([partial(time.sleep, 60)]))"
    with psutil.Popen([sys.executable, "-c", program], cwd=CHECKOUT) as began:
        while not (begun := [each for each in began.children() if "spawn_main" in " ".join(each.cmdline())]):
            time.sleep(0.1)
        time.sleep(1)

        began.kill()

    gone, _ = psutil.wait_procs(begun, timeout=60)
    assert gone == begun


def test_what_kinds_gave_is_one_result() -> None:
    runs = {
        name: Runs("Spark", "Parquet", "", [{"seconds": 1.0}]) for name in ("tumbling, replay", "session, replay")
    }
    each = [
        Results(ROWS, 1, "1g", today(), {}, {name: told}, {name: "failed"}, [name]) for name, told in runs.items()
    ]

    joined = each[0].joined(each[1])

    assert (joined.runs, [*joined.failed], joined.disagreements) == (runs, [*runs], [*runs])


@dataclass(frozen=True)
class Written:
    """A job that notes when it runs."""

    name: str
    said: list[str]

    def run(self) -> None:
        """Note it."""
        self.said.append(f"runs: {self.name}")

    def checked(self) -> Sums:
        """Nothing came out."""
        return Sums(0, 0, 0)


@pytest.mark.parametrize(
    ("program", "told"),
    [("""print('{"seconds": 1, "version": "1"}')""", "round 1 of 2: duckdb"), ("exit(1)", "duckdb is left out")],
)
def test_the_first_job_after_a_peer_runs_once_before_it_is_measured(
    spark: SparkSession, program: str, told: str
) -> None:
    """The session was idle while the peer ran, or failed."""
    said: list[str] = []
    jobs = [Written("tumbling, by hand", said), Written("tumbling, replay", said)]
    benchmark = Benchmark(spark, Results(ROWS, 2, "1g", today(), machine(spark)), jobs, said.append)
    peer, *_ = of_families({"duckdb"})
    benchmark.add(peer, lambda: [sys.executable, "-c", program])

    benchmark.measure()

    (after,) = (said.index(line) for line in said if line.startswith(told))
    before, behind = ([line for line in part if "runs: " in line] for part in (said[:after], said[after:]))
    assert len(before) == 2 * len(jobs)  # to warm up, and in the first round
    first, again, other = behind
    assert first == again != other


def test_every_job_that_is_compared_exists() -> None:
    compared = {name for each in wanted(list(Section), set()) for name in (each.job, each.base)}

    assert compared - set(spark_jobs.names()) == set()


def test_jobs_that_compute_the_same_must_add_up_to_the_same() -> None:
    same, other = Sums(3, 10, 55), Sums(4, 10, 55)

    assert disagreements({"tumbling, by hand": same, "duckdb": same, "session, by hand": other}) == []
    assert disagreements({"tumbling, by hand": same, "duckdb": other}) == [
        f"duckdb: {other}, tumbling, by hand: {same}"
    ]


def test_the_result_of_a_peer_is_read_from_its_last_line() -> None:
    told = run(
        "a peer",
        [sys.executable, "-c", "import time; time.sleep(0.3); print('noise'); print('{\"seconds\": 1.5}')"],
    )

    assert told["seconds"] == 1.5
    assert 1 < told["rss_mb"] < 500


def test_a_peer_that_fails_is_quoted() -> None:
    with pytest.raises(PeerError) as caught:
        run("a peer", [sys.executable, "-c", "print('no memory left'); raise SystemExit(3)"])

    assert str(caught.value) == "a peer ended with status 3\n  no memory left"


def test_an_error_explains_why_a_peer_has_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    requirements = tmp_path / "requirements-none.txt"
    requirements.write_text("no-package-has-this-name==1.0\n")

    with pytest.raises(PeerError) as caught:
        environment(requirements, tmp_path)

    first, *facts, empty, hint = str(caught.value).splitlines()
    assert first == f"no environment could be made from {requirements}"
    assert "no-package-has-this-name" in "".join(facts)
    assert (empty, hint[:5]) == ("", "hint:")
    assert not list(tmp_path.glob("requirements-none-*/complete"))


def test_peers_are_chosen_by_family() -> None:
    assert [peer.name for peer in of_families({"flink", "polars"})] == [
        "flink, streaming",
        "flink, batch",
        "polars",
        to_parquet("polars", 1),
    ]


def test_half_of_a_heap() -> None:
    assert [half_in_mb(heap) for heap in ("6g", "900m")] == [3072, 450]
    with pytest.raises(ValueError, match=r"^heap must be a whole number with g or m, such as 6g, got '6\.5g'$"):
        half_in_mb("6.5g")
