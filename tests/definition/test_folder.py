"""The files of definitions: in subfolders, and in several folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstream.definition.folder import find_definition, list_definition_files
from backstream.errors import SpecError
from backstream.runs.home import Home
from backstream.variables import DEFINITIONS_VARIABLE, HOME_VARIABLE


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of the settings, `a` and `b`, with definitions and with files that are none."""
    names = "a/eu/orders.toml", "a/us/clicks.toml", "b/clicks.toml", "b/flights.toml"
    for name in (*names, "a/.git/x.toml", "a/.draft.toml", "a/notes.md", "b/backstream.toml", "b/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv(DEFINITIONS_VARIABLE, f"{tmp_path}/a:{tmp_path}/b")
    return tmp_path


def refusal(name: str) -> str:
    with pytest.raises(SpecError) as caught:
        find_definition(name)
    return str(caught.value)


def test_definitions_in_subfolders_and_several_folders_are_found(folders: Path) -> None:
    found = [str(file.relative_to(folders)) for file in list_definition_files(folders / "a", folders / "b")]
    assert found == ["a/eu/orders.toml", "a/us/clicks.toml", "b/clicks.toml", "b/flights.toml"]
    assert find_definition("orders") == folders / "a/eu/orders.toml"
    assert find_definition("flights") == folders / "b/flights.toml"


def test_a_name_that_two_files_have_is_an_error(folders: Path) -> None:
    assert refusal("clicks") == (
        f"2 files have the name 'clicks'\n  {folders}/a/us/clicks.toml\n  {folders}/b/clicks.toml\n\n"
        "hint: give the path of one of them"
    )


def test_an_error_about_a_misspelled_name_suggests_the_nearest_one(folders: Path) -> None:
    assert refusal("oders") == (
        f"no definition 'oders': neither a file, nor a name in {folders}/a, {folders}/b\n"
        "  there are: clicks, flights, orders\n\nhint: did you mean orders?"
    )


def test_a_definition_has_the_name_of_its_file_and_of_its_dataset(folders: Path) -> None:
    file = folders / "a/eu/orders.toml"
    file.write_text('name = "orders_eu"\n')

    assert find_definition("orders") == find_definition("orders_eu") == file
    assert "there are: clicks, flights, orders, orders_eu" in refusal("returns")


def test_a_name_is_that_of_a_dataset_before_it_is_that_of_a_file(folders: Path) -> None:
    (folders / "a/eu/orders.toml").write_text('name = "sales"\n')
    (folders / "b/flights.toml").write_text('name = "orders"\n')

    assert find_definition("orders") == folders / "b/flights.toml"
    assert find_definition("sales") == folders / "a/eu/orders.toml"


def test_the_file_of_a_renamed_dataset_does_not_answer_for_the_old_name(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(folders / "home"))
    file = folders / "a/eu/orders.toml"
    file.write_text('name = "sales"\n')
    assert find_definition("orders") == file, "nothing is recorded under this name"

    Home(folders / "home").run("orders", "one").path.mkdir(parents=True)
    assert refusal("orders") == (
        f"no file defines the dataset 'orders' any more: {file} defines 'sales'\n\n"
        "hint: give sales, or the path of the file"
    )
    assert find_definition(str(file)) == find_definition("sales") == file
