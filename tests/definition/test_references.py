"""Variables in the values of a definition, as `${NAME}`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.definition.clicks import CLICKS

from backstream.definition.loader import load_definition
from backstream.definition.result_sections import TumblingWindow
from backstream.errors import SpecError
from backstream.eventtime.instants import HOUR_MS


def write(folder: Path, text: str) -> Path:
    file = folder / "clicks.toml"
    file.write_text(text)
    return file


def test_a_value_refers_to_a_variable_of_the_environment_or_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDOW_SIZE", "2h")
    (tmp_path / "backstream.toml").write_text("")
    (tmp_path / ".env").write_text("KEY_COLUMN=user\nWINDOW_SIZE=3h\n")
    text = CLICKS.replace('"1h"', '"${WINDOW_SIZE}"').replace('["page"]', '["page", "${KEY_COLUMN}"]')

    found = load_definition(write(tmp_path, text))

    assert found.source.key == ("page", "user")
    assert isinstance(found.window, TumblingWindow)
    assert found.window.size == 2 * HOUR_MS


def test_a_path_keeps_its_variables_until_a_run_reads_it(tmp_path: Path) -> None:
    path = "${BACKSTREAM_HOME}/data"
    found = load_definition(write(tmp_path, CLICKS.replace("/data/clicks", path)))
    assert found.source.path == path


def test_two_dollars_write_one(tmp_path: Path) -> None:
    text = CLICKS.replace('"count(*)"', """ "count_if(page = '$${x}')" """.strip())
    found = load_definition(write(tmp_path, text))
    assert found.aggregates == {"clicks": "count_if(page = '${x}')"}


def test_a_variable_that_is_not_set_is_named_with_the_key(tmp_path: Path) -> None:
    file = write(tmp_path, CLICKS.replace('"1h"', '"${NO_SUCH_SIZE}"'))
    with pytest.raises(SpecError) as caught:
        load_definition(file)
    assert str(caught.value) == f"variable NO_SUCH_SIZE is not set, got '${{NO_SUCH_SIZE}}' ({file}, window.size)"
