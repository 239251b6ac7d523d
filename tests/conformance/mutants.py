"""Change one operator or constant on the path of a run, and see that a recording of Flink then differs.

    python -m tests.conformance.mutants [PART OF A MODULE'S NAME]

Each change of `mutants.toml` is made in a copy of the package. A process with this copy replays recordings until
one differs. A change after which all recordings agree has survived: the command ends with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pipelines" / "backstream"
FILE = Path(__file__).with_suffix(".toml")
RECORDINGS = Path(__file__).parent / "flink"
AT_ONCE, LONGEST_S = 2, 1_800


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a module's text, the engine that uses the module, and the name of a file of recordings."""

    engine: str
    recordings: str
    module: str
    old: str
    new: str


UNCHANGED = Mutant("native", "tumbling", "errors.py", "class BackstreamError", "class BackstreamError")
"""The recordings agree without a change, so it is the change that kills a mutant."""


def main(part: str) -> int:
    """Print what kills each mutant, and return 1 if one survives."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["mutant"]
    chosen = [mutant for mutant in (Mutant(**table) for table in tables) if part in mutant.module]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_hunt, [UNCHANGED]))
        fates = list(pool.map(_hunt, chosen))
    survivors = fates.count(None)
    print(f"{len(chosen)} mutants, {survivors} survived")
    return 1 if survivors else 0


def _hunt(mutant: Mutant) -> str | None:
    """Return the recording that a mutant makes differ; None if all agree."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="backstream-mutant-") as folder:
        _copy_changed(mutant, Path(folder))
        paths = [f"{folder}/pipelines", str(ROOT), str(ROOT / "tests")]
        done = subprocess.run(
            [sys.executable, "-m", "tests.conformance.mutants", "--replay", mutant.engine, mutant.recordings],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=LONGEST_S,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("differs: ", "all agree: "))]
    found = lines[-1] if lines else f"fails: {done.stderr.strip().splitlines()[-1:]}"
    survived, is_control = not found.startswith("differs: "), mutant.old == mutant.new
    if is_control and not survived:
        msg = f"recordings differ without any change: {found}"
        raise ValueError(msg)
    took = f"{time.monotonic() - begin:.0f} s"
    fate = "control" if is_control else "SURVIVED" if survived else "killed"
    change = f"`{mutant.old}` -> `{mutant.new}`"
    cells = [fate, mutant.engine, mutant.recordings, mutant.module, change, found[:90], took]
    print(" | ".join(cells), flush=True)
    return None if survived else found


def _copy_changed(mutant: Mutant, folder: Path) -> None:
    """Copy the package into a folder, with the change.

    Raises:
        ValueError: when the module does not have the text.
    """
    copy = folder / PACKAGE.relative_to(ROOT)
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "expectations").symlink_to(ROOT / "expectations")
    module = copy / mutant.module
    text = module.read_text()
    if mutant.old not in text:
        msg = f"{mutant.module} has no text {mutant.old!r}"
        raise ValueError(msg)
    module.write_text(text.replace(mutant.old, mutant.new))


def _replay(engine: str, recordings: str) -> None:
    """Replay the recordings of a file on an engine until one differs, in the process with the changed package."""
    import backstream
    from backstream.conformance.cases import load_cases
    from backstream.conformance.comparison import find_difference
    from backstream.conformance.run_engine import RunEngine
    from backstream.conformance.workers import ConformanceRunner
    from backstream.spark.session import SMALL_DATA_SETTINGS, local_session
    from backstream.workflow.runners import SparkRunner

    if Path(backstream.__file__).is_relative_to(PACKAGE):
        msg = "the package is not the changed copy"
        raise ValueError(msg)
    spark = local_session("mutants", SMALL_DATA_SETTINGS, input_bytes=0)
    runner = ConformanceRunner(lambda: spark) if engine == "native" else SparkRunner(lambda: spark)
    run = RunEngine(runner, engine)
    count = 0
    for line in load_cases([RECORDINGS / f"{recordings}.jsonl"]):
        count += 1
        differ = find_difference([line], run).differ
        if differ:
            print(differ[0].splitlines()[0], flush=True)
            return
    print(f"all agree: {count} recordings", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replay"]:
        _replay(*sys.argv[2:])
    else:
        sys.exit(main("".join(sys.argv[1:2])))
