"""The request of a run informs only: a run goes on without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstream.orchestration.requests import RecordedRequest
from backstream.runs.home import Home
from backstream.runs.requests import RunRequest


def test_a_request_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = Home(tmp_path)
    folder = home.requests("clicks")
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in place of the folder")
    recorded = RecordedRequest(home, RunRequest("clicks", "reprocess_clicks", "one", "one", 0))
    recorded.add(error="no plan")
    assert recorded.request.error == "no plan"
    assert "cannot write the request of this run" in caplog.text
