"""Reading a definition: its keys, its file, and the variables in its paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.definition.clicks import Lines, refusal, written

from backstream.definition.loader import load_definition, parse_definition, resolve_paths
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.eventtime.time_zones import find_zone
from backstream.eventtime.windows import Tumbling
from backstream.runs.home import Home


def test_a_definition_is_read_with_durations_in_milliseconds_and_defaults_for_what_it_leaves_out() -> None:
    clicks = parse_definition(written({}), "clicks.toml")

    assert (clicks.name, clicks.window.spec(), clicks.aggregates) == (
        "clicks",
        Tumbling(HOUR_MS),
        {"clicks": "count(*)"},
    )
    assert (clicks.watermark.strategy, clicks.watermark.emit_interval) == ("none", 200)
    assert (clicks.backfill.mode, clicks.backfill.chunk, clicks.quality.suite) == (
        "recompute",
        DAY_MS,
        "window_audit",
    )


JSON = {"source.format": '"json"', "source.columns": '{ ts = "string" }'}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"widnow": '"1h"'}, "widnow is not a known key"),
        ({"window.gap": '"1h"'}, "window.gap is not a known key"),
        ({"window.slide": '"30m"'}, "window.slide is not a known key"),
        (
            {"source.deduplicate_within": '"1h"'},
            "source deduplicate_within needs deduplicate_on, the columns of the id of a record",
        ),
        (
            {"quality.expected": '{ path = "x", event_time = "y", zone = "UTC" }'},
            "quality.expected.zone is not a known key",
        ),
    ],
)
def test_a_key_that_is_not_known_is_named_with_its_section(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"name": None}, "name is missing"),
        ({"source.path": None}, "source.path is missing"),
        ({"source.event_time": None}, "source.event_time is missing"),
        ({"window": None}, "window is missing"),
        ({"window.size": None}, "window.size is missing"),
        ({"window.kind": None}, "window needs a kind: tumbling, sliding, session or cumulate"),
        ({"window.kind": '"sliding"'}, "window.slide is missing"),
        ({"aggregates": None}, "aggregates is missing"),
        ({"aggregates.clicks": None}, "aggregates must have at least one"),
        (
            {"source.path": '""'},
            "source path must not be empty, got '': write \".\" for the working directory",
        ),
        (
            {"source.path": '["a", ""]'},
            "source path must not be empty, got ('a', ''): write \".\" for the working directory",
        ),
        ({**JSON, "source.records": '""'}, "source.records must have at least 1 character, got ''"),
        ({"aggregates.session": "5"}, "aggregates.session must be text, got 5"),
        ({"source.options": "{ str = 5 }"}, "source.options.str must be text, got 5"),
        ({"quality.late_ratio": "{ warn = 0.1 }"}, "quality.late_ratio.fail is missing"),
    ],
)
def test_a_missing_or_wrong_value_is_named_by_its_key(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


BERLIN = {"window.time_zone": '"Europe/Berlin"'}
SESSIONS = {"window.kind": '"session"', "window.size": None, "window.gap": '"1h"'}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"window.time_zone": '"berlin"'},
            "window.time_zone must be a time zone such as Europe/Berlin, got 'berlin'",
        ),
        (
            {"window.time_zone": '"Europe/Londn"'},
            "window.time_zone must be a time zone such as Europe/London, Europe/Lisbon, got 'Europe/Londn'",
        ),
        (
            {**BERLIN, "job": '{ function = "my:job", columns = { n = "long" } }', "aggregates": None},
            "window.time_zone = 'Europe/Berlin' is not possible with [job]",
        ),
        (
            {**BERLIN, "window.kind": '"sliding"', "window.slide": '"2h"'},
            "window.slide must be at most window.size = 1h with window.time_zone = 'Europe/Berlin', got 2h",
        ),
        (
            {**BERLIN, **SESSIONS, "watermark.strategy": '"monotonous"', "lateness.allowed": '"5m"'},
            (
                "lateness.allowed is not possible with window.time_zone = 'Europe/Berlin' and sessions:"
                " Flink SQL has none, got 5m"
            ),
        ),
        (
            {**BERLIN, "source.event_time_range": '["1800-01-01", "2100-01-01"]'},
            (
                "source.event_time_range must be in 1900-01-01T00:00Z to 2120-01-01T00:00Z with"
                " window.time_zone = 'Europe/Berlin', got 1800-01-01T00:00Z to 2100-01-01T00:00Z"
            ),
        ),
        (
            {**SESSIONS, "window.time_zone": '"Asia/Shanghai"'},
            (
                "window.time_zone = 'Asia/Shanghai' is not possible with sessions when its clocks change at"
                " 1986-05-03T18:00Z: some windows fire before others that end earlier; leave that time out of"
                " source.event_time_range, which is 1970-01-01T00:00Z to 2100-01-01T00:00Z"
            ),
        ),
    ],
)
def test_what_windows_in_local_time_cannot_have_is_refused_with_the_reason(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


def test_valid_times_are_local_with_a_time_zone() -> None:
    clicks = parse_definition(written(BERLIN), "clicks.toml")

    assert str(clicks.valid_times) == "1970-01-01T01:00Z to 2100-01-01T01:00Z"
    assert clicks.metric_windows == clicks.window.spec() == Tumbling(HOUR_MS, zone=find_zone("Europe/Berlin"))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"source.options": '{ mode = "DROPMALFORMED" }'},
            (
                "source options.mode is not allowed, because records would be left out and not counted:"
                " unreadable records go to quarantine"
            ),
        ),
        (
            {"source.options": '{ pathGlobFilter = "*.json" }'},
            (
                "source options.pathGlobFilter is not allowed, because records would be left out and not counted:"
                " use wildcards in source.path"
            ),
        ),
        (
            {**JSON, "source.options": '{ encoding = "latin-9000" }'},
            'source options.encoding must be an encoding such as "UTF-16" or "windows-1252", got \'latin-9000\'',
        ),
        ({"source.records": '"Records"'}, 'source records is for format = "json", got format = "parquet"'),
    ],
)
def test_an_option_must_not_leave_out_records(lines: Lines, said: str) -> None:
    assert refusal(lines) == f"{said} (clicks.toml)"


@pytest.mark.parametrize("key", ["event_time_pattern", "arrival_time_pattern"])
def test_a_pattern_that_means_something_else_is_refused_with_the_right_letters(key: str) -> None:
    assert refusal({f"source.{key}": '"YYYY-MM-DD"'}) == (
        f"source.{key} must be a pattern of instants in Spark's notation, got 'YYYY-MM-DD': YYYY is the year of a "
        'week, and DD is the day of the year; write "yyyy-MM-dd" (clicks.toml)'
    )


def test_the_patterns_of_declared_columns_are_patterns_of_instants_too() -> None:
    assert refusal({"source.options": '{ timestampFormat = "yyyy-MM-dd hh:mm" }'}) == (
        "source options.timestampFormat must be a pattern of instants in Spark's notation, got "
        "'yyyy-MM-dd hh:mm': hh is an hour from 1 to 12 without AM or PM (a); "
        'write "yyyy-MM-dd HH:mm" (clicks.toml)'
    )


def test_an_error_lists_several_problems() -> None:
    assert refusal({"source.path": None, "window.size": '"1 hour"', "laetness": "1"}) == (
        "3 problems in clicks.toml"
        "\n  source.path is missing"
        '\n  window.size must be a duration such as "1h", "30m" or "200ms", got \'1 hour\''
        "\n  laetness is not a known key"
    )


def test_an_error_lists_ten_of_many_problems() -> None:
    lines = refusal({f"key_{number}": "1" for number in range(12)}).splitlines()

    assert (lines[0], len(lines), lines[-1]) == ("12 problems in clicks.toml", 12, "  and 2 more")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        load_definition(tmp_path / "clicks.toml")

    assert str(refused.value) == f"no definition at {tmp_path}/clicks.toml"


def test_a_folder_is_no_definition(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        load_definition(tmp_path)

    assert str(refused.value) == f"cannot read the definition at {tmp_path}: Is a directory"


def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text('name = "clicks"\nsize = 1h\n')

    with pytest.raises(SpecError) as refused:
        load_definition(file)

    assert str(refused.value) == (
        "definition is not TOML: Expected newline or end of document after a statement "
        f"(at line 2, column 9) ({file})"
    )


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(SpecError) as refused:
        load_definition(file)

    assert str(refused.value) == (
        f"definition is not TOML: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte ({file})"
    )


def test_variables_in_paths_are_filled_in_and_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET", "north")
    monkeypatch.chdir(tmp_path)
    lines = {
        "source.path": '"${BACKSTREAM_HOME}/data/${BUCKET}"',
        "quality.expected": '{ path = "timetable", event_time = "at" }',
    }

    filled = resolve_paths(parse_definition(written(lines), "clicks.toml"), Home(tmp_path / "home"))

    assert filled.source.path == f"{tmp_path}/home/data/north"
    assert filled.quality.expected is not None
    assert filled.quality.expected.path == f"{tmp_path}/timetable"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"source.path": '"${CLICKS}/data"'},
            "source.path has a variable that is not set: 'CLICKS' in '${CLICKS}/data' (clicks)",
        ),
        (
            {"quality.expected": '{ path = "${CLICKS}", event_time = "at" }'},
            "quality.expected.path has a variable that is not set: 'CLICKS' in '${CLICKS}' (clicks)",
        ),
        (
            {"source.path": '"/data/$1"'},
            "source.path has a $ without {NAME}: '/data/$1' (clicks)\n\nhint: write $$ for a $",
        ),
    ],
)
def test_a_variable_that_is_not_set_is_named(
    lines: Lines, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CLICKS", raising=False)

    with pytest.raises(SpecError) as refused:
        resolve_paths(parse_definition(written(lines), "clicks.toml"), Home(tmp_path))

    assert str(refused.value) == said
