"""Two teams of one Airflow with datasets of the same name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dags.conftest import Ask
from tests.workflow.history import write_definition

from backstream.errors import SpecError
from backstream.runs.dag_names import dag_id_of, dataset_of_dag, load_team
from backstream.variables import TEAM_VARIABLE


@pytest.fixture(scope="module")
def made(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of both teams, and of a project without a team."""
    folders = [tmp_path_factory.mktemp("teams") / name for name in ("sales", "support", "others")]
    for folder in folders:
        folder.mkdir()
        write_definition(folder)
        (folder / "backstream.toml").write_text(f'team = "{folder.name}"\n' if folder.name != "others" else "")
    answers: dict[str, Any] = ask("teams", *folders)
    return answers | {"folder": str(folders[0])}


def test_each_team_has_its_own_dags(made: dict[str, Any]) -> None:
    names = ("sales.clicks", "support.clicks", "clicks")
    assert set(made["dags"]) == {
        f"{kind}_{name}" for name in names for kind in ("backfill", "reprocess", "restate")
    }


@pytest.mark.parametrize(
    ("name", "tags"), [("sales.clicks", ["sales"]), ("support.clicks", ["support"]), ("clicks", [])]
)
def test_dags_of_a_team_trigger_those_of_the_same_team(made: dict[str, Any], name: str, tags: list[str]) -> None:
    assert made["dags"][f"backfill_{name}"]["triggers"] == [f"restate_{name}"]
    assert made["dags"][f"restate_{name}"]["triggers"] == [f"reprocess_{name}"]
    assert made["dags"][f"restate_{name}"]["tags"] == sorted(["backstream", "clicks", "restate", *tags])


def test_assets_of_teams_differ(made: dict[str, Any]) -> None:
    names = ("sales.clicks", "support.clicks", "clicks")
    assert [made["dags"][f"reprocess_{name}"]["outlets"] for name in names] == [
        [f"backstream://{name}/", f"backstream://{name}/days"] for name in names
    ]


def test_each_team_gives_its_own_permissions(made: dict[str, Any]) -> None:
    assert made["dags"]["reprocess_sales.clicks"]["roles"] == ["sales"]
    assert made["dags"]["reprocess_support.clicks"]["roles"] == ["support"]


def test_the_name_of_a_team_is_checked(made: dict[str, Any]) -> None:
    message = "team must be lower-case letters, digits, and -, got 'Sales Team' (BACKSTREAM_TEAM)"
    assert made["problems"] == [message]
    with pytest.raises(SpecError, match=r"got 'a\.b'"):
        load_team({TEAM_VARIABLE: "a.b"})


def test_pages_of_a_team_know_its_own_dags_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ["backfill_clicks", "backfill_sales.clicks", "restate_support.clicks", "weekly"]
    monkeypatch.delenv(TEAM_VARIABLE, raising=False)
    assert [dataset_of_dag(each) for each in ids] == ["clicks", None, None, None]
    monkeypatch.setenv(TEAM_VARIABLE, "sales")
    assert [dataset_of_dag(each) for each in ids] == [None, "clicks", None, None]
    assert dataset_of_dag(dag_id_of("keep_batches", "clicks")) == "clicks"
    assert dag_id_of("reprocess", "clicks") == "reprocess_sales.clicks"
