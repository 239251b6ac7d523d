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


def test_times_without_a_year_are_refused_with_a_way_to_write_them(tmp_path: Path) -> None:
    (tmp_path / "messages").write_text("Jan  1 06:00:00 web-1 sshd[7]: opened\n" * 5)

    with pytest.raises(PlanError) as raised:
        examine_archive(str(tmp_path), None)

    assert str(raised.value) == (
        f"the times in {tmp_path}/messages have no year, as in each syslog of RFC 3164 (--from)\n\n"
        "hint: write ISO 8601 times, e.g., with the template RSYSLOG_FileFormat of rsyslog"
    )


def test_files_with_other_fields_are_refused_since_a_run_reads_them_by_position(tmp_path: Path) -> None:
    for name, fields in (("a.log", "date time cs-method"), ("b.log", "date cs-method time")):
        (tmp_path / name).write_text(f"#Version: 1.0\n#Fields: {fields}\n2026-01-01 06:00:00 GET\n")

    with pytest.raises(PlanError) as raised:
        examine_archive(str(tmp_path), None)

    assert str(raised.value) == (
        f"{tmp_path}/b.log has other #Fields than the lines before (--from): others are their order\n\n"
        "hint: a run reads these columns by position; give --from a path to the files with equal fields"
    )
