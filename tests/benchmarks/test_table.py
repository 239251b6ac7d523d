from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.__main__ import saved
from benchmarks.comparisons import ALL, Asked, Comparison, Section, ratio, wanted
from benchmarks.peers.registry import PEERS
from benchmarks.results import Results, Runs
from rich.console import Console

from benchmarks import table

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
AT_MOST = Comparison(Section.TUMBLING, "replay", "ours", "by hand", "hand", Asked.AT_MOST, 1.2)
FASTER = Comparison(Section.TUMBLING, "replay", "ours", "Flink", "flink", Asked.FASTER, 4.0)
MEMORY = {"rss_mb": 900, "heap_mb": 700, "spilled_mb": 0, "collected_mb": 0.25}
TOLD = Comparison(Section.TUMBLING, "replay", "ours", "DuckDB", "duckdb", Asked.NOTHING)


def runs(engine: str, *seconds: float, **memory: float) -> Runs:
    return Runs(engine, "Parquet", "two threads", [{"seconds": each, **memory} for each in seconds])


def results() -> Results:
    measured = {
        "ours": runs("backstream", 2.0, 9.0, 3.0, **MEMORY, longest_task_share=0.125),
        "hand": runs("Spark SQL", 2.0, 6.0, 2.0),
        "flink": runs("Flink 2", 8.0, 18.0, 15.0),
    }
    return Results(1_000_000, 3, "6g", "2024-03-01", {"processor": "two cores"}, measured)


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    # 2/2, 9/6, 3/2: a round in which the machine was busy counts like any other
    assert ratio(AT_MOST, results()) == (1.5, 1.0, 1.5)
    assert ratio(FASTER, results()) == (4.0, 2.0, 5.0)


def test_each_ratio_is_compared_with_its_limit() -> None:
    assert table.ratio_rows(results(), [AT_MOST, FASTER, TOLD]) == [
        ("replay", "by hand", "1.50 x", "1.00 to 1.50", "at most 1.2 x", "no"),
        ("replay", "Flink", "4.00 x faster", "2.00 to 5.00", "at least 4 x faster", "yes"),
        ("replay", "DuckDB", "not measured", "-", "-", "-"),
    ]


def test_the_row_of_each_job_shows_its_time_and_memory() -> None:
    assert table.job_rows(results())[:2] == [
        ("ours", "backstream", "3.00", "333,333", "900 MB", "700 MB", "0.00 MB", "0.25 MB", "12 %"),
        ("hand", "Spark SQL", "2.00", "500,000", "-", "-", "-", "-", "-"),
    ]


def test_the_terminal_shows_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = results()
    found.failed["polars"] = "no environment"
    found.disagreements.append("ours: 1, hand: 2")

    table.shown(found, [AT_MOST], Console(width=200))

    told = capsys.readouterr().out
    for part in ("1,000,000 events", "1.50 x", "333,333", "two threads"):
        assert part in told
    assert "results differ: ours: 1, hand: 2" in told
    assert "polars was not measured: no environment" in told


def test_figures_are_put_into_their_place_of_the_page_and_nothing_else_changes() -> None:
    page = "before\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nafter\n"

    assert table.with_figures(page, r"new \1") == page.replace("old", r"new \1")


def test_a_page_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^the page must have <!-- figures: begin --> and <!-- figures: end --> once"
    ):
        table.with_figures("no place", "new")


def test_the_page_shows_the_results_that_are_kept() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert table.with_figures(text, table.markdown(saved(), ALL)) == text


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results().write(tmp_path / "results.json")

    assert Results.read(tmp_path / "results.json") == results()


def test_every_peer_is_compared_with_and_left_out_where_it_is_not_wanted() -> None:
    everyone = {peer.name for peer in PEERS}
    compared = {name for each in wanted(list(Section), everyone) for name in (each.job, each.base)}

    assert everyone <= compared
    assert not everyone & {name for each in wanted(list(Section), set()) for name in (each.job, each.base)}
    assert {each.section for each in wanted([Section.SCALE], everyone)} == {Section.SCALE}
