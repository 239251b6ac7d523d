"""A table has one definition, one key and a format that this version knows."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts, stage_counts

from backstream import __version__
from backstream.errors import PlanError
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.commit import commit_snapshot
from backstream.lake.publication.publish import publish_range
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Plan
from backstream.workflow.publish import create_run_tables

TWO_DEFINITIONS = (
    "two definitions have the name 'clicks', and only one can write the table\n"
    "  FOLDER/clicks.toml\n"
    "  FOLDER/copy.toml\n\n"
    "hint: give one of them another name; its rows will be written to a new table"
)
ROWS = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:10"), "A", 1, "home")]


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", ROWS)


def refusal(folder: Path, definition: Path) -> str:
    with pytest.raises(PlanError) as caught:
        planned(folder, definition)
    return str(caught.value).replace(str(folder), "FOLDER")


def copy_of(definition: Path, name: str) -> Path:
    file = definition.with_name(name)
    file.write_text(definition.read_text())
    return file


def test_two_definitions_with_one_name_are_refused_and_named(tmp_path: Path) -> None:
    first = write_definition(tmp_path)
    create_run_tables(planned(tmp_path, first))

    assert refusal(tmp_path, copy_of(first, "copy.toml")) == TWO_DEFINITIONS
    planned(tmp_path, first)  # the first one goes on


def test_of_two_definitions_planned_before_there_was_a_table_the_second_is_refused(
    tmp_path: Path,
) -> None:
    first = write_definition(tmp_path)
    plans = [planned(tmp_path, first), planned(tmp_path, copy_of(first, "copy.toml"))]
    publish_counts(plans[0], ROWS)

    with pytest.raises(PlanError) as caught:
        create_run_tables(plans[1])

    assert str(caught.value).replace(str(tmp_path), "FOLDER") == TWO_DEFINITIONS
    create_run_tables(plans[0])


@pytest.mark.parametrize("is_given_up", [False, True], ids=["new table", "table that was given up"])
def test_of_definitions_that_write_for_the_first_time_at_the_same_moment_one_wins(
    tmp_path: Path, *, is_given_up: bool
) -> None:
    first = write_definition(tmp_path)
    if is_given_up:
        create_run_tables(planned(tmp_path, first))
    copies = [copy_of(first, f"{name}.toml") for name in "abcd"]
    if is_given_up:
        first.unlink()
    plans = [planned(tmp_path, copy) for copy in copies]
    barrier, errors = threading.Barrier(len(plans)), [""] * len(plans)

    def begin(number: int, plan: Plan) -> None:
        barrier.wait()
        try:
            create_run_tables(plan)
        except PlanError as error:
            errors[number] = str(error).replace(str(tmp_path), "FOLDER")

    threads = [threading.Thread(target=begin, args=each) for each in enumerate(plans)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    winner = "abcd"[errors.index("")]
    assert [text.splitlines()[1:3] for text in errors if text] == [
        [f"  FOLDER/{winner}.toml", f"  FOLDER/{other}.toml"] for other in "abcd" if other != winner
    ]


@pytest.mark.parametrize("left", ["nothing", "another name", "no TOML"])
def test_a_definition_whose_file_was_renamed_keeps_its_table(tmp_path: Path, left: str) -> None:
    first = write_definition(tmp_path)
    create_run_tables(planned(tmp_path, first))
    second = copy_of(first, "renamed.toml")
    if left == "nothing":
        first.unlink()
    else:
        first.write_text("name = " if left == "no TOML" else CLICKS.replace('"clicks"', '"other"'))

    create_run_tables(planned(tmp_path, second))

    assert refusal(tmp_path, copy_of(second, "third.toml")).splitlines()[1] == "  FOLDER/renamed.toml"


def test_the_same_file_by_another_way_is_the_same_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_definition(tmp_path)
    create_run_tables(planned(tmp_path, first))
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)

    create_run_tables(planned(tmp_path, tmp_path / "link" / "clicks.toml"))
    create_run_tables(planned(tmp_path, Path("clicks.toml")))


def test_a_changed_key_is_refused_once_rows_are_published(tmp_path: Path) -> None:
    file = write_definition(tmp_path)
    create_run_tables(planned(tmp_path, write_definition(tmp_path, key='["origin"]')))
    plan = planned(tmp_path, write_definition(tmp_path, key='["page"]'))  # nothing was published: no harm
    publish_counts(plan, ROWS)

    both = write_definition(tmp_path, key='["page", "origin"]')

    assert refusal(tmp_path, both) == (
        "the key of 'clicks' changed, and one table cannot hold rows of both keys (FOLDER/clicks.toml)\n"
        "  published by page\n"
        "  source.key is page, origin\n\n"
        "hint: give the definition another name; it will write to a new table, and the old one stays unchanged"
    )
    assert refusal(tmp_path, write_definition(tmp_path, key="[]")).splitlines()[2] == "  source.key is no key"
    planned(tmp_path, write_definition(tmp_path))
    assert file.exists()


def test_a_run_staged_with_another_key_is_not_published_beside_rows_of_a_new_one(tmp_path: Path) -> None:
    old = planned(tmp_path, write_definition(tmp_path, key='["origin"]'))
    stage_counts(old, [])
    publish_counts(planned(tmp_path, write_definition(tmp_path, key='["page"]')), ROWS)

    with pytest.raises(PlanError) as caught:
        publish_range(old, load_manifests(old))

    assert str(caught.value).splitlines()[1:3] == ["  published by page", "  source.key is origin"]


def test_a_table_that_changes_hands_just_before_a_publication_is_looked_at_again(tmp_path: Path) -> None:
    plan = planned(tmp_path, write_definition(tmp_path))
    create_run_tables(plan)
    with open_catalog_for_writing(Home(tmp_path / "home")) as catalog:
        table = load_table(catalog, "clicks")
        set_property(tmp_path, "backstream.keys", '["origin"]')
        with pytest.raises(CommitFailedException, match="another commit was made in the meantime"):
            commit_snapshot(table, Operation.OVERWRITE, [], [], {})

    publish_counts(plan, ROWS)  # nothing was published with the other keys

    with open_catalog_for_writing(Home(tmp_path / "home")) as catalog:
        assert load_table(catalog, "clicks").properties["backstream.keys"] == '["page"]'


def test_a_table_that_never_noted_its_keys_is_known_by_its_columns(tmp_path: Path) -> None:
    publish_counts(planned(tmp_path, write_definition(tmp_path)), ROWS)
    set_property(tmp_path, "backstream.keys", None)

    error = refusal(tmp_path, write_definition(tmp_path, key='["origin", "page"]'))
    assert error.splitlines()[1:3] == ["  published by page", "  source.key is origin, page"]
    planned(tmp_path, write_definition(tmp_path))


def test_a_table_of_a_newer_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    file = write_definition(tmp_path)
    create_run_tables(planned(tmp_path, file))
    set_property(tmp_path, "backstream.format", "3")
    set_property(tmp_path, "backstream.made_by", "7.0.0")

    assert refusal(tmp_path, file) == (
        f"table `clicks` has format 3, and backstream {__version__} reads only format 2\n"
        "  it was created by backstream 7.0.0\n\n"
        "hint: update backstream here, or point BACKSTREAM_HOME and BACKSTREAM_CATALOG_URI at another lake"
    )


@pytest.mark.parametrize("first_format", ["1", None])
def test_a_table_of_an_older_format_is_refused_with_both_formats(tmp_path: Path, first_format: str | None) -> None:
    file = write_definition(tmp_path)
    create_run_tables(planned(tmp_path, file))
    set_property(tmp_path, "backstream.format", first_format)

    assert refusal(tmp_path, file) == (
        f"table `clicks` has format 1, and backstream {__version__} reads only format 2\n"
        f"  it was created by backstream {__version__}\n\n"
        "hint: point BACKSTREAM_HOME and BACKSTREAM_CATALOG_URI at another lake, and run its ranges again"
    )


def _as_it_is(catalog: Catalog) -> Table:
    """Whatever its format: `loaded` refuses that of a newer version."""
    return catalog.load_table(table_identifier("clicks"))


def set_property(folder: Path, name: str, value: str | None) -> None:
    """One property of the table of the windows; None takes it away."""
    with (
        open_catalog_for_writing(Home(folder / "home")) as catalog,
        _as_it_is(catalog).transaction() as transaction,
    ):
        if value is None:
            transaction.remove_properties(name)
        else:
            transaction.set_properties({name: value})
