"""Read, compare, explain, and verify the results of runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.api.arguments import RangeEnd, find_newest_plan, instant_text_of, load_run_plan, open_home
from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.runs.plan import Plan
from backstream.text import ReportFormat
from backstream.workflow.requested_range import parse_open_range

if TYPE_CHECKING:
    import pyarrow as pa

    from backstream.runs.results import Receipt
    from backstream.workflow.explanation import Explanation
    from backstream.workflow.history import RunDifference


def run_report(
    run: str | Path | Plan, form: ReportFormat | str = "html", *, home: str | Path | None = None
) -> str:
    """Return the report of a run as text. Nothing is written.

    Args:
        run: run id or plan; of a definition the newest run.
        form: `html`, `md` (Markdown), or `json`.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when there is no such run or format.
    """
    from backstream.workflow.report import report_text

    try:
        chosen = ReportFormat(form)
    except ValueError:
        msg = f"form must be {' or '.join(ReportFormat)}, got {form!r}"
        raise SpecError(msg) from None
    return report_text(load_run_plan(run, home), chosen)


def diff(run: str | Path | Plan, *, limit: int = 10, home: str | Path | None = None) -> RunDifference:
    """Return the changes that a published run made, or that a run without publication would make.

    Args:
        run: run id or plan; of a definition the newest run.
        limit: number of largest changes per aggregate; `changes.largest(limit)` of the result has them as a table.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when the definition has no run.
        LedgerError: when there is no such run, or the rows that it replaced are no longer available.
    """
    from backstream.workflow.history import diff_run

    place = open_home(home)
    if isinstance(run, Plan):
        return diff_run(place, run.run_id, limit)
    newest = find_newest_plan(run, place)
    return diff_run(place, newest.run_id if newest else str(run), limit)


def read(
    dataset: str,
    since: RangeEnd | None = None,
    until: RangeEnd | None = None,
    *,
    as_of: str | None = None,
    home: str | Path | None = None,
) -> pa.Table:
    """Return the published rows of a dataset as a PyArrow table, sorted by all columns.

    Args:
        dataset: name of the dataset.
        since: start of the first windows; by default no limit.
        until: end of the range of window starts, excluded; by default no limit.
        as_of: run id or instant: return the rows as of this time; by default now.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        LedgerError: when there is no such dataset, or its rows at `as_of` are no longer available.
        SpecError: when the range or `as_of` is wrong.
    """
    from backstream.lake.reader import load_rows
    from backstream.workflow.history import load_dataset_rows

    start, end = (None if instant is None else instant_text_of(instant) for instant in (since, until))
    interval = parse_open_range(start, end)
    if as_of is None:
        return load_rows(open_home(home), dataset, interval)
    with load_dataset_rows(open_home(home), dataset, interval, as_of) as rows:
        state = rows.state
    return load_rows(open_home(home), dataset, interval, state.snapshot_id if state else None)


def explain(
    dataset: str, window: str, key: Mapping[str, object] | None = None, *, home: str | Path | None = None
) -> Explanation:
    """Return the explanation of a published row: its records, watermarks, fates, and firings.

    The reference engine recomputes the row from the input files; no Spark starts. `print` shows the explanation,
    and its `is_confirmed` is false if the row of the table is another one.

    Args:
        dataset: name of the dataset.
        window: start of the window, e.g., `2013-02-09T10:00Z`; `START/END` if several windows start then.
        key: values of the key columns; None is null.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when no window starts then, or the key does not fit.
        LedgerError: when no run has published the day of the window.
        PlanError: when the reference engine cannot compute the dataset, or an input file is not as planned.
    """
    from backstream.workflow.explain import explain_window

    return explain_window(open_home(home), dataset, window, _key_texts(key or {}))


def verify(run: str | Path | Plan, sample: int = 200, *, seed: int = 0, home: str | Path | None = None) -> Receipt:
    """Recompute a random sample of the rows of a run from its input files, and return the receipt.

    Args:
        run: run id or plan; of a definition the newest run.
        sample: number of rows.
        seed: seed of the sample; the same seed draws the same rows.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Raises:
        SpecError: when there is no such run, or the number of rows is less than 1.
        PlanError: when the reference engine cannot compute the dataset.
    """
    from backstream.workflow.verify import verify_run

    if sample < 1:
        msg = f"sample must be at least 1 row, got {sample}"
        raise SpecError(msg)
    return verify_run(load_run_plan(run, home), sample, seed)


def hand_over(
    run: str | Plan, at: RangeEnd, folder: str | Path | None = None, *, home: str | Path | None = None
) -> Path:
    """Write the state of a run's recorded stream at an instant, so that a live job continues from there.

    Args:
        run: run id or plan of a replay.
        at: instant on the clock of arrival; records that arrived before it are in the bundle.
        folder: folder of the bundle; by default in the folder of the run.
        home: home folder; by default `$BACKSTREAM_HOME`, or `.backstream` in the working directory.

    Returns:
        The folder of the bundle.

    Raises:
        SpecError: when there is no such run, or its definition cannot be handed over.
        PlanError: when an input file was deleted or changed.
    """
    from backstream.handover.handover import hand_over_run

    at_ms = instant_ms(instant_text_of(at), "at")
    _, written = hand_over_run(load_run_plan(run, home), at_ms, None if folder is None else Path(folder))
    return written


def _key_texts(key: Mapping[str, object]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in key.items()}
