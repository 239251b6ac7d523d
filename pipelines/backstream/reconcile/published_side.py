"""Load the published windows of a dataset, or the staged windows of a run, with their panes and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue

from backstream.definition.model import Definition
from backstream.errors import LedgerError, SpecError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Sliding, Tumbling
from backstream.lake import published_windows as lake_windows
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.scans import in_interval
from backstream.reconcile.frames import END, START, ColumnMapping, ColumnMappings, TableShape, to_frame
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.store import Runs
from backstream.runs.table_schemas import FIRINGS, METRICS, PANES, PANES_KEPT, WINDOW_END, WINDOW_START, WINDOWS
from backstream.storage.columns import load_columns
from backstream.storage.stores import Stores, map_files

RUN = "run_id"
_WHERE = "the published table"
_COUNTS = ("events", "on_time", "late", "dropped")
_MAX_RUNS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class PublishedSide:
    """Published or staged windows of one interval.

    `windows` has a row per key and window: `run_id`, `ours__<aggregate>`, and `is_ours`, false for a window that
    only the panes have. With panes, it also has `<pane>__<aggregate>` and `has_panes`. `metrics` has the counts of
    each window and source partition. `firings` has all panes if they are kept. `plans` maps a run to its plan,
    None if it is not readable. `run_of_day` maps a day to the run that published it.
    """

    what: str
    windows: pd.DataFrame
    metrics: pd.DataFrame
    firings: pd.DataFrame
    plans: Mapping[str, Plan | None]
    run_of_day: Mapping[int, str]

    def duplicates(self, run_id: str) -> int | None:
        """Return the number of records that a run classified as duplicates; None if unknown."""
        plan = self.plans.get(run_id)
        manifests = load_manifests(plan) if plan else []
        if plan is None or len(manifests) < len(plan.chunks):
            return None
        return sum(counts.get(Fate.DUPLICATE, 0) for counts in sum_fates(manifests).values())


def load_shape(home: Home, definition: Definition) -> TableShape:
    """Return the keys and aggregates that both the published table and the definition have.

    Raises:
        LedgerError: when the table doesn't exist.
        SpecError: when the rows are those of a process function.
    """
    if definition.process:
        msg = f"cannot reconcile {definition.name}: the rows of a process function are not one per key and window"
        raise SpecError(msg)
    with open_catalog_for_writing(home) as catalog:
        schema = load_table(catalog, definition.name).schema().as_arrow()
    keys = [name for name in definition.source.key if name in schema.names]
    # Lists are not compared; the notes of a reconciliation name them.
    plain = {field.name for field in schema if not pa.types.is_nested(field.type)}
    aggregates = [name for name in definition.value_names if name in plain]
    types = {name: schema.field(name).type for name in (*keys, *aggregates)}
    spec = definition.window.spec()
    return TableShape(
        tuple(keys), tuple(aggregates), types, spec.size_ms if isinstance(spec, Tumbling | Sliding) else None
    )


def load_published_side(home: Home, dataset: str, shape: TableShape, interval: Interval | None) -> PublishedSide:
    """Return the published windows that start in an interval; all windows for None.

    Raises:
        LedgerError: when the dataset has no published rows there.
    """
    with open_catalog_for_writing(home) as catalog:
        tables = {
            suffix: _scan_table(catalog, dataset, suffix, interval)
            for suffix in (WINDOWS, PANES, METRICS, FIRINGS)
        }
    rows = tables[WINDOWS]
    if rows is None or not rows.num_rows:
        msg = f"{dataset} has no published rows" + (f" from {interval}" if interval else "")
        raise LedgerError(msg)
    windows = _value_frame(rows, shape, "ours")
    run_of_day = {day_ms: next(iter(runs)) for day_ms, runs in _runs_by_day(home, dataset).items()}
    run_of_day |= dict(zip(_days(windows), windows[RUN], strict=True))
    plans = {run_id: Runs(home).plan_or_none(dataset, run_id) for run_id in sorted(set(windows[RUN]))}
    side = _side_of_windows(f"published by {_runs_text(plans)}", windows, run_of_day, plans)
    return _with_side_tables(side, tables, shape)


def _runs_by_day(home: Home, dataset: str) -> dict[int, set[str]]:
    """Return the newest run of each day, even if the day has no rows."""
    return replace(lake_windows.load_published_windows(home, dataset), files=()).runs_by_day()


def load_staged_side(plan: Plan, shape: TableShape) -> PublishedSide:
    """Return the staged windows of a run.

    Raises:
        LedgerError: when a chunk has not finished, or the run has no staged windows.
    """
    manifests = load_manifests(plan)
    if len(manifests) < len(plan.chunks):
        msg = f"run {plan.run_id} has not finished: {len(manifests)} of {len(plan.chunks)} chunks are done"
        raise LedgerError(msg)
    tables: dict[str, pa.Table | None] = {}
    for suffix in (WINDOWS, PANES, METRICS, FIRINGS):
        paths = [file.path for manifest in manifests for file in manifest.files.get(suffix, ())]
        tables[suffix] = _read_files(paths) if paths else None
    if (rows := tables[WINDOWS]) is None:
        msg = f"run {plan.run_id} has no staged windows"
        raise LedgerError(msg)
    windows = _value_frame(rows, shape, "ours")
    run_of_day = dict.fromkeys(range(plan.since_ms, plan.until_ms, DAY_MS), plan.run_id)
    side = _side_of_windows(f"staged by run {plan.run_id}", windows, run_of_day, {plan.run_id: plan})
    return _with_side_tables(side, tables, shape)


def _read_files(paths: Iterable[str]) -> pa.Table:
    stores = Stores.from_environment()
    tables = map_files(lambda path: load_columns(path, None, stores), {path: path for path in paths})
    return pa.concat_tables(tables, promote_options="default")


def _side_of_windows(
    what: str, windows: pd.DataFrame, run_of_day: Mapping[int, str], plans: Mapping[str, Plan | None]
) -> PublishedSide:
    flagged = windows.assign(is_ours=True, has_panes=False)
    return PublishedSide(what, flagged, pd.DataFrame(), pd.DataFrame(), plans, run_of_day)


def _with_side_tables(
    side: PublishedSide, tables: Mapping[str, pa.Table | None], shape: TableShape
) -> PublishedSide:
    """Return the side with panes, metrics, and firings, each only from the run that published the day."""
    panes, metrics, firings = tables[PANES], _metric_frame(tables[METRICS]), _metric_frame(tables[FIRINGS])
    if len(firings):
        firings = _value_frame(tables[FIRINGS], shape, "firing", extra=("pane_index",))
    windows = side.windows
    if panes is not None and panes.num_rows:
        windows = _join_panes(windows, _of_publisher(_pane_frame(panes, shape), side.run_of_day), shape)
    return replace(
        side,
        windows=windows,
        metrics=_of_publisher(metrics, side.run_of_day),
        firings=_of_publisher(firings, side.run_of_day),
    )


def _join_panes(windows: pd.DataFrame, panes: pd.DataFrame, shape: TableShape) -> pd.DataFrame:
    joined = windows.drop(columns="has_panes").merge(
        panes.assign(has_panes=True), on=[*shape.places, RUN], how="outer"
    )
    for name in ("is_ours", "has_panes"):
        joined[name] = joined[name].eq(True)  # noqa: FBT003 - a value
    return joined


def _pane_frame(panes: pa.Table, shape: TableShape) -> pd.DataFrame:
    """Return the values of all panes as `<pane>__<aggregate>`; the table stores them as `<aggregate>__<pane>`."""
    frames = []
    for pane in PANES_KEPT:
        columns = {name: f"{name}__{pane}" for name in shape.aggregates}
        stored = {name: column for name, column in columns.items() if column in panes.column_names}
        frames.append(_value_frame(panes, shape, pane, stored))
    values = [frame.drop(columns=[*shape.places, RUN]) for frame in frames[1:]]
    return pd.concat([frames[0], *values], axis=1)


def _value_frame(
    rows: pa.Table | None,
    shape: TableShape,
    side: str,
    columns: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
) -> pd.DataFrame:
    """Return keys, bounds, run, and aggregates of one of our tables; `columns` maps aggregates to stored names."""
    assert rows is not None  # noqa: S101 - callers check it
    stored = {name: name for name in shape.aggregates} if columns is None else columns
    mappings = ColumnMappings(
        ColumnMapping(WINDOW_START, WINDOW_START),
        ColumnMapping(WINDOW_END, WINDOW_END),
        tuple(ColumnMapping(name, name) for name in shape.keys),
        tuple(ColumnMapping(name, column) for name, column in stored.items()),
    )
    frame = to_frame(rows, mappings, shape, side, _WHERE)
    return frame.assign(**{name: rows[name].to_pandas() for name in (RUN, *extra)})


def _metric_frame(rows: pa.Table | None) -> pd.DataFrame:
    """Return the metrics of windows with bounds in ms; empty without rows."""
    if rows is None or not rows.num_rows:
        return pd.DataFrame({name: [] for name in (START, END, RUN, "source_partition", *_COUNTS)})
    bounds = {
        ms: rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // 1_000
        for ms, name in ((START, WINDOW_START), (END, WINDOW_END))
    }
    names = [name for name in (RUN, "source_partition", *_COUNTS) if name in rows.column_names]
    return pd.DataFrame(bounds | {name: rows[name].to_pandas() for name in names})


def _of_publisher(rows: pd.DataFrame, run_of_day: Mapping[int, str]) -> pd.DataFrame:
    """Return the rows of the run that published their day, because side tables also have rows of other runs."""
    if not len(rows):
        return rows
    publishers = pd.Series(_days(rows), index=rows.index).map(dict(run_of_day))
    return rows[publishers == rows[RUN]].reset_index(drop=True)


def _days(rows: pd.DataFrame) -> list[int]:
    starts = rows[START].to_numpy()
    return [int(day) for day in starts - starts % DAY_MS]


def _scan_table(catalog: Catalog, dataset: str, suffix: str, interval: Interval | None) -> pa.Table | None:
    name = f"{dataset}__{suffix}" if suffix else dataset
    if not catalog.table_exists(table_identifier(name)):
        return None
    row_filter = in_interval(WINDOW_START, interval) if interval else AlwaysTrue()
    return load_table(catalog, name).scan(row_filter=row_filter).to_arrow()


def _runs_text(run_ids: Iterable[str]) -> str:
    names = sorted(run_ids)
    more = f" and {len(names) - _MAX_RUNS_SHOWN} more" if len(names) > _MAX_RUNS_SHOWN else ""
    return f"run{'s' if len(names) > 1 else ''} {', '.join(names[:_MAX_RUNS_SHOWN])}{more}"
