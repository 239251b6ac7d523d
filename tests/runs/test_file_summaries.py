"""Test summaries of immutable files: they are read back unchanged, or rebuilt."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from backstream.runs.file_summaries import load_summary, write_summary

CONTENT = {"of": "v1", "files": {"a": [1, None, "x"]}}


@pytest.fixture
def summary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    caplog.set_level(logging.INFO)
    file = tmp_path / "summaries/table"
    write_summary(file, CONTENT)
    return file


def test_a_summary_is_read_back_unchanged(summary: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_summary(summary, "table `a`") == CONTENT
    assert caplog.messages == []


def test_a_missing_summary_is_logged(summary: Path, caplog: pytest.LogCaptureFixture) -> None:
    summary.unlink()

    assert load_summary(summary, "table `a`") is None
    assert caplog.messages == [f"there is no summary of table `a` yet: reading it once ({summary})"]


@pytest.mark.parametrize("at", ["text", "head", "end"])
def test_a_damaged_summary_is_ignored(summary: Path, caplog: pytest.LogCaptureFixture, at: str) -> None:
    text = summary.read_text()
    damaged = {"text": text.replace("v1", "v2"), "head": text.replace(text[30:34], "####", 1), "end": text[:-3]}
    summary.write_text(damaged[at])

    assert load_summary(summary, "table `a`") is None
    assert caplog.messages == [f"the summary of table `a` is damaged: reading table `a` again ({summary})"]


def test_a_summary_that_is_no_text_is_ignored(summary: Path, caplog: pytest.LogCaptureFixture) -> None:
    summary.write_bytes(b"\xff\xfe")

    assert load_summary(summary, "table `a`") is None
    reason = "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    assert caplog.messages == [
        f"the summary of table `a` cannot be read: reading table `a` again ({reason}, {summary})"
    ]


def test_a_summary_of_another_version_is_ignored(summary: Path, caplog: pytest.LogCaptureFixture) -> None:
    summary.write_text(summary.read_text().replace("summary 3 ", "summary 1 "))

    assert load_summary(summary, "table `a`") is None
    assert caplog.messages == [f"the summary of table `a` has another version: reading it once ({summary})"]


def test_a_summary_that_cannot_be_written_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "summaries").write_text("a file where a folder is wanted")

    write_summary(tmp_path / "summaries/table", CONTENT)

    assert caplog.messages[0].startswith("cannot keep a summary: cannot write table")
