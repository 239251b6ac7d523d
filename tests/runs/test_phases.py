"""Check the marks of phases in a run folder: the newest one is the phase of the run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from backstream.runs import progress
from backstream.runs.home import RunFolder
from backstream.runs.progress import Phase, begin_phase, find_phase, keep_phase, withdraw_phase


def mark(folder: RunFolder, phase: Phase, job: str, second: int) -> None:
    begin_phase(folder, phase, job)
    os.utime(folder.phases / f"{phase}-{job}", (second, second))


def test_the_newest_mark_is_the_phase_and_each_job_has_its_own(tmp_path: Path) -> None:
    #  job 0000   start 1   replay 2                     4 (heartbeat)
    #  job 0004                         start 3 ...
    folder, seen = RunFolder(tmp_path), [find_phase(RunFolder(tmp_path))]
    for phase, job, second in (
        (Phase.START_SPARK, "0000", 1),
        (Phase.REPLAY, "0000", 2),
        (Phase.START_SPARK, "0004", 3),
        (Phase.REPLAY, "0000", 4),
    ):
        mark(folder, phase, job, second)
        seen.append(find_phase(folder))
    assert seen == [None, Phase.START_SPARK, Phase.REPLAY, Phase.START_SPARK, Phase.REPLAY]


def test_a_withdrawn_mark_is_removed_and_of_equal_times_the_later_phase_counts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    mark(folder, Phase.START_SPARK, "0000", 1)
    mark(folder, Phase.REPLAY, "0000", 1)
    assert find_phase(folder) is Phase.REPLAY
    for phase in (Phase.START_SPARK, Phase.REPLAY, Phase.REPLAY):
        withdraw_phase(folder, phase, "0000")
    assert find_phase(folder) is None


def test_a_phase_has_a_heartbeat_until_its_end_even_by_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_HEARTBEAT_S", 0.001)
    folder, file = RunFolder(tmp_path), tmp_path / "phases" / "audit"
    with suppress(ZeroDivisionError), keep_phase(folder, Phase.AUDIT):
        os.utime(file, (1, 1))
        until_s = time.monotonic() + 10
        while file.stat().st_mtime == 1 and time.monotonic() < until_s:
            time.sleep(0.001)
        _ = 1 / 0
    assert file.stat().st_mtime > 1
    os.utime(file, (1, 1))
    time.sleep(0.02)
    assert file.stat().st_mtime == 1


def test_without_the_folder_of_the_run_nothing_is_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "nowhere")
    with keep_phase(folder, Phase.PUBLISH):
        withdraw_phase(folder, Phase.AUDIT)
    assert not folder.path.exists()
