"""Define the tables of a dataset: names, columns, types. Iceberg and Spark schemas are derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True, slots=True)
class Column:
    """One column with its type in the spelling of Iceberg.

    One of string, long, int, double, float, boolean, date, timestamptz, decimal(p,s), or a list<..>.
    """

    name: str
    type: str
    required: bool = False
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table; `suffix` is empty for the published windows."""

    suffix: str
    columns: tuple[Column, ...]
    day_column: str | None = None
    """Timestamp column whose UTC day partitions the table; None: not partitioned."""

    def name(self, dataset: str) -> str:
        """Return the full name, such as `flights` or `flights__metrics`."""
        return f"{dataset}__{self.suffix}" if self.suffix else dataset


WINDOWS, METRICS, PANES, FIRINGS = "", "metrics", "panes", "firings"
DROPPED, QUARANTINE = "dropped", "quarantine"
WITHHELD = "withheld"
SKIPPED, OUTPUTS = "skipped_windows", "side_outputs"
RESTATEMENTS = "restatements"
TABLES = (WINDOWS, METRICS, QUARANTINE, PANES, DROPPED, FIRINGS, WITHHELD, SKIPPED, OUTPUTS)
"""Tables that the job of a chunk writes; the publication writes `RESTATEMENTS`."""

_WINDOW = (
    Column(WINDOW_START, "timestamptz", required=True),
    Column(WINDOW_END, "timestamptz", required=True),
)
_RUN = (Column("run_id", "string", required=True),)
RECORD_COUNT = "record_count"
"""Column with the number of records behind a result row, so that the loss of a row changes a sum."""
IS_SKIPPED = "is_skipped"
"""Column of result rows in the audit: true for a window for which user code returned no row."""
_ARRIVAL = (
    Column("event_time", "timestamptz", required=True),
    Column("arrival_time", "timestamptz", required=True),
    Column("source_partition", "string", required=True),
    Column("arrival_seq", "long", required=True),
)

METRICS_TABLE = Table(
    METRICS,
    (
        *_WINDOW,
        Column("source_partition", "string", required=True),
        Column("events", "long", required=True),
        Column("on_time", "long", required=True),
        Column("late", "long", required=True),
        Column("dropped", "long", required=True),
        Column("expired", "long", required=True),
        Column("first_arrival", "timestamptz"),
        Column("last_arrival", "timestamptz"),
        Column("fired_at", "timestamptz"),
        *_RUN,
    ),
)
"""Metrics per window and source partition: `events = on_time + late + dropped + expired`.

`expired` counts records that this window no longer accepted but a later one did (sliding windows only). `fired_at`
is the time of the source's clock. It is null in a recompute, and for windows that fired only at the end of input.
"""

QUARANTINE_TABLE = Table(
    QUARANTINE,
    (
        Column("reason", "string", required=True),
        Column("source_partition", "string"),
        Column("event_time", "string"),
        Column("arrival_time", "string"),
        Column("record", "string", required=True),
        Column("file", "string", required=True),
        Column("line", "long"),
        *_RUN,
    ),
)

WITHHELD_TABLE = Table(
    WITHHELD,
    (
        *_WINDOW,
        Column("rows", "long", required=True),
        Column(RECORD_COUNT, "long", required=True),
        *_RUN,
    ),
)
"""Rows per window that `having` or `top` withholds from publication, and the number of their records."""


ROW_POSITION = ("event_time", "row_index")
"""Columns that identify a row of a process function among the rows of its key and window."""
_ROW_POSITION_COLUMNS = (
    Column("event_time", "timestamptz", required=True),
    Column("row_index", "long", required=True),
)


def windows_table(keys: Sequence[Column], values: Sequence[Column]) -> Table:
    """Return the table of windows: window, key columns, a column per aggregate, and the number of records."""
    count = Column(RECORD_COUNT, "long", required=True)
    return Table(WINDOWS, (*_WINDOW, *keys, *values, count, *_RUN), day_column=WINDOW_START)


def process_rows_table(keys: Sequence[Column], values: Sequence[Column]) -> Table:
    """Return the table of the rows that a process function emitted, in the window of their time.

    `event_time` is the time of the record or timer of the row. `row_index` counts the rows of a key at the same
    time, from 0. `record_count` is the number of records of the key in the window, in its first row; 0 in others.
    """
    return windows_table((*keys, *_ROW_POSITION_COLUMNS), values)


def side_outputs_table(keys: Sequence[Column]) -> Table:
    """Return the table of the side outputs of a process function; `row` is the row as JSON."""
    output = (Column("tag", "string", required=True), Column("row", "string", required=True))
    return Table(OUTPUTS, (*keys, *_ROW_POSITION_COLUMNS, *output, *_RUN))


def skipped_windows_table(keys: Sequence[Column]) -> Table:
    """Return the table of windows with records for which user code returned no row.

    The counts are the records of each pane without a row; 0 if the pane has a row or does not exist. Outside of a
    replay, only the final pane exists.
    """
    counts = (Column(pane_count_column(pane), "long", required=True) for pane in PANES_KEPT)
    return Table(SKIPPED, (*_WINDOW, *keys, *counts, *_RUN))


def panes_table(keys: Sequence[Column], values: Sequence[Column]) -> Table:
    """Return the table of first, live and final value of each aggregate, per key and window (replay only).

    It also has the number of records of each pane; 0 if the pane does not exist.
    """
    pane_values = (Column(f"{value.name}__{pane}", value.type) for value in values for pane in PANES_KEPT)
    counts = (Column(pane_count_column(pane), "long", required=True) for pane in PANES_KEPT)
    return Table(
        PANES, (*_WINDOW, *keys, *pane_values, *counts, Column("late_firings", "long", required=True), *_RUN)
    )


def firings_table(keys: Sequence[Column], values: Sequence[Column]) -> Table:
    """Return the table of all panes in order (replay only, if the definition keeps all panes)."""
    pane = (
        Column("pane_index", "long", required=True),
        Column("pane_timing", "string", required=True),
        Column("fired_at", "timestamptz"),
    )
    return Table(FIRINGS, (*_WINDOW, *keys, *pane, *values, *_RUN))


def dropped_table(keys: Sequence[Column]) -> Table:
    """Return the table of the side output (replay only): records that no window accepted.

    `cleaned_up_at` is the time at which the state of their last window was removed.
    """
    return Table(DROPPED, (*keys, *_ARRIVAL, Column("cleaned_up_at", "timestamptz"), *_RUN))


def restatements_table(keys: Sequence[Column]) -> Table:
    """Return the table of changes to published values: a row per key, window and aggregate.

    `change` is added, removed or changed. The values are text, which holds every type of aggregate exactly (a
    double would round a long or a decimal). `difference`, new minus old, is null unless both are numbers.
    `old_run_id` published the old value, `run_id` replaced it.
    """
    change = (
        Column("change", "string", required=True),
        Column("aggregate", "string", required=True),
        Column("old_value", "string"),
        Column("new_value", "string"),
        Column("difference", "double"),
        Column("old_run_id", "string"),
    )
    return Table(RESTATEMENTS, (*_WINDOW, *keys, *change, *_RUN))


PANES_KEPT = ("first", "live", "final")


def pane_count_column(pane: str) -> str:
    """Return the column that counts the records of a pane: `record_count__final`."""
    return f"{RECORD_COUNT}__{pane}"


RESULT_COLUMNS = frozenset(
    column.name
    for table in (
        windows_table((), ()),
        panes_table((), ()),
        firings_table((), ()),
        dropped_table(()),
        restatements_table(()),
    )
    for column in table.columns
)
"""Columns of result tables besides those of a definition: no key or aggregate may have their names."""

USER_CODE_COLUMNS = frozenset(
    column.name
    for table in (process_rows_table((), ()), side_outputs_table(()), skipped_windows_table(()))
    for column in table.columns
)
"""Columns of result tables besides those of a definition with a job or a process function."""

JOB_COLUMNS = frozenset((WINDOW_START, WINDOW_END, "fate", "pane_index", "pane_timing", "watermark_ms"))
"""Columns that a job gets besides those of the source."""

WORKING_COLUMNS = frozenset(
    (
        "event_time_ms",
        "event_instant_ms",
        "arrival_time_ms",
        "source_partition",
        "source_partition__number",
        "arrival_seq",
        "watermark_ms",
        "window_start_ms",
        "window_end_ms",
        "fate",
        "timing",
        "window_number",
        "slice_ms",
        "slice__events",
        "late_arrival_time_ms",
        "late_arrival_seq",
        "late_source_partition",
        "is_on_time",
        "is_accepted",
        "marker_ms",
        "is_duplicate",
        "is_filtered",
        "is_owned",
        "is_ours",
        "quarantine_reason",
        "source_file",
        "source_file_size",
        "record",
        "written_event_time",
        "written_arrival_time",
        "chunk_number",
        "staging_chunk",
        "staging_day",
    )
)
"""Columns that a run adds to the records: it would overwrite a source column of such a name."""
