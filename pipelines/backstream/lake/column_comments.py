"""Describe the columns of new tables, so that the catalog shows what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstream.runs.table_schemas import RECORD_COUNT

_COMMENTS = {
    "window_start": "start of the window, inclusive",
    "window_end": "end of the window, exclusive",
    RECORD_COUNT: "number of records behind the row",
    "run_id": "run that wrote the row",
    "source_partition": "partition of the source from which the record came",
    "event_time": "time at which the event happened",
    "arrival_time": "time at which the record arrived",
    "arrival_seq": "position of the record among those of the same arrival time",
    "events": "records in the window: on time, late, dropped, and expired",
    "on_time": "records that arrived before the watermark passed the window",
    "late": "records that arrived later, within the allowed lateness",
    "dropped": "records that arrived after the allowed lateness",
    "expired": "records that this window no longer accepted, but a later one did",
    "first_arrival": "earliest arrival time of the records",
    "last_arrival": "latest arrival time of the records",
    "fired_at": "time of the source's clock at the firing of the window",
}


def column_comments(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return a comment per column: the meaning of fixed columns, and the expression of those of the definition."""
    keys = dict.fromkeys(definition.get("source", {}).get("key", ()), "key")
    computed = {**definition.get("aggregates", {}), **definition.get("derive_after", {})}
    return {**_COMMENTS, **keys, **{name: str(expression) for name, expression in computed.items()}}
