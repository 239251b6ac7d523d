"""The settings of a project: which place of a value counts, and what a mistake is told."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstream import variables
from backstream.errors import SpecError
from backstream.runs import settings
from backstream.runs.settings import (
    SETTINGS,
    find_project,
    mask_secrets,
    misspelt_variables,
    project_environment,
    provide_settings,
)
from backstream.variables import (
    CATALOG_VARIABLE,
    CLASS_ARCHIVE_VARIABLE,
    DEFINITIONS_VARIABLE,
    HEAP_VARIABLE,
    HOME_VARIABLE,
    PROJECT_VARIABLE,
    WAREHOUSE_VARIABLE,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting of this process, and none that a test leaves."""
    before = dict(os.environ)
    for name in (*SETTINGS, PROJECT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def project(folder: Path, content: str = "", dotenv: str | None = None) -> Path:
    """Return a folder with a project file."""
    folder.mkdir(exist_ok=True)
    (folder / "backstream.toml").write_text(content)
    if dotenv is not None:
        (folder / ".env").write_text(dotenv)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(SpecError) as caught:
        project_environment(folder)
    return str(caught.value).replace(str(folder), "<project>")


def test_the_environment_overrides_dotenv_and_dotenv_overrides_the_project_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(
        tmp_path,
        'home = "a"\ncatalog_uri = "a"\ndriver_memory = "1g"\n',
        "BACKSTREAM_CATALOG_URI=b\nBACKSTREAM_DRIVER_MEMORY=2g\n",
    )
    monkeypatch.setenv(HEAP_VARIABLE, "3g")

    found = {setting.variable: (setting.text, setting.source) for setting in provide_settings(folder)}

    assert found[HOME_VARIABLE] == (f"{folder}/a", f"{folder}/backstream.toml")
    assert found[CATALOG_VARIABLE] == ("b", f"{folder}/.env")
    assert found[HEAP_VARIABLE] == ("3g", "environment")
    assert found[DEFINITIONS_VARIABLE] == (f"{folder}/definitions", f"default of {folder}")
    assert found[WAREHOUSE_VARIABLE] == (None, "default")
    assert [os.environ[name] for name in (HOME_VARIABLE, CATALOG_VARIABLE, HEAP_VARIABLE)] == [
        *(f"{folder}/a", "b", "3g")
    ]
    assert WAREHOUSE_VARIABLE not in os.environ


def test_an_empty_setting_is_not_set_except_that_of_class_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path, 'catalog_uri = "a"\nclass_archive = "b"\n')
    monkeypatch.setenv(CATALOG_VARIABLE, "")
    monkeypatch.setenv(CLASS_ARCHIVE_VARIABLE, "")

    found = project_environment(folder)

    assert (found[CATALOG_VARIABLE], found[CLASS_ARCHIVE_VARIABLE]) == ("a", "")


def test_folders_of_a_project_file_are_relative_to_it(tmp_path: Path) -> None:
    folder = project(tmp_path, 'definitions = ["a", "/b"]\nwarehouse = "w"\n')
    assert project_environment(folder)[DEFINITIONS_VARIABLE] == f"{folder}/a:/b"
    assert project_environment(folder)[WAREHOUSE_VARIABLE] == f"{folder}/w"

    project(tmp_path, 'warehouse = "s3://lake/events"\n')
    assert project_environment(folder)[WAREHOUSE_VARIABLE] == "s3://lake/events"


def test_a_project_file_refers_to_variables(tmp_path: Path) -> None:
    folder = project(tmp_path, 'warehouse = "s3://${BUCKET}/$${x}"\n', "# a note\nexport BUCKET='lake'\n")
    assert project_environment(folder)[WAREHOUSE_VARIABLE] == "s3://lake/${x}"


def test_the_project_is_the_nearest_folder_with_a_project_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "definitions" / "eu"
    inner.mkdir(parents=True)
    assert find_project(inner) is None

    project(tmp_path)
    assert find_project(inner) == tmp_path
    monkeypatch.chdir(inner)
    assert find_project() == tmp_path

    other = project(tmp_path / "other")
    monkeypatch.setenv(PROJECT_VARIABLE, str(other))
    assert (find_project(), find_project(inner)) == (other, tmp_path)


def test_a_project_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    with pytest.raises(SpecError) as caught:
        find_project()
    assert str(caught.value) == (f"BACKSTREAM_PROJECT must be a folder with a backstream.toml, got '{tmp_path}'")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            'hoem = "a"',
            (
                "hoem is not a setting, got 'a' (<project>/backstream.toml)\n"
                "  there are: cache, catalog, catalog_connection, catalog_uri, class_archive, definitions,"
                " driver_memory, expectations, home, namespace, shared_home, team, warehouse,"
                " warehouse_connection\n\n"
                "hint: did you mean home?"
            ),
        ),
        ("home = 1", "home must be a text, got 1 (<project>/backstream.toml)"),
        (
            "definitions = [1]",
            "definitions must be a text or a list of texts, got [1] (<project>/backstream.toml)",
        ),
        (
            'home = "${NOWHERE}/a"',
            "variable NOWHERE is not set, got '${NOWHERE}/a' (<project>/backstream.toml, home)",
        ),
        ("home =", "backstream.toml is not TOML: Invalid value (at end of document) (<project>/backstream.toml)"),
    ],
)
def test_a_mistake_in_the_project_file_names_the_key_and_the_value(
    tmp_path: Path, content: str, said: str
) -> None:
    assert refusal(project(tmp_path, content)) == said


def test_a_misspelt_variable_is_named_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKSTREAM_HOEM", "BACKSTREAM_CATALOG_URL", "BACKSTREAM_ORDERS_BUCKET", "HOEM", HOME_VARIABLE):
        monkeypatch.setenv(name, "a")

    assert list(misspelt_variables()) == [
        "BACKSTREAM_CATALOG_URL is not a setting and has no effect; did you mean BACKSTREAM_CATALOG_URI?",
        "BACKSTREAM_HOEM is not a setting and has no effect; did you mean BACKSTREAM_HOME?",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg2://me:se@cret@host/lake", "postgresql+psycopg2://me:***@host/lake"),
        ("s3://ID:KEY@lake/a?region=eu&session_token=x", "s3://ID:***@lake/a?region=eu&session_token=***"),
        ("http://host/?Password=x&timeout=1", "http://host/?Password=***&timeout=1"),
        ("sqlite:////srv/catalog.db?timeout=60", "sqlite:////srv/catalog.db?timeout=60"),
        ("/srv/a:/srv/b", "/srv/a:/srv/b"),
    ],
)
def test_passwords_and_keys_are_masked(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown


def test_every_variable_of_an_installation_is_a_setting() -> None:
    tree = ast.parse(Path(str(variables.__file__)).read_text(encoding="utf-8"))
    named = {
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if str(node.value.value).startswith(settings.PREFIX)
    }

    of_jobs = {"BACKSTREAM_PARENT_TASK", "BACKSTREAM_ERROR_FILE", "BACKSTREAM_PACKAGE"}
    assert named - {*SETTINGS} == {PROJECT_VARIABLE, *of_jobs}
