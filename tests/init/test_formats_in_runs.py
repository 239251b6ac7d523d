"""A run of the definition that `init` writes reads the records that `init` has seen, with the same values."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.init.runs import run_records

from backstream.source.archive.evidence import examine_archive

NAMES = ("Jürgen", "Zoë, 2", "ann")


def at(hour: int) -> str:
    return f"2026-01-01T{hour:02}:00:00Z"


ROWS = [{"at": at(hour), "k": name} for hour, name in enumerate(NAMES)]
LINES = [json.dumps(row, ensure_ascii=False) for row in ROWS]
JSON = "\n".join(LINES) + "\n"
CSV = "at,k\n" + "".join(f'{row["at"]},"{row["k"]}"\n' for row in ROWS)


def encoded(codec: str, *, quote: str = "") -> dict[str, bytes]:
    """Return JSON and CSV in an encoding; windows-1252 differs from Latin-1 by its quotes."""
    return {
        f"{codec}.json": JSON.replace("ann", f"ann{quote}").encode(codec),
        f"{codec}.csv": CSV.replace("ann", f"ann{quote}").encode(codec),
    }


FILES: dict[str, bytes] = {
    **encoded("utf-8"),
    **encoded("utf-8-sig"),
    **encoded("utf-16"),
    **encoded("utf-16-le"),
    **encoded("utf-16-be"),
    **encoded("latin-1"),
    **encoded("cp1252", quote="\u2019"),
    "firehose.json": "".join(LINES).encode(),
    "with commas.json": ",".join(LINES).encode(),
    "array.json": json.dumps(ROWS).encode(),
    "arrays on lines.json": f"[{LINES[0]}, {LINES[1]}]\n[{LINES[2]}]\n".encode(),
    "pretty array.json": json.dumps(ROWS, indent=2).encode(),
    "pretty.json": "\n".join(json.dumps(row, indent=2) for row in ROWS).encode(),
    "records.json": json.dumps({"Records": ROWS}).encode(),
    "pretty records.json": json.dumps({"data": {"items": ROWS}}, indent=2).encode(),
    "records on lines.json": "\n".join(json.dumps({"records": [row]}) for row in ROWS).encode(),
    "empty name.csv": ("," + CSV.replace("\n20", "\n1,20")).encode(),
    "repeated name.csv": CSV.replace("at,k", "k,at,k").replace("\n20", "\n5,20").encode(),
    "tabs.csv": CSV.replace(",", "\t").replace("Zoë\t", "Zoë,").encode(),
    "bars.csv": CSV.replace(",", "|").replace("Zoë|", "Zoë,").encode(),
    "control.csv": CSV.replace(",", "\x01").replace("Zoë\x01", "Zoë,").encode(),
    "single quotes.csv": CSV.replace('"', "'").encode(),
    "comments.csv": f"# made, by x\n# at, k\n{CSV}".encode(),
    "doubled quotes.csv": CSV.replace("ann", 'say ""x""').encode(),
    "escaped quotes.csv": CSV.replace("ann", 'say \\"x\\", y').encode(),
    "backslash.csv": CSV.replace("ann", "c:\\").encode(),
    "separators of Unicode.csv": CSV.replace("ann", "a\u2028b\x0bc\x85d").encode(),
    "line break.csv": CSV.replace("ann", "a\nb").encode(),
    "quotes in header.csv": CSV.replace("at,k", '"at","k ""x"""').encode(),
    "spaces in header.csv": CSV.replace("at,k", " at , k ").encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_a_run_reads_what_init_has_seen(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(FILES[name])
    evidence = examine_archive("in", None)
    key = {"repeated name.csv": "k2", "quotes in header.csv": 'k "x"'}.get(name, "k")
    evidence = evidence.with_choice("key", key)

    found = run_records(evidence, tmp_path, spark)

    assert (found.read, found.unreadable, evidence.sample.unreadable) == (len(ROWS), 0, [])
    seen = [(record["at"], record[key]) for record in evidence.sample.records]
    assert [each for each, _ in seen] == [row["at"] for row in ROWS]
    assert sorted((f"{time:%Y-%m-%dT%H:%M:%SZ}", value) for time, value in found.rows) == seen
    assert [value for _, value in seen][:2] == [*NAMES[:2]]


IDS = ("1765233417000000001", "1765233417000000002", "20240301000000017")
NUMBERS = {
    "ids.csv": (IDS, "bigint"),
    "ids.json": (IDS, "bigint"),
    "large.csv": (("18446744073709551615", "18446744073709551616", "1"), "decimal(38,0)"),
    "large.json": (("18446744073709551615", "18446744073709551616", "1"), "decimal(38,0)"),
    "fractions.csv": (("1709251633.137000123", "1709251633.137000124", "0.000000001"), "decimal(19,9)"),
    "fractions.json": (("1709251633.137000123", "1709251633.137000124", "0.000000001"), "decimal(19,9)"),
    "codes.csv": (("1e5", "100000", "2e3"), "string"),
    "versions.csv": (("1.1", "1.10", "1.2"), "string"),
    "zeros.csv": (("0012", "12", "+12"), "string"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_run_keeps_each_digit_of_a_number(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers, kind = NUMBERS[name]
    (tmp_path / "in").mkdir()
    if name.endswith(".json"):
        lines = [f'{{"at": "{at(hour)}", "k": {number}}}' for hour, number in enumerate(numbers)]
    else:
        lines = ["at,k", *(f"{at(hour)},{number}" for hour, number in enumerate(numbers))]
    (tmp_path / "in" / name).write_text("\n".join(lines) + "\n")
    evidence = examine_archive("in", None).with_choice("key", "k")

    found = run_records(evidence, tmp_path, spark)

    assert [column.kind for column in evidence.columns if column.path == "k"] == [kind]
    assert (found.read, found.unreadable) == (len(numbers), 0)
    values = {f"{value:f}" if kind.startswith("decimal(19") else str(value) for _, value in found.rows}
    assert values == set(numbers)


UNUSUAL = ("user id", "k-v", "@kind", "x[0]", "naïve", 'd"q', "a:b", "1st")


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_a_run_reads_columns_with_unusual_names_in_each_role(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "event @": at(hour),
            "got-at": at(hour + 1),
            "part 1": 0,
            "seq-no": hour,
            **dict.fromkeys(UNUSUAL, f"v{hour}"),
        }
        | {"amount [€]": hour + 0.5}
        for hour in range(4)
    ]
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / name).open("w", encoding="utf-8", newline="") as file:
        if name.endswith(".json"):
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    evidence = examine_archive("in", None, "event @")
    for role, column in {"arrival_time": "got-at", "partition": "part 1", "sequence": "seq-no"}.items():
        evidence = evidence.with_choice(role, column)

    for column in UNUSUAL:
        found = run_records(evidence.with_choice("key", column), tmp_path, spark)

        assert (column, found.read, found.unreadable) == (column, len(rows), 0)
        assert sorted(value for _, value in found.rows) == [f"v{hour}" for hour in range(4)]
    assert evidence.roles.aggregates == {"events": "count(*)", "sum_amount": "sum(`amount [€]`)"}
