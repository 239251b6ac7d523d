"""Check changes of a definition after a publication: added columns, refusals, and notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.errors import PlanError
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.ledger import record_run
from backstream.lake.reader import load_rows
from backstream.lake.run_rows import ledger_row
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.workflow.publish import create_run_tables

ROWS = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("1 06:00"), at("1 06:10"), "A", 1, "home")]


@pytest.fixture(autouse=True)
def published(tmp_path: Path) -> None:
    """Publish a day of clicks."""
    write_clicks(tmp_path / "data/a.parquet", ROWS)
    plan = planned(tmp_path, write_definition(tmp_path))
    publish_counts(plan, ROWS)
    record_run(plan.home, ledger_row(plan, RunStatus.PUBLISHED))


def test_an_added_aggregate_is_a_new_column_and_null_in_published_rows(tmp_path: Path) -> None:
    plan = planned(tmp_path, write_definition(tmp_path, CLICKS + 'last = "max(seq)"\n'))
    create_run_tables(plan)

    assert [name for name, *_ in plan.tables[""].columns][-4:] == ["clicks", "last", "record_count", "run_id"]
    home = Home(tmp_path / "home")
    assert load_rows(home, "clicks")["last"].to_pylist() == [None, None]
    with open_catalog_for_writing(home) as catalog:
        field = load_table(catalog, "clicks").schema().find_field("last")
    assert (str(field.field_type), field.required) == ("long", False)


def test_a_changed_type_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        planned(tmp_path, write_definition(tmp_path, clicks='"avg(seq)"'))

    assert str(caught.value) == (
        "table `clicks` no longer fits the definition\n"
        "  clicks: expected double, found long\n\n"
        "hint: a column keeps its type; give the aggregate or the dataset another name"
    )


def test_an_aggregate_with_another_name_is_accepted(tmp_path: Path) -> None:
    text = CLICKS.replace('clicks = "count(*)"', 'mean_seq = "avg(seq)"')

    plan = planned(tmp_path, write_definition(tmp_path, text))

    assert [name for name, *_ in plan.tables[""].columns][-3:] == ["mean_seq", "record_count", "run_id"]


def test_a_renamed_dataset_is_a_new_table_with_a_notice_until_it_exists(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    definition = write_definition(tmp_path, name='"visits"')

    create_run_tables(planned(tmp_path, definition))

    [message] = caplog.messages
    assert message == (
        f"notice: {definition} now writes to the new table `visits`."
        " Its previous table `clicks` is kept and no longer updated\n"
        "  `visits` starts empty: it contains only the days that are run from now on"
    )
    caplog.clear()
    planned(tmp_path, definition)
    assert caplog.messages == []


SECOND_DAY = [(at("2 05:00"), at("2 05:01"), "A", 2, "home")]


def test_a_plan_names_the_keys_that_changed_since_other_days_were_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_clicks(tmp_path / "data/b.parquet", SECOND_DAY)
    changed = write_definition(tmp_path, CLICKS.replace("clicks = ", "views = "), size='"2h"')

    planned(tmp_path, changed)
    assert caplog.messages == []
    planned(tmp_path, changed, "2024-03-02", "2024-03-03")
    (message,) = caplog.messages
    assert message == (
        "notice: aggregates.clicks, aggregates.views, window.size changed since the runs of 1 published day "
        "outside of this range, whose rows stay as they are\n  `backstream stale clicks` lists the days"
    )


def test_a_plan_has_no_notice_about_changed_limits_of_quality(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_clicks(tmp_path / "data/b.parquet", SECOND_DAY)
    changed = write_definition(tmp_path, CLICKS + "\n[quality]\nrows_ratio = 0.1\n")

    planned(tmp_path, changed, "2024-03-02", "2024-03-03")

    assert caplog.messages == []
