"""What is published, or staged by a run: its windows with all their panes, and what is known of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue

from backstream.definition.model import Definition
from backstream.errors import BackstreamError, LedgerError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Sliding, Tumbling
from backstream.lake import published_windows as lake_windows
from backstream.lake.catalog import NAMESPACE, load_table, open_catalog_for_writing
from backstream.lake.scans import in_interval
from backstream.reconcile.frames import END, START, ColumnMapping, ColumnMappings, TableShape, to_frame
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests, sum_fates
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import FIRINGS, METRICS, PANES, PANES_KEPT, WINDOWS

RUN = "run_id"
_WHERE = "our table"


@dataclass(frozen=True, slots=True)
class PublishedSide:
    """One state of a dataset, of one interval.

    `windows` has a row per key and window: `run_id`, `ours__<aggregate>`, `is_ours` (false: only the panes know
    the window), and where there are panes `<pane>__<aggregate>` and `has_panes`. `metrics` has the counts of each
    window and source partition, `firings` every pane where they are kept. `plans` maps a run to its plan, None
    where it cannot be read; `run_of_day` a day to the run that published it.
    """

    what: str
    windows: pd.DataFrame
    metrics: pd.DataFrame
    firings: pd.DataFrame
    plans: Mapping[str, Plan | None]
    run_of_day: Mapping[int, str]

    def duplicates(self, run_id: str) -> int | None:
        """How many records a run took for copies of others; None where its folder does not tell."""
        plan = self.plans.get(run_id)
        manifests = load_manifests(plan) if plan else []
        if plan is None or len(manifests) < len(plan.chunks):
            return None
        return sum(counts.get(Fate.DUPLICATE, 0) for counts in sum_fates(manifests).values())


Read = Callable[[str], pa.Table | None]
"""The rows of a table by its suffix; None where there is no such table."""


def load_shape(home: Home, definition: Definition) -> TableShape:
    """The keys and aggregates of the published table, as far as the definition has them.

    Raises:
        LedgerError: when there is no such table.
    """
    with open_catalog_for_writing(home) as catalog:
        schema = load_table(catalog, definition.name).schema().as_arrow()
    keys = [name for name in definition.source.key if name in schema.names]
    aggregates = [name for name in definition.aggregates if name in schema.names]
    types = {name: schema.field(name).type for name in (*keys, *aggregates)}
    spec = definition.window.spec()
    return TableShape(
        tuple(keys), tuple(aggregates), types, spec.size_ms if isinstance(spec, Tumbling | Sliding) else None
    )


def load_published_side(home: Home, dataset: str, shape: TableShape, interval: Interval | None) -> PublishedSide:
    """The windows that start in an interval (None: all) as they are published.

    Raises:
        LedgerError: when nothing is published there.
    """
    with open_catalog_for_writing(home) as catalog:
        tables = {
            suffix: _scanned(catalog, dataset, suffix, interval) for suffix in (WINDOWS, PANES, METRICS, FIRINGS)
        }
    rows = tables[WINDOWS]
    if rows is None or not rows.num_rows:
        msg = f"nothing is published of {dataset}" + (f" from {interval}" if interval else "")
        raise LedgerError(msg)
    windows = _framed(rows, shape, "ours", list(shape.aggregates))
    run_of_day = {day_ms: next(iter(runs)) for day_ms, runs in _covering_runs(home, dataset).items()}
    run_of_day |= dict(zip(_days(windows), windows[RUN], strict=True))
    plans = {run_id: _plan(home, dataset, run_id) for run_id in sorted(set(windows[RUN]))}
    return _assembled(f"published by {_listed(plans, 'run')}", windows, tables, shape, run_of_day, plans)


def _covering_runs(home: Home, dataset: str) -> dict[int, set[str]]:
    """By day, the newest run that covers it, whether the day has rows or not."""
    return replace(lake_windows.load_published_windows(home, dataset), files=()).runs_by_day()


def load_staged_side(plan: Plan, shape: TableShape) -> PublishedSide:
    """The windows that a run has staged and not published.

    Raises:
        LedgerError: when a chunk has not finished, or no window was staged.
    """
    manifests = load_manifests(plan)
    if len(manifests) < len(plan.chunks):
        msg = f"run {plan.run_id} has not finished: {len(manifests)} of {len(plan.chunks)} chunks are done"
        raise LedgerError(msg)
    tables: dict[str, pa.Table | None] = {}
    for suffix in (WINDOWS, PANES, METRICS, FIRINGS):
        files = [file.path for each in manifests for file in each.files.get(suffix, ())]
        tables[suffix] = (
            pa.concat_tables([pq.read_table(file, partitioning=None) for file in files], promote_options="default")
            if files
            else None
        )
    if (rows := tables[WINDOWS]) is None:
        msg = f"run {plan.run_id} staged no window"
        raise LedgerError(msg)
    windows = _framed(rows, shape, "ours", list(shape.aggregates))
    run_of_day = dict.fromkeys(range(plan.since_ms, plan.until_ms, DAY_MS), plan.run_id)
    what = f"staged by run {plan.run_id}"
    return _assembled(what, windows, tables, shape, run_of_day, {plan.run_id: plan})


def _assembled(
    what: str,
    windows: pd.DataFrame,
    tables: Mapping[str, pa.Table | None],
    shape: TableShape,
    run_of_day: Mapping[int, str],
    plans: Mapping[str, Plan | None],
) -> PublishedSide:
    windows["is_ours"] = True
    if (panes := tables[PANES]) is not None and panes.num_rows:
        kept = [f"{name}__{pane}" for name in shape.aggregates for pane in PANES_KEPT]
        kept = [name for name in kept if name in panes.column_names]
        found = _of_owners(_framed(panes, shape, "pane", kept), run_of_day)
        found = found.rename(columns={f"pane__{name}": _pane_name(name) for name in kept})
        found["has_panes"] = True
        windows = windows.merge(found, on=[*shape.places, RUN], how="outer")
    for name in ("is_ours", "has_panes"):
        windows[name] = windows[name].eq(True) if name in windows else False  # noqa: FBT003 - a value
    metrics, firings = (_side(tables[suffix]) for suffix in (METRICS, FIRINGS))
    if len(firings):
        firings = _framed(tables[FIRINGS], shape, "firing", [*shape.aggregates], extra=("pane_index",))
    return PublishedSide(
        what, windows, _of_owners(metrics, run_of_day), _of_owners(firings, run_of_day), plans, run_of_day
    )


def _pane_name(column: str) -> str:
    aggregate, _, pane = column.rpartition("__")
    return f"{pane}__{aggregate}"


def _framed(
    rows: pa.Table | None, shape: TableShape, side: str, names: Sequence[str], extra: Sequence[str] = ()
) -> pd.DataFrame:
    """A table of ours as a frame; the columns of panes have the types of their aggregates."""
    assert rows is not None  # noqa: S101 - who asks has looked
    types = {name: shape.types.get(name, shape.types.get(name.rpartition("__")[0])) for name in names}
    columns = ColumnMappings(
        ColumnMapping("window_start", "window_start"),
        ColumnMapping("window_end", "window_end"),
        tuple(ColumnMapping(name, name) for name in shape.keys),
        tuple(ColumnMapping(name, name) for name in names),
    )
    known = TableShape(
        shape.keys, tuple(names), {**shape.types, **{name: kind for name, kind in types.items() if kind}}
    )
    found = to_frame(rows, columns, known, side, _WHERE)
    return found.assign(**{name: rows[name].to_pandas() for name in (RUN, *extra)})


def _side(rows: pa.Table | None) -> pd.DataFrame:
    """The metrics of windows, with bounds in ms."""
    if rows is None or not rows.num_rows:
        return pd.DataFrame({name: [] for name in (START, END, RUN, "source_partition", *_COUNTS)})
    bounds = {START: "window_start", END: "window_end"}
    content = {
        ms: rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // 1_000
        for ms, name in bounds.items()
    }
    kept = [name for name in (RUN, "source_partition", *_COUNTS) if name in rows.column_names]
    return pd.DataFrame(content | {name: rows[name].to_pandas() for name in kept})


_COUNTS = ("events", "on_time", "late", "dropped")


def _of_owners(rows: pd.DataFrame, run_of_day: Mapping[int, str]) -> pd.DataFrame:
    """The rows that come from the run which published their day: other runs have left rows there too."""
    if not len(rows):
        return rows
    owners = pd.Series(_days(rows), index=rows.index).map(dict(run_of_day))
    return rows[owners == rows[RUN]].reset_index(drop=True)


def _days(rows: pd.DataFrame) -> Iterable[int]:
    starts = rows[START].to_numpy()
    return [int(day) for day in starts - starts % DAY_MS]


def _scanned(catalog: Catalog, dataset: str, suffix: str, interval: Interval | None) -> pa.Table | None:
    name = f"{dataset}__{suffix}" if suffix else dataset
    if not catalog.table_exists((NAMESPACE, name)):
        return None
    wanted = in_interval("window_start", interval) if interval else AlwaysTrue()
    return load_table(catalog, name).scan(row_filter=wanted).to_arrow()


def _plan(home: Home, dataset: str, run_id: str) -> Plan | None:
    try:
        return Plan.read(home.run(dataset, run_id).plan)
    except BackstreamError:
        return None


def _listed(names: Iterable[str], what: str) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""  # noqa: PLR2004 - of a line
    return f"{what}{'s' if len(shown) > 1 else ''} {', '.join(shown[:3])}{more}"
