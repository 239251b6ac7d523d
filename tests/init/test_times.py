"""`init` takes times for times, and numbers and texts that only look like times for what they are."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.init.archives import write_lines
from tests.init.test_time_forms import init

from backstream.definition.loader import load_definition
from backstream.errors import SpecError
from backstream.source.archive.name_words import words_of

FIRST = datetime(2024, 3, 1, tzinfo=UTC)
FIRST_S = 1_709_251_200
NEXT_YEAR = datetime.now(UTC).year + 1


def write_json(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_lines(folder / "a.jsonl", [json.dumps(row) for row in rows])


def write_csv(folder: Path, header: str, rows: Sequence[str]) -> None:
    write_lines(folder / "a.csv", [header, *rows])


def source_of(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Return the section `[source]` of the definition of `in`."""
    ended = init(tmp_path, "t", "--from", "in", "--yes", "--force", *arguments)
    assert ended.exit_code == 0, ended.output
    load_definition(tmp_path / "t.toml")
    source: dict[str, Any] = tomllib.loads((tmp_path / "t.toml").read_text())["source"]
    return source


def times_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of times."""
    return {key: value for key, value in source.items() if "time" in key}


def row_of(tmp_path: Path, column: str, *arguments: str) -> str:
    """Return the line of a column in the table of `init`, with single spaces."""
    ended = init(tmp_path, "t", "--from", "in", "--yes", "--force", *arguments)
    assert ended.exit_code == 0, ended.output
    (line,) = (line for line in ended.output.splitlines() if line.startswith(f"{column} "))
    return " ".join(line.split())


COUNTERS: Mapping[str, Sequence[int]] = {
    "bytes_sent": [3_238_671_390 + 29_000 * number for number in range(200)],
    "zones.balancer.sent": [1_500_000_000 + 29_000 * number for number in range(200)],
    "zones.balancer.received": [1_709_251_201 + 29_000 * number for number in range(200)],
    "contactPhoneNumber": [1_202_555_0100 // 10 + 7_919 * number for number in range(200)],
    "order_id": [1_709_251_200 + number for number in range(200)],
    "amount_cents": [1_709_251_200_000 + 5_000 * number for number in range(200)],
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_number_is_no_time_because_it_could_be_seconds(name: str, tmp_path: Path) -> None:
    rows = []
    for number, count in enumerate(COUNTERS[name]):
        row: dict[str, Any] = {"timestamp": 1_709_251_200_000 + 5_000 * number}
        *parents, last = name.split(".")
        inner = row
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = count
        rows.append(row)
    write_json(tmp_path / "in", rows)

    assert times_of(source_of(tmp_path)) == {"event_time": "timestamp", "event_time_unit": "ms"}


def test_a_number_is_a_time_if_it_moves_as_the_times_of_the_records_do(tmp_path: Path) -> None:
    rows = [
        {"at": f"{FIRST + timedelta(minutes=number):%Y-%m-%dT%H:%M:%SZ}", "received": FIRST_S + 60 * number + 5}
        for number in range(60)
    ]
    write_json(tmp_path / "in", rows)

    assert times_of(source_of(tmp_path)) == {
        "event_time": "at",
        "arrival_time": "received",
        "arrival_time_unit": "s",
    }


def test_a_time_years_after_the_event_is_no_arrival_time(tmp_path: Path) -> None:
    rows = [
        {"ordered_at": f"2014-03-01T00:{number:02}:00Z", "loaded_at": f"2024-03-01T00:{number:02}:00Z"}
        for number in range(60)
    ]
    write_json(tmp_path / "in", rows)

    assert times_of(source_of(tmp_path)) == {"event_time": "ordered_at"}


def test_times_in_the_future_are_not_the_event_time(tmp_path: Path) -> None:
    rows = [
        {"created": f"{NEXT_YEAR + 1}-03-01T00:{number:02}:00Z", "seen": f"2024-03-01T00:{number:02}:00Z"}
        for number in range(60)
    ]
    write_json(tmp_path / "in", rows)

    assert times_of(source_of(tmp_path)) == {"event_time": "seen"}


@pytest.mark.parametrize("text", ["NULL", "null", "N/A", "-", "\\N"])
def test_evidence_is_that_of_the_readable_values(text: str, tmp_path: Path) -> None:
    times = [text if number % 3 == 0 else f"2024-03-01T00:{number:02}:07Z" for number in range(60)]
    write_csv(tmp_path / "in", "store,ts,amount", [f"a,{at},{number}" for number, at in enumerate(times)])
    quoted = json.dumps(text)

    assert times_of(source_of(tmp_path)) == {"event_time": "ts"}
    assert row_of(tmp_path, "ts") == (
        "ts string 0 % 41 2024-03-01T00:01:07Z 2024-03-01T00:59:07Z event time; ISO 8601 with a time zone;"
        f" 20 values cannot be read, all {quoted}: set nullValue = {quoted} in [source.options];"
        " not falling in 100 %"
    )


def test_numbers_among_texts_are_read_as_a_run_reads_them(tmp_path: Path) -> None:
    times = ["NULL" if number % 20 == 0 else str(FIRST_S + number) for number in range(60)]
    write_csv(tmp_path / "in", "store,ts", [f"a,{at}" for at in times])

    assert times_of(source_of(tmp_path)) == {"event_time": "ts", "event_time_unit": "s"}
    assert "3 values cannot be read, all" in row_of(tmp_path, "ts")


def test_values_of_several_texts_and_times_outside_of_the_years_are_counted(tmp_path: Path) -> None:
    times = ["soon", "later", "1900-01-01T00:00:00Z", *(f"2024-03-01T00:{number:02}:00Z" for number in range(57))]
    write_json(tmp_path / "in", [{"ts": at} for at in times])

    row = row_of(tmp_path, "ts")

    assert 'ISO 8601 with a time zone; 2 values cannot be read, e.g., "later";' in row
    assert "; 1 time outside of the years 1990 to 2099, e.g., 1900-01-01T00:00Z;" in row


def test_the_order_of_day_and_month_is_that_in_which_the_times_jump_least(tmp_path: Path) -> None:
    days = [FIRST + timedelta(hours=13, minutes=7) * number for number in range(20)]
    write_csv(
        tmp_path / "in", "id,ts", [f"{n},{at.month}/{at.day}/2024 {at.hour}:07" for n, at in enumerate(days)]
    )

    assert source_of(tmp_path)["event_time_pattern"] == "M/d/yyyy H:mm"
    assert "pattern M/d/yyyy H:mm; d/M/yyyy H:mm is possible, but unlikely;" in row_of(tmp_path, "ts")
    assert (
        'event_time_pattern = "M/d/yyyy H:mm"          # this fits as well: d/M/yyyy H:mm\n'
        in (tmp_path / "t.toml").read_text()
    )


def test_another_time_of_the_records_shows_the_order_of_day_and_month(tmp_path: Path) -> None:
    rows = [f"{number},3/2/2024 8:{number:02},2024-03-02T08:{number:02}:05Z" for number in range(60)]
    write_csv(tmp_path / "in", "id,ts,received_at", rows)

    source = source_of(tmp_path)

    assert source["event_time_pattern"] == "M/d/yyyy H:mm"
    assert source["arrival_time"] == "received_at"


@pytest.mark.parametrize("header", ["id,ts", "ts,id"])
def test_an_order_that_nothing_shows_is_refused_with_both_patterns(header: str, tmp_path: Path) -> None:
    write_ambiguous(tmp_path, header)

    ended = init(tmp_path, "t", "--from", "in", "--yes")

    assert ended.exit_code == 1
    assert (
        "error: the values of 'ts', e.g., '03/02/2024 08:00', do not show their pattern (--yes): it is"
        " dd/MM/yyyy HH:mm, so that the first time is 2024-02-03T08:00Z"
        " or MM/dd/yyyy HH:mm, so that the first time is 2024-03-02T08:00Z\n\n"
        "hint: set source.event_time_pattern: without --yes, init asks for it;"
        " `--event-time ts` writes a definition with this line to complete\n"
    ) in ended.output
    assert not (tmp_path / "t.toml").exists()


def test_an_order_that_nothing_shows_is_a_line_to_complete_of_a_named_time(tmp_path: Path) -> None:
    write_ambiguous(tmp_path, "id,ts")

    ended = init(tmp_path, "t", "--from", "in", "--yes", "--event-time", "ts")

    assert ended.exit_code == 0, ended.output
    assert "Complete event_time_pattern in t.toml" in ended.output
    assert (
        '# Complete event_time_pattern, "dd/MM/yyyy HH:mm" or "MM/dd/yyyy HH:mm". A value is "03/02/2024 08:00".\n'
        'event_time_pattern = ""\n'
    ) in (tmp_path / "t.toml").read_text()
    with pytest.raises(SpecError, match="event_time_pattern"):
        load_definition(tmp_path / "t.toml")


def write_ambiguous(folder: Path, header: str) -> None:
    rows = [{"id": f"{number}", "ts": f"03/02/2024 08:{number:02}"} for number in range(60)]
    write_csv(folder / "in", header, [",".join(row[name] for name in header.split(",")) for row in rows])


def test_an_order_that_nothing_shows_is_asked_for_on_a_terminal(tmp_path: Path) -> None:
    write_csv(tmp_path / "in", "store,ts", [f"a,03/02/2024 08:{number:02}" for number in range(60)])
    controller, terminal = pty.openpty()
    command = [str(Path(sys.executable).with_name("backstream")), "init", "t", "--from", "in"]

    child = subprocess.Popen(command, cwd=tmp_path, stdin=terminal, stdout=subprocess.PIPE, text=True)
    os.write(controller, b"2\nUTC\n1h\n")  # the pattern, the time zone, and the size of a window
    try:
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        os.close(controller)
        os.close(terminal)

    assert (
        "Which pattern has ts, e.g., '03/02/2024 08:00'?\n"
        "  1  dd/MM/yyyy HH:mm, so that the first time is 2024-02-03T08:00Z\n"
        "  2  MM/dd/yyyy HH:mm, so that the first time is 2024-03-02T08:00Z\n"
    ) in output
    content = tomllib.loads((tmp_path / "t.toml").read_text())
    assert content["source"]["event_time_pattern"] == "MM/dd/yyyy HH:mm"


BEGIN = (
    "error: no column of in holds times: timestamps, ISO 8601, a pattern of Spark,"
    " or numbers since 1970 (--from)\n"
)
REFUSALS: Mapping[str, tuple[Sequence[Mapping[str, Any]], str]] = {
    "no date": (
        [{"id": number, "text": "8 o'clock", "time": f"08:{number:02}"} for number in range(60)],
        (
            "  the likeliest is time, e.g., '08:00'\n"
            "  the columns are id, text, time\n\n"
            "hint: write a definition with --event-time time, and complete event_time_pattern\n"
        ),
    ),
    "syslog": (
        [{"id": number, "ts": f"Mar  1 08:00:{number:02}"} for number in range(60)],
        (
            "  the likeliest is ts, e.g., 'Mar  1 08:00:00', which has no year\n"
            "  the columns are id, ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time with SQL that adds the year\n"
        ),
    ),
    "unknown": (
        [{"id": number, "logged": "\x1b[31m" + "x" * 999, "ts": "\x07" + "x" * 999} for number in range(60)],
        (
            f"  the likeliest is ts, e.g., '?{'x' * 98}…'\n"
            "  the columns are id, logged, ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_pattern\n"
        ),
    ),
    "a zone that no pattern reads": (
        [{"ts": f"01/03/2024 08:{number:02} Pacific"} for number in range(60)],
        (
            "  the likeliest is ts, e.g., '01/03/2024 08:00 Pacific'\n"
            "  the columns are ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_pattern\n"
        ),
    ),
    "weeks of ISO 8601": (
        [{"ts": f"2024-W09-5T08:00:{number:02}Z"} for number in range(60)],
        (
            "  the likeliest is ts, e.g., '2024-W09-5T08:00:00Z'\n"
            "  the columns are ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_pattern\n"
        ),
    ),
    "quarters": (
        [{"ts": f"2024 Q1 05 08:00:{number:02}"} for number in range(60)],
        (
            "  the likeliest is ts, e.g., '2024 Q1 05 08:00:00'\n"
            "  the columns are ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_pattern\n"
        ),
    ),
    "a date before a long text": (
        [{"ts": f"2024-03-01 08:{number:02} {'x' * 999}"} for number in range(60)],
        (
            f"  the likeliest is ts, e.g., '2024-03-01 08:00 {'x' * 82}…'\n"
            "  the columns are ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_pattern\n"
        ),
    ),
    "numbers without a unit": (
        [{"id": number, "ts": 100 * number} for number in range(60)],
        (
            "  the likeliest is ts, e.g., '0'\n"
            "  the columns are id, ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_unit\n"
        ),
    ),
    "1900": (
        [{"id": number, "ts": f"1900-03-01T08:00:{number:02}Z"} for number in range(60)],
        (
            "  the likeliest is ts, but its times are 1900-03-01T08:00Z to 1900-03-01T08:00:59Z,"
            " and plausible years are 1990 to 2099\n"
            "  the columns are id, ts\n\n"
            "hint: take it with --event-time ts\n"
        ),
    ),
    "texts among times": (
        [{"ts": "2024-03" if number % 4 else f"2024-03-01T08:{number:02}Z"} for number in range(60)],
        (
            "  the likeliest is ts, e.g., '2024-03-01T08:00Z'\n"
            "  the columns are ts\n\n"
            "hint: write a definition with --event-time ts, and complete event_time_pattern\n"
        ),
    ),
    "some texts among times": (
        [{"ts": "2024-03" if number % 4 == 0 else f"2024-03-01T08:{number:02}Z"} for number in range(60)],
        (
            "  the likeliest is ts, but 15 of its 60 values cannot be read, e.g., '2024-03'\n"
            "  the columns are ts\n\n"
            "hint: take it with --event-time ts\n"
        ),
    ),
    "two units": (
        [{"ts": (1_709_280_000 + number) * (1_000 if number % 2 else 1)} for number in range(60)],
        (
            "  the likeliest is ts, but as seconds since 1970 30 of its 60 values are outside of 1990 to 2099,"
            " e.g., '1709280001000'\n  the columns are ts\n\nhint: take it with --event-time ts\n"
        ),
    ),
    "nothing": (
        [{"name": "x", "phone": 1_202_555_010 + number} for number in range(60)],
        "  the columns are name, phone\n\nhint: name the column of the event time with --event-time COLUMN\n",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_archive_without_times_is_refused_with_the_likeliest_column(name: str, tmp_path: Path) -> None:
    rows, message = REFUSALS[name]
    write_json(tmp_path / "in", rows)

    ended = init(tmp_path, "t", "--from", "in", "--yes")

    assert (ended.exit_code, ended.output) == (1, BEGIN + message)
    assert not (tmp_path / "t.toml").exists()


@pytest.mark.parametrize(
    ("name", "lines", "key", "value", "message"),
    [
        (
            "unknown",
            [
                'event_time = "ts"',
                f'# Complete event_time_pattern, e.g., "dd/MM/yyyy HH:mm:ss". A value is "?{"x" * 98}…".',
                'event_time_pattern = ""',
            ],
            "event_time_pattern",
            "dd.MM.yyyy",
            "have at least 1 character, got ''",
        ),
        (
            "numbers without a unit",
            [
                'event_time = "ts"',
                '# Complete event_time_unit, e.g., "ms". A value is "0".',
                'event_time_unit = ""',
            ],
            "event_time_unit",
            "s",
            "be 's', 'ms', 'us' or 'ns', got ''",
        ),
        (
            "syslog",
            [
                (
                    '# Complete event_time: "Mar  1 08:00:00" has no year. SQL that adds it is, e.g.,'
                    " \"concat('2026 ', regexp_replace(ts, ' +', ' '))\""
                ),
                'event_time = ""',
                'event_time_pattern = "yyyy MMM d HH:mm:ss"',
            ],
            "event_time",
            "concat('2026 ', regexp_replace(ts, ' +', ' '))",
            "have at least 1 character, got ''",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 25 else "",
)
def test_a_named_column_that_init_cannot_read_leaves_one_line_to_complete(
    name: str, lines: list[str], key: str, value: str, message: str, tmp_path: Path
) -> None:
    write_json(tmp_path / "in", REFUSALS[name][0])

    ended = init(tmp_path, "t", "--from", "in", "--yes", "--event-time", "ts")

    assert ended.exit_code == 0, ended.output
    assert ended.output.splitlines()[-6:] == [
        "Wrote t.toml.",
        "",
        f"Complete {key} in t.toml: init cannot read the times of ts.",
        "",
        "next:",
        "  backstream check t.toml --sample 1000",
    ]
    text = (tmp_path / "t.toml").read_text()
    assert "\n".join(lines) in text
    with pytest.raises(SpecError) as refused:
        load_definition(tmp_path / "t.toml")
    assert str(refused.value) == f"source.{key} must {message} ({tmp_path}/t.toml)"
    (tmp_path / "t.toml").write_text(text.replace(f'{key} = ""', f"{key} = {json.dumps(value)}"))
    assert load_definition(tmp_path / "t.toml").source.columns.keys() == REFUSALS[name][0][0].keys()


def test_a_named_column_of_any_year_needs_nothing_else(tmp_path: Path) -> None:
    write_json(tmp_path / "in", REFUSALS["1900"][0])

    assert times_of(source_of(tmp_path, "--event-time", "ts")) == {
        "event_time": "ts",
        "event_time_range": ["1900-01-01", "1901-01-01"],
    }


def test_timestamps_of_1970_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    times = pa.array([datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(10)])
    pq.write_table(pa.table({"made": times}), tmp_path / "in/a.parquet")

    refused = init(tmp_path, "t", "--from", "in", "--yes").output
    source = source_of(tmp_path, "--event-time", "made")

    assert "but its times are 1970-01-01T00:00Z to 1970-01-01T00:00:09Z" in refused
    assert times_of(source) == {"event_time": "made"}


def test_dates_of_parquet_are_times(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    days = pa.array([(FIRST + timedelta(days=number)).date() for number in range(10)])
    pq.write_table(pa.table({"day": days}), tmp_path / "in/a.parquet")

    assert times_of(source_of(tmp_path)) == {"event_time": "cast(day as timestamp_ntz)", "time_zone": "UTC"}


def test_a_named_column_replaces_the_guess_and_has_no_other_role(tmp_path: Path) -> None:
    rows = [{"created_at": f"2024-03-01T08:{number:02}:00Z", "amount": FIRST_S + number} for number in range(60)]
    write_json(tmp_path / "in", rows)

    source = source_of(tmp_path, "--event-time", "AMOUNT")

    assert times_of(source) == {"event_time": "amount", "event_time_unit": "s"}
    assert tomllib.loads((tmp_path / "t.toml").read_text())["aggregates"] == {"events": "count(*)"}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("zz", "error: no column of in is 'zz' (--event-time)\n  the columns are ts, ok\n"),
        (
            "ok",
            (
                "error: column 'ok' cannot be the event time, because its type is boolean (--event-time)\n\n"
                "hint: name a column with timestamps, numbers, or texts\n"
            ),
        ),
    ],
)
def test_a_column_that_cannot_be_the_event_time_is_refused(column: str, message: str, tmp_path: Path) -> None:
    write_json(tmp_path / "in", [{"ts": f"2024-03-01T08:{number:02}Z", "ok": True} for number in range(60)])

    assert init(tmp_path, "t", "--from", "in", "--event-time", column).output == message


def test_no_message_prints_more_than_a_hundred_characters_of_a_value(tmp_path: Path) -> None:
    rows = [{"ts": f"2024-03-01T08:{number:02}Z", "text": "v" * 999} for number in range(60)]
    write_json(tmp_path / "in", [*rows, {"ts": "w" * 999, "text": ""}])
    with (tmp_path / "in/a.jsonl").open("a") as file:
        file.write('{"u' + "u" * 999 + "\n")

    output = init(tmp_path, "t", "--from", "in", "--yes").output

    assert not any(letter * 101 in output for letter in "uvw")
    assert not any(letter * 101 in (tmp_path / "t.toml").read_text() for letter in "uvw")


def test_names_are_split_into_words() -> None:
    assert words_of("payload.createdAt_ms") == ("payload", "created", "at", "ms")
    assert words_of("HTTPRequestTime") == ("http", "request", "time")
    assert words_of("eventtime") == ("event", "time")
    assert words_of("consent") == ("consent",)  # not `sent`
    assert words_of("Contact Phone Number") == ("contact", "phone", "number")


def test_many_columns_of_text_are_examined_in_seconds(tmp_path: Path) -> None:
    rows = [
        {"ts": f"{FIRST + timedelta(seconds=100 * number):%d/%m/%Y %H:%M:%S}"}
        | {f"text{column}": f"{column} {number} words of a text" for column in range(20)}
        for number in range(20_000)
    ]
    write_json(tmp_path / "in", rows)

    began = time.monotonic()
    source_of(tmp_path)

    assert time.monotonic() - began < 30
