"""Preview a run: the changed rows of sampled keys, their causes, the estimates for all keys, and the cost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import Click, publish_counts
from typer.testing import CliRunner

import backstream
from backstream.cli import app
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, epoch_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import TimeWindow
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.reader import load_rows
from backstream.native.key_sample import IS_NEW, draw_key_sample, keep_sampled_keys
from backstream.native.raw_input import RawInput, Target
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.variables import HOME_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.preview.changed_rows import load_published_sample
from backstream.workflow.preview.computation import compute_sampled_rows, list_sampled_columns, needed_span
from backstream.workflow.preview.preview import preview_run
from backstream.workflow.preview.preview_result import Preview
from backstream.workflow.preview.scaling import Estimate, estimate_keys, estimate_total
from backstream.workflow.recomputation.windows import recompute_windows

PAGES = 400
DAY = Interval(1_709_251_200_000, 1_709_337_600_000)


def clicks(seed: int = 1, pages: int = PAGES, prefix: str = "page") -> list[Click]:
    """Return clicks of a day on many pages, in arrival order."""
    draw, found = random.Random(seed), []  # noqa: S311 - a history, not a secret
    for number in range(pages * 5):
        minute = number * 1_400 // (pages * 5)
        when = at(f"1 {minute // 60:02}:{minute % 60:02}")
        page = number if number < pages else draw.randrange(pages)
        found.append((when, when, "A", number, f"{prefix}-{page}"))
    return found


def no_spark(_: str) -> Any:
    """Fail: DuckDB computes the sample."""
    raise AssertionError


@dataclass
class Published:
    """A folder with a published day."""

    folder: Path
    definition: Path

    def preview(self, share: float | None = None, mode: Mode | None = None) -> Preview:
        """Return the preview of a run of the day."""
        home = Home(self.folder / "home")
        return preview_run(
            PlanRequest(self.definition, DAY, mode=mode, trigger="test", home=home), no_spark, share
        )

    def add(self, rows: Sequence[Click]) -> None:
        """Add a file."""
        write_clicks(self.folder / "data/late.parquet", rows)


@pytest.fixture
def published(tmp_path: Path) -> Published:
    """Publish a day without Spark."""
    rows = clicks()
    write_clicks(tmp_path / "data/a.parquet", rows)
    definition = write_definition(tmp_path)
    publish_counts(planned(tmp_path, definition), rows)
    return Published(tmp_path, definition)


def list_metadata(home: Path) -> list[str]:
    """Return the metadata files of all tables; each change of a table adds one."""
    return sorted(path.name for path in home.rglob("*.metadata.json"))


def causes(preview: Preview) -> list[dict[str, int]]:
    """Return the number of sampled rows by cause for each day."""
    return [dict(day.causes) for day in preview.days]


def test_nothing_changes_without_a_change(published: Published) -> None:
    found = published.preview(1.0)
    assert (found.sampled_keys, found.sampled_records, found.days) == (PAGES, 5 * PAGES, [])
    assert "no row changes" in str(found)


def test_a_recompute_reads_arrivals_only_to_find_records_that_lack_them(tmp_path: Path) -> None:
    rows = clicks()
    write_clicks(tmp_path / "data/a.parquet", rows)
    definition = write_definition(tmp_path, CLICKS.replace('deduplicate_on = ["origin", "seq"]\n', ""))
    plan = planned(tmp_path, definition)
    publish_counts(plan, rows)
    raw = RawInput.from_plan(plan, "preview")
    columns = list_sampled_columns(raw.definition, plan)
    sample = draw_key_sample(raw, 1.0, DAY, tmp_path / "sample.parquet", columns=columns)
    assert pq.read_schema(sample.file.path).names == ["happened_at", "page", IS_NEW]
    published = Published(tmp_path, definition)
    assert published.preview(1.0).days == []
    published.add([(at("1 03:10"), at("3 00:00"), None, 1, "page-1"), (at("1 03:10"), None, "A", 1, "page-1")])
    found = published.preview(1.0)
    assert (found.sampled_records, found.days) == (5 * PAGES, [])


def test_local_files_give_the_rows_that_the_table_has(published: Published) -> None:
    home = Home(published.folder / "home")
    raw = RawInput.from_plan(planned(published.folder, published.definition), "preview")
    with open_catalog_for_writing(home) as catalog, load_table(catalog, "clicks").update_schema() as update:
        update.rename_column("clicks", "visits")
        update.add_column("more", LongType())
    found = load_published_sample(home, raw, 0.3)
    (expected,) = keep_sampled_keys([load_rows(home, "clicks")], ["page"], raw.plan.columns, 0.3)
    assert found is not None
    assert 0 < found.num_rows < load_rows(home, "clicks").num_rows
    by = [("page", "ascending"), ("window_start", "ascending")]
    assert found.sort_by(by).to_pylist() == expected.select(found.column_names).sort_by(by).to_pylist()
    assert set(found.column_names) >= {"visits", "more"}


def test_late_data_changes_the_rows_with_its_records(published: Published) -> None:
    late = [(at("1 03:10"), at("3 00:00"), "B", number, f"page-{number}") for number in range(100)]
    published.add(late)
    found = published.preview(1.0)
    assert causes(found) == [{"late data": 100}]
    assert found.rows == Estimate(100, 100, 100)
    assert [(each.name, each.difference.value) for each in found.aggregates] == [("clicks", 100)]
    assert list(found.details) == ["late data"]


def test_a_removed_file_a_changed_row_and_unpublished_days_have_their_causes(published: Published) -> None:
    more = [(at("2 03:10"), at("2 03:10"), "A", 10_000 + number, "page-1") for number in range(9)]
    write_clicks(published.folder / "data/b.parquet", more)
    home = Home(published.folder / "home")
    two_days = PlanRequest(
        published.definition, Interval(DAY.start_ms, DAY.end_ms + DAY_MS), trigger="test", home=home
    )
    assert causes(preview_run(two_days, no_spark, 1.0)) == [{"not published yet": 1}]
    (published.folder / "data/b.parquet").unlink()
    write_clicks(published.folder / "data/a.parquet", clicks()[:-1])
    assert causes(published.preview(1.0)) == [{"late data": 1}]


def test_another_definition_and_another_policy_have_their_causes(published: Published) -> None:
    wider = CLICKS.replace('size = "1h"', 'size = "2h"')
    write_definition(published.folder, wider)
    found = published.preview(1.0)
    assert list(found.details) == ["definition"]
    assert found.details["definition"] == ["window.size"]
    assert {cause for day in causes(found) for cause in day} == {"definition"}
    delayed = CLICKS.replace('delay = "10m"', 'delay = "0s"') + '[backfill]\npublish = "first"\n'
    write_definition(published.folder, delayed)
    disordered = [(at("1 03:10"), at("1 23:00"), "A", 90_000 + number, f"page-{number}") for number in range(9)]
    published.add(disordered)
    found = published.preview(1.0, Mode.REPLAY)
    assert found.details["lateness policy"] == [
        "backfill.publish",
        "watermark.delay",
        "recompute instead of replay",
    ]


def test_a_row_has_late_data_as_a_cause_only_if_it_has_new_records(published: Published) -> None:
    published.add([(at("1 03:10"), at("3 00:00"), "B", number, f"page-{number}") for number in range(100)])
    write_definition(published.folder, CLICKS.replace('size = "1h"', 'size = "2h"'))
    (found,) = causes(published.preview(1.0))
    assert found["definition"] > found["late data"] >= 100


def test_a_row_that_was_changed_in_the_table_has_no_known_cause(tmp_path: Path) -> None:
    rows = clicks()
    write_clicks(tmp_path / "data/a.parquet", rows)
    definition = write_definition(tmp_path)
    publish_counts(planned(tmp_path, definition), rows[1:])
    assert causes(Published(tmp_path, definition).preview(1.0)) == [{"unknown": 1}]


def test_a_sample_has_the_rows_of_its_keys_as_they_are_with_all_keys(published: Published) -> None:
    published.add([(at("1 03:10"), at("3 00:00"), "B", number, f"page-{number}") for number in range(300)])
    part, smaller = published.preview(0.25), published.preview(0.2)
    assert 60 < smaller.sampled_keys < part.sampled_keys < 140
    assert part.rows.low is not None
    assert part.rows.high is not None
    assert part.rows.low < 300 < part.rows.high
    assert part.cost.rows_written.low is not None
    assert published.preview(0.25) == part


def test_a_small_sample_grows_unless_its_share_was_requested(published: Published) -> None:
    grown = published.preview()
    assert (grown.share, grown.sampled_keys) == (1.0, PAGES)
    with pytest.raises(SpecError, match="hint: use a larger share"):
        published.preview(0.0001)


def test_ranks_need_all_keys(published: Published) -> None:
    with published.definition.open("a") as file:
        file.write('\n[top]\nn = 1\nby = "clicks desc"\n')
    with pytest.raises(SpecError, match=r"^\[top\] compares all keys of a window, .* got a share of 0.25$"):
        published.preview(0.25)


def test_nothing_is_written_but_caches(published: Published) -> None:
    home = published.folder / "home"
    before = {path for path in home.rglob("*") if path.is_file()}
    metadata = list_metadata(home)
    published.preview(1.0, Mode.REPLAY)
    added = {path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file()} - {
        path.relative_to(home).parts[0] for path in before
    }
    assert added <= {"arrivals", "summaries"}
    assert list_metadata(home) == metadata


REPLAYED = """
[lateness]
allowed = "30m"

[backfill]
mode = "replay"
publish = "live"
"""


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "cumulate"])
def test_a_replayed_sample_equals_the_reference_engine(tmp_path: Path, kind: str) -> None:
    sizes = {
        "tumbling": 'size = "1h"',
        "sliding": 'size = "2h"\nslide = "1h"',
        "cumulate": 'size = "6h"\nstep = "1h"',
    }
    text = CLICKS.replace('kind = "tumbling"\nsize = "1h"', f'kind = "{kind}"\n{sizes[kind]}') + REPLAYED
    draw = random.Random(3)  # noqa: S311 - a history, not a secret
    rows = [
        (when, when + timedelta(minutes=draw.choice((0, 0, 0, 20, 70, 400))), partition, number, page)
        for number, (when, _, _, _, page) in enumerate(clicks(pages=40))
        for partition in [draw.choice("AB")]
    ]
    rows += [(*rows[5][:1], at("1 22:00"), *rows[5][2:])]
    write_clicks(tmp_path / "data/a.parquet", rows)
    definition = write_definition(tmp_path, text)
    plan = planned(tmp_path, definition)
    raw = RawInput.from_plan(plan, "preview")
    sample = draw_key_sample(raw, 0.3, needed_span(raw.definition, plan), tmp_path / "sample.parquet")
    assert 5 < sample.keys < 20
    computed = compute_sampled_rows(raw, sample, tmp_path, no_spark).to_pylist()
    targets = [
        Target(TimeWindow(epoch_ms(row["window_start"]), epoch_ms(row["window_end"])), (row["page"],))
        for row in computed
    ]
    expected = recompute_windows(raw, targets)
    assert len(computed) > 20
    assert [row["clicks"] for row in computed] == [each.record_count for each in expected]


def test_a_duplicate_of_another_key_is_not_counted(tmp_path: Path) -> None:
    rows = [(at("1 03:00"), at("1 03:00"), "A", number, f"page-{number}") for number in range(60)]
    copies = [(when, at("1 04:00"), origin, number, "other") for when, _, origin, number, _ in rows]
    write_clicks(tmp_path / "data/a.parquet", [*rows, *copies])
    definition = write_definition(tmp_path)
    publish_counts(planned(tmp_path, definition), [*copies, *rows])
    found = Published(tmp_path, definition).preview(1.0)
    assert found.sampled_records == 60
    assert Published(tmp_path, definition).preview(0.3).days == []


@pytest.mark.parametrize("changed", [10, 100, 2_000])
@pytest.mark.parametrize("spread", ["equal", "counts", "skewed", "signed"])
def test_95_of_100_intervals_hold(changed: int, spread: str) -> None:
    draw = random.Random(f"{spread} {changed}")  # noqa: S311 - samples, no secrets
    share = 0.01 if changed == 2_000 else 0.1
    values = {
        "equal": lambda: 1.0,
        "counts": lambda: 1.0 + int(draw.expovariate(0.7)),
        "skewed": lambda: draw.lognormvariate(0, 1.2),
        "signed": lambda: draw.gauss(0.5, 1),
    }
    population = [values[spread]() for _ in range(changed)]
    total, covered, keys_covered = sum(population), 0, 0
    for _ in range(200):
        sampled = [value for value in population if draw.random() < share]
        estimate = estimate_total(sampled, share, is_count=spread != "signed")
        low, high = estimate_keys(len(sampled), share)
        covered += (estimate.low is None or estimate.low <= total) and (
            estimate.high is None or total <= estimate.high
        )
        keys_covered += low <= changed <= high
    assert covered >= 190
    assert keys_covered >= 190


def test_the_command_prints_the_preview(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(published.folder / "home"))
    published.add([(at("1 03:10"), at("3 00:00"), "B", number, f"page-{number}") for number in range(100)])
    asked = ["preview", str(published.definition), "--since", "2024-03-01", "--until", "2024-03-02"]
    result = CliRunner().invoke(app, [*asked, "--keys", "100%"])
    assert result.exit_code == 0, result.output
    assert "2024-03-01  100           late data\n" in result.stdout
    assert "  read     2,100 rows in 2 files" in result.stdout
    wrong = CliRunner().invoke(app, [*asked, "--keys", "0%"])
    assert wrong.stderr == "error: --keys must be a share above 0% and up to 100%, such as 5%, got '0%'\n"


def test_the_plan_and_python_show_the_same_preview(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    home = published.folder / "home"
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    published.add([(at("1 03:10"), at("3 00:00"), "B", number, f"page-{number}") for number in range(100)])
    ends = ("2024-03-01", "2024-03-02")
    found = backstream.preview(published.definition, *ends, keys=1.0, home=home)
    assert (found.rows, causes(found)) == (Estimate(100, 100, 100), [{"late data": 100}])
    result = CliRunner().invoke(
        app, ["plan", str(published.definition), "--since", ends[0], "--until", ends[1], "--preview"]
    )
    assert result.exit_code == 0, result.output
    assert "rows     100 change; in the sample 100 added, 0 removed, 0 changed\n" in result.stdout
    with pytest.raises(SpecError, match="keys must be a share above 0 and up to 1, got 2"):
        backstream.preview(published.definition, *ends, keys=2, home=home)
