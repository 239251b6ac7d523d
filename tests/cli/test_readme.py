"""Run the definition and the commands of the README's section on your own events, as a reader would."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.loader import parse_definition
from backstream.native.supported import reason_not_native
from backstream.variables import CATALOG_VARIABLE

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("<!-- tests/cli/test_readme.py runs")[2].partition("\n## ")[0]
DEFINITION, REPLAY = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)
COMMANDS = re.findall(r"^\$ backstream (.+)$", SECTION, re.MULTILINE)
ORDERS = 500


def write_orders(folder: Path) -> None:
    folder.mkdir()
    since = datetime(2026, 1, 1, tzinfo=UTC)
    times = [since + timedelta(minutes=20 * number) for number in range(ORDERS)]
    columns = {
        "ordered_at": pa.array(times, pa.timestamp("us", "UTC")),
        "shop": [f"shop {number % 3}" for number in range(ORDERS)],
        "amount": pa.array([1.5] * ORDERS, pa.float64()),
    }
    pq.write_table(pa.table(columns), folder / "january.parquet")


def test_the_commands_publish_your_own_events(tmp_path: Path) -> None:
    write_orders(tmp_path / "orders")
    (tmp_path / "orders.toml").write_text(DEFINITION)
    command = Path(sys.executable).with_name("backstream")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), CATALOG_VARIABLE: ""}

    ended = [
        subprocess.run(
            [command, *shlex.split(each)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for each in COMMANDS
    ]

    assert [each.returncode for each in ended] == [0, 0, 0], [each.stderr for each in ended]
    plan, run, show = (each.stdout for each in ended)
    assert "2026-01-01T00:00Z to 2026-01-08T00:00Z" in plan
    assert "published  500 rows to table orders, replacing 0" in run
    assert run.count("\nall ") == 1  # the source has no partitions
    assert len(re.findall(r"shop \d", show)) == 10


def test_the_part_on_replays_is_a_definition_too() -> None:
    content = tomllib.loads(DEFINITION)
    for section, keys in tomllib.loads(REPLAY).items():
        content[section] = content.get(section, {}) | keys

    definition = parse_definition(content, "the README")

    types = dict.fromkeys(("ordered_at", "received_at"), "timestamp")
    types |= {"kafka_partition": "int", "kafka_offset": "bigint", "shop": "string", "amount": "double"}
    assert reason_not_native(definition, types) is None
