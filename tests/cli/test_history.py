from __future__ import annotations

import csv
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.lake.conftest import Lake
from tests.workflow.history import write_definition
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.lake.publication.publish import publish_range
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.runs.results import Publication
from backstream.runs.status import RunStatus
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE

RANGE = ("2013-02-01", "2013-02-03")
FIRST = {"2013-02-01T05:00Z": 1, "2013-02-01T06:00Z": 2, "2013-02-02T05:00Z": 3}
SECOND = {"2013-02-01T05:00Z": 1, "2013-02-01T06:00Z": 7, "2013-02-02T05:00Z": 2}
ADDED = {"2013-02-02T06:00Z": 9}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty lake in the home that the commands find."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(tmp_path))
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    return Lake(Home(tmp_path / "home"))


def backstream(*arguments: str, answer: str | None = None) -> Result:
    """What the command says, on a wide screen without colours."""
    environment = {"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner(env=environment).invoke(app, arguments, input=answer)


def refusal(*arguments: str) -> str:
    """What the command says against it: on standard error, with status 1, and nothing else."""
    result = backstream(*arguments)
    assert (result.exit_code, result.stdout, result.stderr[:7]) == (1, "", "error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


def lines(*arguments: str) -> list[str]:
    """What the command prints."""
    result = backstream(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def objects(*arguments: str) -> list[dict[str, Any]]:
    """What the command prints as JSON."""
    return [json.loads(line) for line in lines(*arguments, "--format", "json")]


def departures(*arguments: str) -> dict[str, int]:
    """Departures per window, as `show` prints them."""
    return {row["window_start"]: row["departures"] for row in objects("show", "flights", *arguments)}


def published_at(publication: Publication) -> datetime:
    """When a run was published; the next one is later."""
    time.sleep(0.005)
    return datetime.fromisoformat(publication.published_at)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("show", ["DATASET", "--since", "--until", "--as-of", "--limit", "--format"]),
        ("diff", ["RUN|DEFINITION", "--since", "--until", "--limit", "--format"]),
        ("rollback", ["RUN", "--yes", "--reason"]),
        ("vacuum", ["DATASET", "--grace", "--expire-before", "--keep-runs", "--dry-run"]),
    ],
)
def test_help_names_every_option_and_shows_an_example(command: str, options: list[str]) -> None:
    result = backstream(command, "--help")

    assert result.exit_code == 0
    assert [option for option in options if option not in result.stdout] == []
    assert f"Example: backstream {command} " in result.stdout


def test_show_prints_rows_in_the_order_of_windows_with_their_version_and_run(lake: Lake) -> None:
    done = lake.publish(*RANGE, FIRST)

    result = backstream("show", "flights", "--limit", "2")

    assert result.stderr == (
        f"flights  version 1, made {done.published_at} by run {done.run_id} (snapshot {done.snapshots['']})\n"
    )
    assert result.stdout.splitlines() == [
        f"{'window_start':<19}{'window_end':<19}carrier  departures  mean_delay_min  record_count  run_id",
        f"2013-02-01T05:00Z  2013-02-01T06:00Z  UA                1             0.5             1  {done.run_id}",
        f"2013-02-01T06:00Z  2013-02-01T07:00Z  UA                2             0.5             2  {done.run_id}",
        "and more: only the first 2 rows are shown",
    ]


def test_show_as_of_a_run_or_a_time_shows_what_was_true_then(lake: Lake) -> None:
    first = lake.publish(*RANGE, FIRST)
    then = published_at(first)
    second = lake.publish(*RANGE, SECOND, trigger="later")

    assert list(departures().values()) == [1, 7, 2]
    assert list(departures("--as-of", first.run_id).values()) == [1, 2, 3]
    assert list(departures("--as-of", then.isoformat()).values()) == [1, 2, 3]
    assert list(departures("--as-of", second.published_at).values()) == [1, 7, 2]
    assert list(departures("--as-of", "2100-01-01").values()) == [1, 7, 2]


def test_show_takes_the_windows_of_a_range(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)

    assert departures("--since", "2013-02-01T06:00Z", "--until", "2013-02-02") == {"2013-02-01T06:00Z": 2}
    assert departures("--since", "2013-02-02") == {"2013-02-02T05:00Z": 3}
    assert departures("--until", "2013-02-01T06:00Z") == {"2013-02-01T05:00Z": 1}
    assert departures("--limit", "1") == {"2013-02-01T05:00Z": 1}


def test_show_writes_csv(lake: Lake) -> None:
    done = lake.publish(*RANGE, FIRST)

    first, *_ = csv.DictReader(lines("show", "flights", "--format", "csv"))

    assert first == {
        "window_start": "2013-02-01T05:00Z",
        "window_end": "2013-02-01T06:00Z",
        "carrier": "UA",
        "departures": "1",
        "mean_delay_min": "0.5",
        "record_count": "1",
        "run_id": done.run_id,
    }


def test_show_of_a_definition_shows_its_dataset(lake: Lake, tmp_path: Path) -> None:
    lake.publish(*RANGE, FIRST)
    file = write_definition(tmp_path, name='"flights"')

    assert len(objects("show", str(file))) == 3
    assert len(objects("show", "clicks")) == 3  # the name of the file, and of no dataset


def test_show_before_a_publication_has_no_rows(lake: Lake) -> None:
    lake.make(lake.plan(*RANGE))

    result = backstream("show", "flights")

    assert (result.exit_code, result.stdout) == (0, "no rows\n")
    assert result.stderr == "flights  nothing was published yet\n"


def test_show_fails_for_an_unknown_table_or_run_and_without_published_rows(lake: Lake) -> None:
    assert "no table `flights` in the lake" in refusal("show", "flights")
    lake.make(lake.plan(*RANGE))
    assert refusal("show", "flights", "--as-of", "2100-01-01") == "nothing was ever published into table `flights`"
    done = lake.publish(*RANGE, FIRST)
    state = f"version 1, made {done.published_at} by run {done.run_id} (snapshot {done.snapshots['']})"

    assert refusal("show", "flights", "--as-of", "2013-02-01") == (
        f"table `flights` had no rows yet at 2013-02-01T00:00Z\n  the first publication is {state}"
    )
    assert refusal("show", "flights", "--as-of", "cli.unknown") == (
        "--as-of must be a run that published into flights, or an instant such as 2013-02-01T05:00Z,"
        " got 'cli.unknown'"
    )


def test_show_does_not_guess_what_was_between_expired_snapshots(lake: Lake) -> None:
    first = lake.publish(*RANGE, FIRST)
    then = published_at(first)
    between = lake.publish(*RANGE, SECOND, trigger="between")
    published_at(between)
    last = lake.publish(*RANGE, FIRST, trigger="last")
    lake.expire(between)
    states = [
        f"version {version}, made {done.published_at} by run {done.run_id} (snapshot {done.snapshots['']})"
        for version, done in ((1, first), (3, last))
    ]

    asked = then.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = refusal("show", "flights", "--as-of", asked)

    assert said == (
        f"the state of table `flights` at {asked} has expired\n"
        f"  snapshots expired between {states[0]}\n  and {states[1]}"
    )
    assert list(departures("--as-of", first.run_id).values()) == [1, 2, 3]


def test_diff_of_a_staged_run_shows_its_changes_and_writes_nothing(lake: Lake) -> None:
    first = lake.publish(*RANGE, FIRST)
    plan = staged(lake, SECOND | ADDED)

    shown = lines("diff", plan)

    state = f"version 1, made {first.published_at} by run {first.run_id} (snapshot {first.snapshots['']})"
    assert shown[:10] == [
        f"flights  2013-02-01T00:00Z to 2013-02-03T00:00Z  run {plan} would change",
        f"against  {state}",
        "rows     1 added, 0 removed, 2 changed",
        "",
        "aggregate              rows   sum of differences       of their sizes",
        "departures                3                    4                    6",
        "mean_delay_min            1                    0                    0",
        "",
        f"run {first.run_id} had published different values in 2 rows",
        "",
    ]
    assert shown[10].split()[:3] == ["window_start", "window_end", "carrier"]
    assert len(shown) == 15
    assert list(departures().values()) == [1, 2, 3]


def test_diff_shows_the_largest_changes_of_each_aggregate_first(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)
    plan = staged(lake, {"2013-02-01T05:00Z": 2, "2013-02-01T06:00Z": 7, "2013-02-02T05:00Z": 1} | ADDED)

    rows = objects("diff", plan, "--limit", "2")

    columns = ("window_start", "change", "aggregate", "old_value", "new_value", "difference")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("2013-02-01T06:00Z", "changed", "departures", "2", "7", 5.0),
        ("2013-02-02T05:00Z", "changed", "departures", "3", "1", -2.0),
        ("2013-02-02T06:00Z", "added", "mean_delay_min", None, "0.5", None),
    ]


def test_diff_of_a_published_run_shows_its_changes_without_those_of_later_runs(lake: Lake) -> None:
    first = lake.publish(*RANGE, FIRST)
    second = lake.publish(*RANGE, SECOND, trigger="later")
    lake.publish(*RANGE, {}, trigger="last")

    shown = lines("diff", second.run_id)
    of_first = lines("diff", first.run_id)

    assert shown[0].endswith(f"run {second.run_id} changed")
    assert f"by run {first.run_id} " in shown[1]
    assert shown[2] == "rows     0 added, 0 removed, 2 changed"
    assert of_first[1:3] == ["against  the empty table", "rows     3 added, 0 removed, 0 changed"]


def test_diff_of_a_definition_takes_its_newest_run_or_that_of_a_range(lake: Lake, tmp_path: Path) -> None:
    file = str(write_definition(tmp_path, name='"flights"'))
    old = staged(lake, FIRST)
    new = staged(lake, {"2013-02-01T05:00Z": 1}, until="2013-02-02")
    os.utime(lake.home.run("flights", old).plan, (1, 1))

    assert f"run {new} " in lines("diff", file)[0]
    assert f"run {new} " in lines("diff", "flights")[0]
    assert f"run {old} " in lines("diff", file, "--since", "2013-02-01", "--until", "2013-02-03")[0]
    assert refusal("diff", file, "--since", "2013-02-09") == f"no run of flights of that range in {lake.home.path}"


def test_diff_of_an_unknown_run_fails(lake: Lake) -> None:
    assert refusal("diff", "cli.unknown") == f"no run cli.unknown in {lake.home.path}"


def test_rollback_asks_for_confirmation_and_a_no_changes_nothing(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)
    wrong = lake.publish(*RANGE, SECOND, trigger="wrong")

    refused = backstream("rollback", wrong.run_id, answer="n\n")

    assert refused.exit_code == 1
    assert "0 added, 0 removed, 2 changed" in refused.stderr
    assert list(departures().values()) == [1, 7, 2]


def test_rollback_undoes_a_run_once_and_the_ledger_records_the_reason(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)
    wrong = lake.publish(*RANGE, SECOND, trigger="wrong")

    done = lines("rollback", wrong.run_id, "--yes", "--reason", "wrong zone")
    again = lines("rollback", wrong.run_id, "--yes", "--reason", "wrong zone")

    undo_id = f"rollback-{wrong.run_id}"
    assert done == [
        (
            f"flights  2013-02-01T00:00Z to 2013-02-03T00:00Z  restored to its state before {wrong.run_id}:"
            " 3 rows, replacing 3"
        ),
        f"run {undo_id}",
    ]
    assert again[0].startswith(f"{wrong.run_id} was already rolled back, at ")
    assert list(departures().values()) == [1, 2, 3]
    (row,) = list_runs(lake.home, "flights")
    assert (row.run_id, row.status, row.rows) == (undo_id, RunStatus.PUBLISHED, 3)
    assert row.reason == f"rollback of {wrong.run_id}: wrong zone"


def test_a_refused_rollback_names_the_later_run(lake: Lake) -> None:
    first = lake.publish(*RANGE, FIRST)
    later = lake.publish(*RANGE, SECOND, trigger="later")

    said = refusal("rollback", first.run_id, "--yes")

    assert said.startswith(f"refusing to roll back {first.run_id}: its range was published again\n")
    assert later.run_id in said


def test_vacuum_lists_the_files_to_remove_and_then_removes_them(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)
    run_id = staged(lake, SECOND)
    (left_over, other) = sorted(
        (lake.home.warehouse / "backstream" / "flights" / "data" / run_id).rglob("*.parquet")
    )
    size_bytes = left_over.stat().st_size + other.stat().st_size

    kept = lines("vacuum", "flights")
    told = lines("vacuum", "flights", "--grace", "0s", "--dry-run")
    done = lines("vacuum", "flights", "--grace", "0s", "--expire-before", "2013-01-01")

    assert kept[1].split()[:2] == ["flights", "0"]
    assert told[0].split() == ["table", "to", "remove", "bytes", "kept"]
    assert told[1].split()[:3] == done[1].split()[:3] == ["flights", "2", f"{size_bytes:,}"]
    assert done[-1] == "snapshots expired: 0"
    assert not left_over.exists()


def test_vacuum_rejects_an_invalid_grace_and_an_unknown_dataset(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)

    assert refusal("vacuum", "flights", "--grace", "soon") == (
        '--grace must be a duration such as "1h", "30m" or "200ms", got \'soon\''
    )
    assert refusal("vacuum", "flights", "--grace=-1d") == "--grace must not be negative, got -1d"
    assert refusal("vacuum", "clicks") == f"no dataset `clicks` in {lake.home.path}"


def staged(lake: Lake, windows: dict[str, int], until: str = RANGE[1]) -> str:
    """A run that has staged everything and published nothing."""
    plan = lake.plan(RANGE[0], until, "staged")
    plan.write()
    for manifest in lake.staged(plan, windows):
        manifest.write(plan.folder.manifest(manifest.chunk_id))
    return plan.run_id


def test_a_staged_run_can_still_be_published_after_a_diff(lake: Lake) -> None:
    lake.publish(*RANGE, FIRST)
    plan = lake.plan(*RANGE, "staged")
    manifests = lake.staged(plan, SECOND)
    plan.write()
    for manifest in manifests:
        manifest.write(plan.folder.manifest(manifest.chunk_id))
    backstream("diff", plan.run_id)

    assert not publish_range(plan, manifests).already
