"""A failed job says one sentence at the end, gives it to the task that waits, and keeps its trace in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstream.errors import SpecError, StorageError
from backstream.jobs.job_process import run_job
from backstream.variables import ERROR_FILE_VARIABLE

JAVA = (
    "An error occurred while calling o7.parquet.\n: org.apache.spark.SparkException: Job aborted.\n"
    "\tat org.apache.spark.Some.frame(Some.scala:1)\n"
    "Caused by: java.io.IOException: the first cause\n"
    "Caused by: java.io.IOException: No route to host\n\t... 12 more\n"
)


@pytest.fixture
def error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a task passes."""
    file = tmp_path / "error"
    file.write_text("")
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(file))
    return file


def fail_with(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(("kind", "status"), [(SpecError, 3), (StorageError, 1)])
def test_the_task_gets_the_sentence_of_an_error(
    kind: type[Exception], status: int, error_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run_job(lambda: fail_with(kind("no space left\n\nhint: make some")), lambda: tmp_path / "errors") == status
    )

    sentence = f"{kind.__name__}: no space left\n\nhint: make some"
    assert (error_file.read_text(), capsys.readouterr().err) == (sentence, f"{sentence}\n")
    assert not (tmp_path / "errors").exists()


def test_a_trace_is_kept_in_the_file_that_the_sentence_names(
    error_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(lambda: fail_with(RuntimeError(JAVA)), lambda: tmp_path / "errors") == 1

    (file,) = (tmp_path / "errors").iterdir()
    sentence = f"RuntimeError: No route to host\n  the trace is in {file}"
    assert (error_file.read_text(), capsys.readouterr().err) == (sentence, f"{sentence}\n")
    assert "in fail_with" in file.read_text()
    assert JAVA in file.read_text()


def test_without_a_place_for_the_trace_it_is_printed_before_the_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "errors").write_text("a file in place of the folder")

    assert run_job(lambda: fail_with(RuntimeError("")), lambda: tmp_path / "errors") == 1

    first, *_, sentence, place = capsys.readouterr().err.splitlines()
    assert (first, sentence) == ("Traceback (most recent call last):", "RuntimeError: no message")
    assert place == "  the trace is above"


def test_a_job_that_succeeds_has_no_error(error_file: Path, tmp_path: Path) -> None:
    assert run_job(lambda: None, lambda: tmp_path) == 0
    assert error_file.read_text() == ""
