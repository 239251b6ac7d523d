from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import FLINK_CASES
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.eventtime.intervals import LocalDays
from backstream.runs.plan import Plan
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE

VERBS = ("plan", "run", "days", "stale", "status")
HISTORY = ("show", "diff", "rollback", "vacuum")
FEBRUARY = ["--since", "2013-02-01", "--until", "2013-03-01"]


@pytest.fixture(autouse=True)
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All state and all definitions lie in the test's own folder, which is the working directory too."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(tmp_path / "definitions"))
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def backstream(*arguments: str) -> Result:
    """What the command says, on a wide screen without colours."""
    return CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, arguments)


def refusal(*arguments: str) -> str:
    """What the command says against it: on standard error, with status 1, and nothing else."""
    result = backstream(*arguments)
    assert (result.exit_code, result.stdout, result.stderr[:7]) == (1, "", "error: ")
    return result.stderr.removeprefix("error: ")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("plan", ["DEFINITION", "--since", "--until", "--time-zone", "--mode", "--reason", "--allow-unsealed"]),
        (
            "run",
            ["DEFINITION", "--since", "--until", "--mode", "--reason", "--replan", "--stale", "--allow-unsealed"],
        ),
        ("days", ["DEFINITION", "--since", "--until", "--format"]),
        ("stale", ["DEFINITION", "--since", "--until", "--format"]),
        ("status", ["[DATASET]", "--limit", "--format"]),
        ("report", ["RUN|DEFINITION", "--since", "--until", "--mode", "--format"]),
        ("conformance", ["FILE", "--engine"]),
        ("definition-schema", []),
    ],
)
def test_help_names_every_option_and_shows_an_example(command: str, options: list[str]) -> None:
    result = backstream(command, "--help")

    assert result.exit_code == 0
    assert [option for option in options if option not in result.stdout] == []
    assert f"Example: backstream {command} " in result.stdout


def test_without_a_command_all_of_them_are_listed() -> None:
    shown = backstream().output

    verbs = (*VERBS, *HISTORY, "report", "quality", "advise", "conformance", "definition-schema")
    assert [name for name in verbs if f" {name} " not in shown] == []
    assert "$BACKSTREAM_HOME" in shown


@pytest.mark.parametrize("command", ["plan", "run", "report"])
@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (
            "2013-02-01T00:00",
            "2013-03-01",
            (
                "--since must name its time zone, got the local time '2013-02-01T00:00'\n\n"
                "hint: write 2013-02-01T00:00Z for UTC, or 2013-02-01T00:00-05:00 for New York in winter\n"
            ),
        ),
        (
            "2013-02-01",
            "March",
            "--until must be an instant such as 2013-02-01 or 2013-02-01T05:00Z, got 'March'\n",
        ),
    ],
)
def test_a_time_that_is_none_is_refused_by_every_command(command: str, since: str, until: str, said: str) -> None:
    assert refusal(command, "flights", "--since", since, "--until", until) == said


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (
            "2013-02-01",
            "2013-02-01",
            (
                "cannot backfill 2013-02-01T00:00Z to 2013-02-01T00:00Z: the range is empty\n\n"
                "hint: `until` is excluded; for the one day use until=2013-02-02T00:00Z\n"
            ),
        ),
        (
            "2013-03-01",
            "2013-02-01",
            "cannot backfill 2013-03-01T00:00Z to 2013-02-01T00:00Z: `since` is after `until`\n",
        ),
        (
            "2013-02-01T00:00-05:00",
            "2013-03-01",
            (
                "since 2013-02-01T05:00Z is not a boundary of UTC days, "
                "the unit in which ranges are replaced (1d)\n\n"
                "hint: use 2013-02-01T00:00Z or 2013-02-02T00:00Z\n"
            ),
        ),
    ],
)
def test_a_range_that_cannot_be_replaced_is_refused(tmp_path: Path, since: str, until: str, said: str) -> None:
    definition = write_definition(tmp_path)

    assert refusal("plan", str(definition), "--since", since, "--until", until) == said


def test_an_unknown_definition_is_refused_with_those_there_are(tmp_path: Path) -> None:
    folder = tmp_path / "definitions"
    assert refusal("plan", "fligths", *FEBRUARY) == (
        f"no definition 'fligths': neither a file, nor a name in {folder}\n  there are: none\n"
    )

    folder.mkdir()
    (folder / "flights.toml").touch()
    (folder / "clicks.toml").touch()

    assert refusal("plan", "fligths", *FEBRUARY) == (
        f"no definition 'fligths': neither a file, nor a name in {folder}\n  there are: clicks, flights\n\n"
        "hint: did you mean flights?\n"
    )


def test_a_definition_is_taken_by_name_even_where_a_folder_has_that_name(tmp_path: Path) -> None:
    (tmp_path / "definitions").mkdir()
    (tmp_path / "clicks").mkdir()
    write_definition(tmp_path).rename(tmp_path / "definitions" / "clicks.toml")

    assert refusal("plan", "clicks", *FEBRUARY) == (
        f"no file or folder at {tmp_path}/data ({tmp_path}/definitions/clicks.toml, source.path)\n"
    )


def test_a_wrong_definition_is_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    file = write_definition(tmp_path, CLICKS + "\n[latness]\n", size='"1 hour"')

    assert refusal("plan", str(file), *FEBRUARY) == (
        f"2 problems in {file}"
        '\n  window.size must be a duration such as "1h", "30m" or "200ms", got \'1 hour\''
        "\n  latness is not a known key\n"
    )


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, and no folder")
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])

    said = refusal("plan", str(write_definition(tmp_path)), "--since", "2024-03-01", "--until", "2024-03-02")

    first, where, *hint = said.splitlines(keepends=True)
    assert first == "cannot write run.json: Not a directory\n"
    assert where.startswith(f"  {tmp_path}/home/runs/clicks/cli.")
    assert "".join(hint) == (
        "\nhint: free disk space or fix permissions, then run the same command again;"
        " finished chunks and published data are kept\n"
    )


def test_a_mode_that_does_not_exist_is_a_wrong_use() -> None:
    result = backstream("plan", "flights", *FEBRUARY, "--mode", "stream")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "'stream' is not one of 'recompute', 'replay'" in result.stderr


def test_a_plan_is_shown_chunk_by_chunk_and_written(tmp_path: Path) -> None:
    for day in (1, 2):
        rows = [(at(f"{day} {hour:02}:00"), at(f"{day} 23:59"), "A", hour, "home") for hour in range(24)]
        write_clicks(tmp_path / f"data/{day}.parquet", rows)
    sliding = CLICKS.replace('"tumbling"\nsize = "1h"', '"sliding"\nsize = "3h"\nslide = "1h"')
    file = write_definition(tmp_path, sliding)

    result = backstream("plan", str(file), "--since", "2024-03-01", "--until", "2024-03-04", "--mode", "replay")

    (plan_file,) = tmp_path.glob("home/runs/clicks/*/plan.json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "clicks  2024-03-01T00:00Z to 2024-03-04T00:00Z  replay, arrival order recorded\n"
        f"run {plan_file.parent.name}, plan {plan_file}\n"
        "engine native\n"
        "\n"
        "chunk    windows start in                          files  events, about  halo\n"
        "0000     2024-03-01T00:00Z to 2024-03-02T00:00Z        2             24  2h\n"
        "0001     2024-03-02T00:00Z to 2024-03-03T00:00Z        1             24  2h\n"
        "0002     2024-03-03T00:00Z to 2024-03-04T00:00Z        0              0  2h\n"
    )


def test_a_plan_lists_the_aggregates_that_need_all_records_of_a_window(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/1.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    aggregates = 'origins = "collect_set(origin)"\nmean = "sum(seq) / count(*)"\nmiddle = "percentile(seq, 0.5)"\n'
    file = write_definition(tmp_path, CLICKS.replace("[aggregates]\n", f"[aggregates]\n{aggregates}"))

    result = backstream("plan", str(file), "--since", "2024-03-01", "--until", "2024-03-02", "--allow-unsealed")

    assert result.stdout.splitlines()[2:4] == [
        "engine spark, because aggregates.origins is collect_set(origin)",
        "computed from all records of each window, on Spark: origins, middle",
    ]


def test_local_days_are_planned_as_the_utc_days_that_hold_them_and_the_plan_remembers(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/1.parquet", [(at("10 05:00"), at("10 05:01"), "A", 0, "home")])
    asked = ["--since", "2024-03-10", "--until", "2024-03-11", "--time-zone", "America/New_York"]

    result = backstream("plan", str(write_definition(tmp_path)), *asked, "--allow-unsealed")

    (plan_file,) = tmp_path.glob("home/runs/clicks/*/plan.json")
    planned = Plan.read(plan_file)
    assert planned.local_days == LocalDays("America/New_York", "2024-03-10", "2024-03-11")
    assert planned.range == planned.local_days.utc_days
    assert result.stderr.startswith("notice: 2024-03-10 to 2024-03-11 in America/New_York is 2024-03-10T05:00Z to")


def test_there_is_no_report_of_a_range_that_was_never_run(tmp_path: Path) -> None:
    file = write_definition(tmp_path)

    assert refusal("report", str(file), *FEBRUARY) == (f"no run of clicks of that range in {tmp_path}/home\n")


def test_the_schema_is_json() -> None:
    result = backstream("definition-schema")

    assert (result.exit_code, json.loads(result.stdout)["title"]) == (0, "Definition")


def test_conformance_counts_what_agrees() -> None:
    result = backstream("conformance", str(FLINK_CASES / "tumbling.jsonl"), str(FLINK_CASES / "idle.jsonl"))

    assert (result.exit_code, result.stdout) == (0, "cases: 95  agree: 95  differ: 0  unsupported: 0\n")


def test_conformance_names_what_differs_and_what_it_cannot_play(tmp_path: Path) -> None:
    lines = (FLINK_CASES / "tumbling.jsonl").read_text().splitlines()[:3]
    sound, tampered, unknown = (json.loads(line) for line in lines)
    tampered["flink"]["late"] = [999]
    unknown["case"]["window"] = {"kind": "global"}
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in (sound, tampered, unknown)) + "\n\n")

    result = backstream("conformance", str(file))

    assert (result.exit_code, result.stderr) == (1, "")
    differs, unsupported, counts = result.stdout.splitlines()
    assert differs.startswith(f"differs: {tampered['case']['name']}: late records: ")
    assert unsupported == "unsupported: 1: window kind 'global'"
    assert counts == "cases: 3  agree: 1  differ: 1  unsupported: 1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read conformance cases at cases.jsonl: No such file or directory\n"),
        (b"\xff\xfe", "cannot read conformance cases at cases.jsonl: not UTF-8 text\n"),
        (b"\n{", None),
        (
            b"[1]",
            "conformance case must be an object with the objects `case`, and `flink` or `spark` (cases.jsonl:1)\n",
        ),
        (
            b'{"case": {}}',
            "conformance case must be an object with the objects `case`, and `flink` or `spark` (cases.jsonl:1)\n",
        ),
        (
            b'{"case": {"name": "mine"}, "flink": {}}',
            "conformance case 'mine' is malformed: KeyError('records')\n",
        ),
    ],
)
def test_conformance_refuses_what_is_no_file_of_cases(
    tmp_path: Path, content: bytes | None, said: str | None
) -> None:
    if content is not None:
        (tmp_path / "cases.jsonl").write_bytes(content)

    assert refusal("conformance", "cases.jsonl") == (
        said
        or "conformance case is not JSON: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1) (cases.jsonl:2)\n"
    )


def test_conformance_refuses_a_case_without_flinks_answer(tmp_path: Path) -> None:
    case = json.loads((FLINK_CASES / "tumbling.jsonl").read_text().splitlines()[0])
    del case["flink"]["firings"]
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))

    assert refusal("conformance", "cases.jsonl") == (
        f"conformance case {case['case']['name']!r} is malformed: KeyError('firings')\n"
    )


def test_conformance_accepts_only_three_engines() -> None:
    result = backstream("conformance", str(FLINK_CASES / "idle.jsonl"), "--engine", "flink")
    assert result.exit_code == 2
    assert "'flink' is not one of 'reference', 'native', 'spark'" in " ".join(result.stderr.split())
