"""Kill the command while Spark works: staged files and chunks are incomplete.

For every thirty of the `BACKSTREAM_KILLS` (see `test_kills`), there is one such kill at a random time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.crash.conftest import DAYS
from tests.crash.reader import by_spark
from tests.crash.test_disk_full import mounted
from tests.crash.test_kills import KILLS, SEED
from tests.crash.world import Forks, Source, World, hash_rows
from tests.spark.runs import replay_chunk

from backstream.errors import StorageError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, is_staged
from backstream.runs.plan import Mode, Plan
from backstream.spark.session import SMALL_DATA_SETTINGS
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

pytestmark = pytest.mark.slow

POLL_S, PATIENCE_S = 0.02, 300
RANGE = ["--since", "2024-03-01", "--until", "2024-03-04", "--mode", "replay"]
Condition = Callable[[Path], bool]


def half_done(chunk_id: str) -> Condition:
    """Return a condition: a task of the chunk has written a file."""
    return lambda home: any(home.glob(f"warehouse/backstream/*/data/*/{chunk_id}-*/**/*.parquet"))


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Write Spark settings without code generation: for a few rows, compiling takes longer than running."""
    quick = {name: value for name, value in SMALL_DATA_SETTINGS.items() if name != "spark.master"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in quick.items()))
    return tmp_path


def start_command(world: World, settings: Path) -> subprocess.Popen[bytes]:
    """Start `backstream run` in its own process group."""
    environment = os.environ | {HOME_VARIABLE: str(world.home.path), "SPARK_CONF_DIR": str(settings)}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop(CATALOG_VARIABLE, None)
    command = [sys.executable, "-m", "backstream.cli", "run", str(world.source.definition), *RANGE]
    with (settings / "run.log").open("a") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def run_and_kill(world: World, settings: Path, when: Condition | float, *, with_java: bool) -> bool:
    """Run the command and kill it on a condition or after some seconds; return False if it ended before."""
    process = start_command(world, settings)
    begin = time.monotonic()
    while process.poll() is None:
        seconds = time.monotonic() - begin
        assert seconds < PATIENCE_S
        if when(world.home.path) if callable(when) else seconds > when:
            break
        time.sleep(POLL_S)
    is_killed = process.poll() is None
    if is_killed:
        group = os.getpgid(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if with_java:
            with suppress(ProcessLookupError):  # Java may have ended by itself
                os.killpg(group, signal.SIGKILL)
    else:
        assert process.returncode == 0, (settings / "run.log").read_text()
    return is_killed


def spark_state(world: World) -> str:
    """Return the hash of the published rows that Spark reads."""
    with open_catalog_for_writing(world.home) as catalog:
        return hash_rows(by_spark(catalog.load_table(table_identifier("clicks"))))


def test_a_killed_command_resumes_with_its_finished_chunks(
    source: Source, forks: Forks, tmp_path: Path, settings: Path
) -> None:
    world = World(Home(tmp_path / "home"), source, forks, None)
    random = Random(SEED)  # noqa: S311 - kills, not secrets
    whens: list[Condition | float] = [half_done("0000"), half_done("0002")]
    whens += [random.uniform(1, 20) for _ in range(KILLS // 30)]
    chunks: dict[str, int] = {}
    for number, when in enumerate(whens):
        if not run_and_kill(world, settings, when, with_java=bool(number % 2)):
            break
        assert len(plans(world)) == 1 or not callable(when)
        assert {name: world.manifests("cli").get(name) for name in chunks} == chunks
        chunks = world.manifests("cli")
        # The third chunk starts after one of the first two has finished.
        assert bool(chunks) == bool(number) or not callable(when)
        assert spark_state(world) in (world.states[0], world.state_with("cli", DAYS, 0))

    else:
        assert not run_and_kill(world, settings, PATIENCE_S, with_java=True)

    (plan,) = plans(world)
    assert {name: world.manifests("cli")[name] for name in chunks} == chunks
    world.expect_published(plan.run_id, DAYS, 0)
    assert spark_state(world) == world.states[-1] == world.current_state()
    assert fates(plan) == fates(source.plan)
    world.require_complete()
    assert world.vacuum() > 0
    world.require_complete()


def fates(plan: Plan) -> list[Mapping[str, Mapping[str, int]]]:
    """Return the fates of each chunk."""
    return [Manifest.read(plan.folder.manifest(chunk.chunk_id)).fates for chunk in plan.chunks]


def plans(world: World) -> list[Plan]:
    """Return the plans of the command."""
    return [Plan.read(file) for file in world.home.path.glob("runs/clicks/*/plan.json")]


def test_spark_reports_a_full_disk_and_a_retry_completes_the_chunk(
    spark: SparkSession, clicks: Path, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk") as disk:
        home = Home(disk / "home")
        plan = plan_run(
            PlanRequest(clicks, Interval(DAYS[0], DAYS[1]), mode=Mode.REPLAY, trigger="full", home=home)
        )
        ballast = disk / "ballast"
        with ballast.open("wb") as file:
            file.write(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - 8192))

        with pytest.raises(StorageError) as caught:
            replay_chunk(spark, plan, plan.chunks[0])

        lines = str(caught.value).splitlines()
        assert lines[0] == f"could not run chunk 0000 of {plan.run_id}: No space left on device"
        assert lines[1].startswith(f"  it stages files in {home.warehouse}/backstream/clicks/data/{plan.run_id}")
        assert not plan.folder.manifest("0000").exists()
        ballast.unlink()
        assert is_staged(replay_chunk(spark, plan, plan.chunks[0]))
