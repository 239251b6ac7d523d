"""Test the input, the output, and the error messages of `backstream reconcile`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from demo.settings import CHECKOUT
from tests.reconcile.conftest import Published, counted
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.eventtime.instants import instant_ms
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.reconcile.frames import ColumnMapping, ColumnMappings
from backstream.reconcile.live_side import load_live_output
from backstream.reconcile.pairs import equal_mask
from backstream.reconcile.reconcile import ReconcileRequest, reconcile_dataset
from backstream.reconcile.rules import Cause
from backstream.runs.dataset_state import load_reconciled_days
from backstream.runs.home import Home
from backstream.variables import HOME_VARIABLE

Command = Callable[..., Result]


@pytest.fixture
def reconcile(published: Published, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs the command."""
    monkeypatch.setenv(HOME_VARIABLE, str(published.home.path))

    def result(*arguments: str) -> Result:
        environment = {"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}
        asked = ["reconcile", str(published.folder / "clicks.toml"), *arguments]
        return CliRunner(env=environment).invoke(app, asked)

    return result


def refusal(result: Result) -> str:
    assert (result.exit_code, result.stdout, result.stderr[:7]) == (1, "", "error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


def test_help_names_every_option(reconcile: Command) -> None:
    said = reconcile("--help").stdout

    for option in ("--against", "--since", "--until", "--columns", "--run", "--limit", "--format"):
        assert option in said
    assert "Example: backstream reconcile " in said


def test_reconcile_prints_the_summary_and_then_the_largest_differences(
    published: Published, reconcile: Command, tmp_path: Path
) -> None:
    theirs = published.truth()
    theirs["clicks"] += [500, 0, 900, *[0] * (len(theirs) - 3)]
    file = tmp_path / "theirs.parquet"
    theirs.to_parquet(file, index=False)

    printed = reconcile("--against", str(file)).stdout.splitlines()

    assert printed[0] == "clicks  1,150 of 1,152 windows are equal, 2 differ: 2 missing input"
    assert printed[1] == "range   2024-03-05T00:00Z to 2024-03-17T00:00Z"
    assert printed[2:5] == [f"ours    published by run {published.plan.run_id}", f"theirs  {file}", ""]
    assert [line.split()[:6] for line in printed[5:]] == [
        ["window_start", "window_end", "page", "cause", "aggregate", "ours"],
        ["2024-03-05T00:00Z", "2024-03-05T01:00Z", theirs["page"][2], "missing", "input", "clicks"],
        ["2024-03-05T00:00Z", "2024-03-05T01:00Z", theirs["page"][0], "missing", "input", "clicks"],
    ]

    days = load_reconciled_days(published.home, "clicks")  # the pages show them
    assert sum(compared.windows for compared in days.values()) == 1_152
    assert [compared.differing for compared in days.values()] == [2, *[0] * 11]
    assert days[min(days)].largest == {
        "window_start": "2024-03-05T00:00Z",
        "keys": theirs["page"][2],
        "aggregate": "clicks",
        "ours": str(theirs["clicks"][2] - 900),
        "theirs": str(theirs["clicks"][2]),
        "cause": "missing input",
    }

    as_json = reconcile("--against", str(file), "--format", "json")
    first = json.loads(as_json.stdout.splitlines()[0])
    assert (first["cause"], first["difference"]) == ("missing input", 900.0)
    assert first["evidence"].startswith(
        f"the live system counts {theirs['clicks'][2]:,} records, the input files have "
    )
    assert as_json.stderr.splitlines()[0] == printed[0]


def test_csv_under_other_names_with_seconds_and_no_end(published: Published, tmp_path: Path) -> None:
    theirs = published.truth()
    theirs["ts"] = theirs.pop("window_start").astype("int64") // 1_000_000
    renamed = theirs.drop(columns=["window_end", "mean", "longest"]).rename(
        columns={"clicks": "n", "page": "Page"}
    )
    for number, part in enumerate((renamed[:500], renamed[500:])):
        part.to_csv(tmp_path / f"{number}.csv", index=False)
    columns = "window_start=ts:s,page=Page,clicks=n,longest=,mean="

    found = reconcile_dataset(
        ReconcileRequest(published.folder / "clicks.toml", str(tmp_path), columns), published.home
    )

    assert (found.windows, found.causes) == (1_152, {})
    assert found.notes == ["not compared: longest, mean"]


def test_a_table_of_the_lake(published: Published) -> None:
    theirs = pa.Table.from_pandas(published.truth()[3:], preserve_index=False)
    with open_catalog_for_writing(published.home) as catalog:
        catalog.create_table(table_identifier("live"), theirs.schema).append(theirs)
        found = reconcile_dataset(ReconcileRequest(published.folder / "clicks.toml", "live"), published.home)
        catalog.drop_table(table_identifier("live"))

    assert (found.theirs, found.causes) == ("table live", {Cause.UNKNOWN: 3})


def test_windows_of_a_run_that_is_staged(published: Published) -> None:
    asked = ReconcileRequest(
        published.folder / "clicks.toml", str(published.folder / "own.parquet"), run_id=published.plan.run_id
    )
    published.truth().to_parquet(asked.against, index=False)

    found = reconcile_dataset(asked, published.home)

    assert (found.ours, found.windows, found.causes) == (f"staged by run {published.plan.run_id}", 1_152, {})


def test_only_the_range_is_compared(published: Published) -> None:
    since_ms, until_ms = instant_ms("2024-03-15", ""), instant_ms("2024-03-17", "")
    without_the_end = published.truth()[:-100]

    both_cover = published.compare(without_the_end, since_ms=since_ms)
    asked_for = published.compare(without_the_end, since_ms=since_ms, until_ms=until_ms)

    assert (both_cover.windows, both_cover.causes) == (92, {})
    assert (asked_for.windows, asked_for.causes) == (192, {Cause.MISSING_INPUT: 100})


def test_missing_columns_are_named(published: Published, reconcile: Command, tmp_path: Path) -> None:
    file = tmp_path / "theirs.parquet"
    published.truth().drop(columns=["page", "mean"]).to_parquet(file, index=False)

    assert refusal(reconcile("--against", str(file))) == (
        f"{file} has no column page, mean\n"
        "  it has window_start, window_end, clicks, seconds, longest, record_count\n\n"
        "hint: map a column with --columns NAME=THEIRS, or exclude an aggregate with --columns NAME="
    )
    assert refusal(reconcile("--against", str(file), "--columns", "page=")) == (
        "page cannot be excluded: windows are matched by it (--columns)"
    )
    assert refusal(reconcile("--against", str(file), "--columns", "visits=n")) == (
        "--columns must be NAME=THEIRS with a NAME of window_start, window_end, page, clicks, seconds, longest,"
        " mean, got 'visits=n'"
    )
    columns = "page=p,mean="
    renamed = refusal(reconcile("--against", str(file), "--columns", columns))
    assert renamed.startswith(f"{file} has no column p (for page)\n")


def test_reconcile_reports_unreadable_or_unsuitable_input(
    published: Published, reconcile: Command, tmp_path: Path
) -> None:
    def said(*arguments: str) -> str:
        return refusal(reconcile("--against", *arguments)).partition("\n")[0]

    truth = published.truth()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.csv").touch()
    (tmp_path / "broken.parquet").write_text("PAR")
    truth[:0].to_parquet(tmp_path / "none.parquet")
    truth.assign(window_start=1).to_parquet(tmp_path / "number.parquet", index=False)
    truth.assign(window_start="noon").to_parquet(tmp_path / "noon.parquet", index=False)
    truth.assign(clicks="many").to_parquet(tmp_path / "many.parquet", index=False)
    later = truth.assign(window_start=truth["window_start"] + pd.Timedelta(days=400))
    later.to_parquet(tmp_path / "later.parquet", index=False)

    assert said("nothing") == "--against must be a file, a folder, or a table of the lake, got 'nothing'"
    assert said(str(tmp_path / "empty")) == f"no .parquet or .csv file under {tmp_path}/empty (--against)"
    assert said(str(tmp_path / "empty.csv")) == f"cannot read {tmp_path}/empty.csv (--against)"
    assert said(str(tmp_path / "broken.parquet")) == f"cannot read {tmp_path}/broken.parquet (--against)"
    assert said(str(tmp_path)) == f"--against must be .parquet or .csv files, got .csv, .parquet ({tmp_path})"
    assert said(str(tmp_path / "none.parquet")) == f"{tmp_path}/none.parquet has no rows (--against)"
    number, noon, many = (tmp_path / f"{name}.parquet" for name in ("number", "noon", "many"))
    assert said(str(number)) == f"window_start must be an instant, got int64 ({number})"
    assert said(str(noon)) == f"window_start must be an instant such as 2013-02-01T05:00Z ({noon})"
    assert said(str(many)) == f"clicks must be of type int64, like clicks of the dataset, got string ({many})"
    file = tmp_path / "later.parquet"
    assert refusal(reconcile("--against", str(file))) == (
        f"{file} and clicks have no time in common\n"
        f"  {file} has windows from 2025-04-09T00:00Z to 2025-04-21T00:00Z\n"
        "  clicks has windows from 2024-03-05T00:00Z to 2024-03-17T00:00Z"
    )
    assert said(str(file), "--since", "2030-01-01", "--until", "2030-01-02") == (
        "clicks has no published rows from 2030-01-01T00:00Z to 2030-01-02T00:00Z"
    )


def test_without_the_folder_of_its_run_the_published_rows_are_compared_all_the_same(
    published: Published, tmp_path: Path
) -> None:
    kept = tmp_path / "runs"
    shutil.move(published.plan.folder.path, kept)
    try:
        found = published.compare(published.truth()[1:])
    finally:
        shutil.move(kept, published.plan.folder.path)

    assert found.causes == {Cause.UNKNOWN: 1}
    assert pq.ParquetFile(published.folder / "theirs.parquet").metadata.num_rows == found.windows - 1


def test_the_example_of_the_documentation_is_what_is_printed(
    published: Published, reconcile: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = counted(published.events(with_copies=True))
    hour, page = theirs["window_start"].dt.strftime("%dT%H"), theirs["page"]
    theirs.loc[(hour + page).isin(["05T00home", "05T01help", "05T02help"]), "clicks"] += 900
    theirs.to_parquet(tmp_path / "live.parquet", index=False)
    monkeypatch.chdir(tmp_path)

    said = reconcile("--against", "live.parquet", "--limit", "4").stdout

    block = (CHECKOUT / "docs" / "reconcile.md").read_text(encoding="utf-8").split("```")[1]
    shown = block.strip().split("\n", 1)[1].replace("cli.ad5e5236f8a8", published.plan.run_id)
    assert [line.rstrip() for line in said.splitlines() if line] == [line for line in shown.splitlines() if line]


def test_an_empty_csv_cell_is_null_and_two_quotes_are_an_empty_text(tmp_path: Path) -> None:
    file = tmp_path / "live.csv"
    file.write_text('start,page,clicks\n0,,1\n0,"",2\n0,null,3\n0,,\n0,NA,NULL\n')
    start, page, clicks = (ColumnMapping(name, name) for name in ("start", "page", "clicks"))
    columns = ColumnMappings(start, None, (page,), (clicks,))

    rows = load_live_output(str(file), Home(tmp_path)).rows(columns, {"page": pa.string(), "clicks": pa.int64()})

    assert rows["page"].to_pylist() == [None, "", "null", None, "NA"]
    assert rows["clicks"].to_pylist() == [1, 2, 3, None, None]


def test_sums_that_cancel_are_equal_and_small_differences_are_found() -> None:
    ours = pd.Series([2.27e-14, 0.0, 120.5, 1e-6, float("nan"), float("inf")])
    theirs = pd.Series([0.0, 0.0, 120.5, 0.0, float("nan"), float("inf")])

    assert equal_mask(ours, theirs, is_number=True).tolist() == [True, True, True, False, True, True]
