"""`init --from-flink-sql` writes a definition for each INSERT, and `check --against` shows what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from backstream.cli import app
from backstream.definition.loader import load_definition

SCRIPTS = Path(__file__).parents[1] / "conformance" / "flink_sql" / "scripts"
ORDERS = SCRIPTS / "01_tumble_revenue"


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    return result.exit_code, result.output


def test_a_script_and_its_archive_become_a_definition_without_drift() -> None:
    script, archive = ORDERS / "script.sql", ORDERS / "events.jsonl"
    assert run("init", "revenue", "--from-flink-sql", script, "--archive", archive) == (0, "Wrote revenue.toml.\n")
    text = Path("revenue.toml").read_text()
    assert text.startswith(
        "# The rows that script.sql inserts, by Flink's rules. `backstream check` with --against shows drift.\n"
        'name = "revenue"\n'
    )
    definition = load_definition(Path("revenue.toml"))
    assert definition.source.columns == {
        "partition": "bigint",
        "offset": "bigint",
        "arrival_ms": "bigint",
        "value": "struct<shop: string, amount: string, created_ms: bigint>",
    }
    status, output = run("check", "revenue.toml", "--against", script)
    assert (status, output.splitlines()[2:]) == (0, ["against     script.sql: no key differs"])

    Path("revenue.toml").write_text(text.replace("sum(amount)", "max(amount)").replace('"30s"', '"31s"'))
    status, output = run("check", "revenue.toml", "--against", script)
    assert (status, output.splitlines()[2:]) == (
        1,
        [
            "against     script.sql: 2 keys differ",
            (
                '  aggregates.revenue: "max(cast(value.amount as decimal(10, 2)))"'
                ' -> "sum(cast(value.amount as decimal(10, 2)))"'
            ),
            '  watermark.delay: "31s" -> "30s"',
        ],
    )


def test_each_insert_has_a_definition_or_a_reason() -> None:
    text = (ORDERS / "script.sql").read_text()
    more = text[text.index("INSERT") :]
    second = more.replace("revenue_per_shop", "per_shop").replace("COUNT(*) AS orders, ", "")
    third = "INSERT INTO raw SELECT * FROM orders;"
    Path("job.sql").write_text(f"{text}\n{second}\n{third}\n")
    status, output = run("init", "shops", "--from-flink-sql", "job.sql")
    assert status == 1
    assert output.splitlines() == [
        "Wrote shops_revenue_per_shop.toml.",
        "Wrote shops_per_shop.toml.",
        (
            "error: no definition shops_raw: an INSERT without a window is not possible: it has no aggregation"
            " (job.sql, line 40, column 1)"
        ),
    ]
    assert (
        "# Complete [source]: the path, and the columns of the archive." in Path("shops_per_shop.toml").read_text()
    )
    assert load_definition(Path("shops_per_shop.toml")).aggregates == {"revenue": "sum(amount)"}
    status, output = run("init", "shops", "--from-flink-sql", "job.sql", "--to", "x.toml")
    assert (status, output) == (1, "error: --to is for a script with one INSERT, and job.sql has 3\n")


def test_a_script_beside_the_definition_is_checked_as_a_definition() -> None:
    Path("job.sql").write_text((ORDERS / "script.sql").read_text())
    Path("orders.toml").write_text(
        f"""
name = "orders"
[flink_sql]
script = "job.sql"
value = "value"
[source]
path = "{ORDERS}/events.jsonl"
format = "json"
arrival_time = "arrival_ms"
arrival_time_unit = "ms"
partition = "partition"
sequence = "offset"
columns = {{ partition = "int", offset = "bigint", arrival_ms = "bigint" }}
"""
    )
    status, output = run("check", "orders.toml", "--against", "job.sql")
    assert (status, output.splitlines()[0]) == (0, "definition  orders, tumbling windows of 5m")
    assert output.splitlines()[-1] == "against     job.sql: no key differs"
