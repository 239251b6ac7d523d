"""Test that the work of a page doesn't grow with the history: rows on a page, and files that a request reads."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pages.long_history import LARGEST, pages, write_history

from backstream.definition.loader import load_definition
from backstream.definition.model import Definition
from backstream.pages import lists
from backstream.pages.filters import Filter
from backstream.pages.store import PageStore
from backstream.runs.dataset_state import DayTotals, load_day_totals
from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE

DAYS, RUNS, DATASETS = 40, 220, 60
FLIGHTS = "backfill_flights"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Write a history of which no page shows everything."""
    folder = tmp_path_factory.mktemp("scale")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CATALOG_VARIABLE, raising=False)
        patch.setenv(HOME_VARIABLE, str(folder / "home"))
        patch.setenv("BACKSTREAM_DEFINITIONS", str(folder / "definitions"))
        write_history(Home(folder / "home"), folder / "definitions", DAYS, RUNS, DATASETS)
        yield Home(folder / "home")


@pytest.fixture
def dag_ids(home: Home) -> set[str]:
    return {f"backfill_{file.stem}" for file in (home.path.parent / "definitions").glob("*.toml")}


def opened_files(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of the files that this process opens from now on, by name."""
    counted: Counter[str] = Counter()
    real = io.open

    def count(file: Any, *arguments: Any, **options: Any) -> Any:
        counted[Path(str(file)).name] += 1
        return real(file, *arguments, **options)

    patch.setattr(io, "open", count)
    return counted


def ranks(html: str, tag: str) -> int:
    return len(re.findall(rf"<{tag}[ >]", html))


def test_a_list_shows_a_page_of_its_rows_and_links_to_the_next_one(home: Home, dag_ids: set[str]) -> None:
    store = PageStore.from_home(home)
    overview, runs = lists.overview_page(store, dag_ids).html, lists.runs_page(store, dag_ids).html
    last = lists.runs_page(store, dag_ids, None, Filter(page=5)).html

    assert (overview.count('class="dataset-card"'), runs.count("<tr>")) == (25, 51)
    assert "1 to 25 of 60 datasets" in overview
    assert "1 to 50 of 220 runs" in runs
    assert 'href="runs?page=2">Next page</a>' in runs
    assert "201 to 220 of 220 runs" in last
    assert "Next page" not in last


def test_no_page_grows_with_the_number_of_runs_or_datasets(home: Home, dag_ids: set[str]) -> None:
    store = PageStore.from_home(home)
    sizes = {name: len(build(store).html) for name, build in pages(dag_ids).items()}
    assert {name: size for name, size in sizes.items() if size > 450_000} == {}


def test_a_first_request_reads_the_days_and_the_definitions_that_it_shows_only(
    home: Home, dag_ids: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, set[str]] = {"days": set(), "definitions": set()}

    def load_days(path: Path) -> list[DayTotals]:
        read["days"].add(path.parts[-3])
        return load_day_totals(path)

    def load(path: Path) -> Definition:
        read["definitions"].add(path.stem)
        return load_definition(path)

    for name, folder in (("home", home.path), ("definitions", home.path.parent / "definitions")):
        (tmp_path / name).symlink_to(folder)  # no cache has a file of these paths
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(tmp_path / "definitions"))
    monkeypatch.setattr("backstream.pages.store.load_day_totals", load_days)
    monkeypatch.setattr("backstream.pages.definitions.load_definition", load)

    html = lists.overview_page(PageStore.from_home(Home(tmp_path / "home")), dag_ids).html

    shown = set(re.findall(r'id="d-(\w+)"', html))
    assert len(shown) == 25
    assert read["definitions"] == shown
    assert shown <= read["days"] <= {*shown, LARGEST}, "only the largest dataset has a run with a warning"


def test_a_second_request_reads_only_small_files_that_change(
    home: Home, dag_ids: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for build in pages(dag_ids).values():
        build(PageStore.from_home(home))
    files = opened_files(monkeypatch)
    for name, build in pages(dag_ids).items():
        files.clear()
        build(PageStore.from_home(home))
        read = {each for each in files if each in ("day_totals.json", "plan.json") or each.endswith(".toml")}
        assert read == set(), name
        assert files.total() <= 4 * DATASETS + RUNS, (name, files.most_common(5))


def test_a_new_run_makes_the_pages_compute_the_days_of_its_dataset_only(
    home: Home, dag_ids: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists.overview_page(PageStore.from_home(home), dag_ids)
    changed = next(home.path.glob("runs/dataset_001/*/day_totals.json"))
    changed.write_text(changed.read_text())
    files = opened_files(monkeypatch)
    lists.overview_page(PageStore.from_home(home), dag_ids)
    assert files["day_totals.json"] == 1
