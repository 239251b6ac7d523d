"""`init` recognizes logs of servers and services, and a run of its definition reads each line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.init.logs import COUNT, LOGS
from tests.init.runs import run_records

from backstream.errors import PlanError
from backstream.eventtime.instants import epoch_ms
from backstream.source.archive.evidence import examine_archive


@pytest.mark.parametrize("name", LOGS)
def test_a_run_of_the_definition_reads_each_line_of_a_log(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LOGS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / log.name).write_text(log.text())
    evidence = examine_archive("logs", None).with_choice("key", log.column)
    evidence = evidence.with_choice("event_time", log.time or evidence.roles.event_time.value)

    found = run_records(evidence, tmp_path, spark)

    assert (len(evidence.sample.records), evidence.sample.unreadable) == (COUNT, [])
    assert (found.read, found.unreadable) == (COUNT, 0)
    assert sorted((epoch_ms(at), str(value)) for at, value in found.rows) == log.expected()


def test_syslog_without_years_is_read_as_soon_as_the_user_adds_the_year(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"Jan {day:2} 06:00:00 web-1 sshd[7]: opened: x" for day in range(8, 12)]
    (tmp_path / "messages").write_text("\n".join(lines) + "\n")

    with pytest.raises(PlanError) as raised:
        examine_archive("messages", None)
    evidence = examine_archive("messages", None, "logged_at").with_choice("key", "app")
    added = "concat('2026 ', regexp_replace(logged_at, ' +', ' '))"
    found = run_records(evidence, tmp_path, spark, {'event_time = ""': f'event_time = "{added}"'})

    assert str(raised.value) == (
        "no column of messages holds times: timestamps, ISO 8601, a pattern of Spark, or numbers since 1970"
        " (--from)\n  the likeliest is logged_at, e.g., 'Jan  8 06:00:00', which has no year\n"
        "  the columns are line, logged_at, host, app, message\n\n"
        "hint: write a definition with --event-time logged_at, and complete event_time with SQL that adds the year"
    )
    assert (found.read, found.unreadable) == (4, 0)
    assert sorted((f"{at:%Y-%m-%d %H:%M}", app) for at, app in found.rows) == [
        (f"2026-01-{day:02} 06:00", "sshd") for day in range(8, 12)
    ]


def test_files_with_other_fields_are_refused_since_a_run_reads_them_by_position(tmp_path: Path) -> None:
    for name, fields in (("a.log", "date time cs-method"), ("b.log", "date cs-method time")):
        (tmp_path / name).write_text(f"#Version: 1.0\n#Fields: {fields}\n2026-01-01 06:00:00 GET\n")

    with pytest.raises(PlanError) as raised:
        examine_archive(str(tmp_path), None)

    assert str(raised.value) == (
        f"{tmp_path}/b.log has other #Fields than the lines before (--from): others are their order\n\n"
        "hint: a run reads these columns by position; give --from a path to the files with equal fields"
    )


def test_a_text_of_unknown_form_is_quoted_with_a_way_to_read_it(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("Started 2026-01-01 06h00 by ann\nStopped 2026-01-01 07h00 by bob\n")

    with pytest.raises(PlanError) as raised:
        examine_archive(str(tmp_path), None)

    assert "the first line of text is 'Started 2026-01-01 06h00 by ann'\n\nhint: write the definition" in str(
        raised.value
    )


def test_the_separator_line_of_excel_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeffsep=;\r\nid;ts\r\n1;2026-01-01T06:00:00Z\r\n2;2026-01-01T07:00:00Z\r\n")

    with pytest.raises(PlanError) as raised:
        examine_archive(str(tmp_path), None)

    assert str(raised.value) == (
        f"the first line of {tmp_path}/a.csv is 'sep=;' (--from), which only Excel takes for the separator; a run"
        " reads it as a record\n\nhint: remove this line from the files, e.g., by sed -i 1d"
    )
