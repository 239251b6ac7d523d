"""Check published and stale days after a rollback, which has no run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.history import at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.errors import ConflictError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.lake.ledger import list_recorded_runs, record_run
from backstream.lake.published_windows import load_published_windows
from backstream.lake.run_rows import ledger_row, list_runs
from backstream.pages.days import find_day_spans
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.workflow.history import rollback_run
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.late_data.staleness import Staleness

FIRST = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("2 05:00"), at("2 05:01"), "A", 1, "home")]
LATE = [(at("1 06:00"), at("9 06:00"), "A", 2, "home")]
DAY_ONE_MS = instant_ms("2024-03-01", "day")


def home(folder: Path) -> Home:
    return Home(folder / "home")


def found(folder: Path) -> Staleness:
    return find_stale_days(folder / "clicks.toml", home(folder))


def by_day(folder: Path) -> dict[int, set[str]]:
    return load_published_windows(home(folder), "clicks").runs_by_day()


def test_a_range_that_was_emptied_by_a_rollback_is_not_published(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    plan = planned(tmp_path, write_definition(tmp_path), until="2024-03-03")
    publish_counts(plan, FIRST)
    rollback_run(home(tmp_path), plan.run_id)

    assert by_day(tmp_path) == {}
    assert (found(tmp_path).published_days, found(tmp_path).days) == (0, ())


def test_a_rollback_leaves_days_to_the_runs_that_made_their_rows(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    definition = write_definition(tmp_path)
    first = planned(tmp_path, definition, until="2024-03-03")
    publish_counts(first, FIRST)
    write_clicks(tmp_path / "data/b.parquet", LATE)
    second = planned(tmp_path, definition)
    publish_counts(second, [*FIRST, *LATE])
    assert found(tmp_path).days == ()

    rollback_run(home(tmp_path), second.run_id)

    assert by_day(tmp_path) == {DAY_ONE_MS: {first.run_id}, DAY_ONE_MS + DAY_MS: {first.run_id}}
    [day] = found(tmp_path).days
    assert (day.day_ms, day.reasons, [window.window.start_ms for window in day.windows]) == (
        DAY_ONE_MS,
        (),
        [DAY_ONE_MS + 6 * 3_600_000],
    )


def test_a_rollback_that_was_rolled_back_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    plan = planned(tmp_path, write_definition(tmp_path), until="2024-03-04")
    publish_counts(plan, FIRST)
    rollback_run(home(tmp_path), plan.run_id)
    rollback_run(home(tmp_path), f"rollback-{plan.run_id}")

    assert by_day(tmp_path) == {DAY_ONE_MS + day * DAY_MS: {plan.run_id} for day in range(3)}
    assert found(tmp_path).days == ()


def test_a_rollback_that_was_killed_before_its_row_counts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    plan = planned(tmp_path, write_definition(tmp_path), until="2024-03-03")
    publish_counts(plan, FIRST)
    first = ledger_row(plan, RunStatus.PUBLISHED, rows=2)
    record_run(home(tmp_path), first)

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("backstream.workflow.history.record_run", die)
        with pytest.raises(SystemExit):
            rollback_run(home(tmp_path), plan.run_id, "a wrong delay")

    (untold, known) = list_runs(home(tmp_path), "clicks")
    assert known == first
    assert list_runs(home(tmp_path))[0] == untold
    assert [row.run_id for row in list_recorded_runs(home(tmp_path), "clicks")] == [plan.run_id]
    expected = replace(
        first,
        run_id=f"rollback-{plan.run_id}",
        triggered_by="rollback",
        reason=f"rollback of {plan.run_id}: a wrong delay",
        rows=0,
        events_read=None,
        started_at_ms=untold.finished_at_ms,
        finished_at_ms=untold.finished_at_ms,
    )
    assert untold == expected
    assert find_day_spans([untold, known], lambda _: {}, None) == []

    rollback_run(home(tmp_path), plan.run_id, "a wrong delay")

    (told, _) = list_runs(home(tmp_path), "clicks")
    assert (told.run_id, told.reason, told.rows) == (untold.run_id, untold.reason, 0)
    assert not [*home(tmp_path).rollbacks("clicks").iterdir()]


def test_a_refused_rollback_leaves_no_file(tmp_path: Path) -> None:
    write_clicks(tmp_path / "data/a.parquet", FIRST)
    definition = write_definition(tmp_path)
    first = planned(tmp_path, definition, until="2024-03-03")
    publish_counts(first, FIRST)
    publish_counts(planned(tmp_path, definition, reason="again"), FIRST)

    with pytest.raises(ConflictError):
        rollback_run(home(tmp_path), first.run_id)

    assert not home(tmp_path).rollbacks("clicks").exists()
