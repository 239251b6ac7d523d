"""Name the columns of prepared files. Executors import this module, and they need not have Pydantic."""

from __future__ import annotations

EVENT_TIME, ARRIVAL_TIME = "prepared_event_time", "prepared_arrival_time"
"""Columns with the times of a record as instants; null if the record cannot be read."""
EVENT_TEXT, ARRIVAL_TEXT = "prepared_event_text", "prepared_arrival_text"
"""Columns with the times of an unreadable record as text; null for a readable record."""
REASON, RECORD, FILE = "prepared_reason", "prepared_record", "prepared_file"
"""Columns with the reason why a record is unreadable, its content as JSON or text, and its raw file."""
LINE = "prepared_line"
"""Column with the number of the line of a malformed record in its raw file, from 1; null for other records."""
MALFORMED_RECORD = "malformed_record"
"""The reason of a record that is not JSON or CSV, or has a value of another type."""
PARTITION, SEQUENCE, MARKER = "prepared_partition", "prepared_sequence", "prepared_marker"
"""Columns of a union: the name of the source with its partition, the sequence, and the watermark of a record."""
FILTER = "prepared_filter"
"""Column with whether a record meets `[filter]`, if there is one."""
PREPARED_COLUMNS = (
    *(EVENT_TIME, ARRIVAL_TIME, EVENT_TEXT, ARRIVAL_TEXT, REASON, RECORD, FILE, LINE),
    *(PARTITION, SEQUENCE, MARKER, FILTER),
)
