"""Know the columns of common archives: Kafka records, Debezium envelopes, CloudEvents, and web-server logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from backstream.errors import SpecError
from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.preset_names import Preset
from backstream.source.archive.roles import Choice, Roles, guess_roles, suggest_aggregates
from backstream.source.archive.times import SampledTime, find_times

Columns = Sequence[ColumnProfile]
PresetRoles = tuple[Columns, Roles]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The guesses by a preset; None if the columns do not fit."""

    apply: Callable[[Columns], PresetRoles | None]
    needs: str


_PREFIXES = ("", "kafka_", "_kafka_", "__", "_", "kafka.", "metadata.", "_metadata.")


def detect_preset(columns: Columns) -> Preset | None:
    """Return the first preset that fits the columns; None if no preset does."""
    return next((preset for preset, layout in _LAYOUTS.items() if layout.apply(columns)), None)


def apply_preset(preset: Preset, columns: Columns) -> PresetRoles:
    """Return the columns, with those that the preset derives, and its guesses.

    Raises:
        SpecError: with the columns that the preset needs, when they are missing.
    """
    found = _LAYOUTS[preset].apply(columns)
    if found is None:
        there = ", ".join(column.path for column in columns[:20])
        msg = (
            f"the archive does not fit --preset {preset.value}: it needs {_LAYOUTS[preset].needs}\n"
            f"  there are {there}\n\nhint: leave --preset out, and answer the questions"
        )
        raise SpecError(msg)
    return found


def _kafka(columns: Columns) -> PresetRoles | None:
    partition, offset = _first_of(columns, "partition"), _first_of(columns, "offset")
    times, timestamp = find_times(columns), _first_of(columns, "timestamp")
    if partition is None or (offset is None and not partition.is_folder):
        return None
    names = {each.path for each in (partition, offset, timestamp) if each}
    inner = [each for each in times if each.column.path not in names]
    base = guess_roles([column for column in columns if column.path not in names], inner or times)
    arrival = Choice(timestamp.path) if timestamp and _is_time(timestamp, times) else base.arrival_time
    if not inner:
        arrival = Choice()
    order = (partition.path, offset.path) if offset else ()
    notes = {partition.path: "the Kafka partition"} | ({offset.path: "the Kafka offset"} if offset else {})
    if arrival.value and timestamp:
        notes[arrival.value] = "the time of the Kafka record"
    return columns, replace(
        base,
        arrival_time=arrival,
        partition=Choice(partition.path),
        sequence=Choice(offset.path if offset else None),
        deduplicate_on=order,
        notes=notes,
    )


def _debezium(columns: Columns) -> PresetRoles | None:
    by_path = {column.path: column for column in columns}
    prefix = "payload." if "payload.op" in by_path else ""
    needed = [f"{prefix}{name}" for name in ("op", "ts_ms", "source.ts_ms")]
    if not all(path in by_path for path in needed):
        return None
    op, arrived, happened = needed
    position = next((path for name in _POSITIONS if (path := f"{prefix}source.{name}") in by_path), None)
    table = f"{prefix}source.table" if f"{prefix}source.table" in by_path else None
    changes = {
        "changes": "count(*)",
        "inserts": f"count(*) FILTER (WHERE {op} = 'c')",
        "updates": f"count(*) FILTER (WHERE {op} = 'u')",
        "deletes": f"count(*) FILTER (WHERE {op} = 'd')",
    }
    is_number = position is not None and by_path[position].kind == "bigint"
    kept = _without_schema(columns, prefix)
    return kept, Roles(
        event_time=Choice(happened),
        arrival_time=Choice(arrived),
        sequence=Choice(position if is_number else None),
        key=Choice(table),
        aggregates=changes,
        notes={op: "c insert, u update, d delete, r snapshot", happened: "the time of the change in the database"},
    )


_POSITIONS = ("lsn", "pos", "scn", "change_lsn")


def _without_schema(columns: Columns, prefix: str) -> Columns:
    """Return the columns without the schema that Kafka Connect's converter repeats in each record."""
    if not prefix:
        return columns
    return [column for column in columns if column.path.partition(".")[0] != "schema"]


def _cloudevents(columns: Columns) -> PresetRoles | None:
    by_path = {column.path: column for column in columns}
    if not all(name in by_path for name in ("time", "source", "id", "type")) or not _is_time(
        by_path["time"], find_times(columns)
    ):
        return None
    rest = [column for column in columns if column.path not in ("time", "source", "id", "specversion")]
    others = [time for time in find_times(columns) if time.column.path != "time"]
    named = [time.column.path for time in others if "data" not in time.column.path.split(".")[0]]
    return columns, Roles(
        event_time=Choice("time"),
        arrival_time=Choice(named[0] if named else None, tuple(named), is_certain=not named),
        key=Choice("type"),
        deduplicate_on=("source", "id"),
        aggregates=suggest_aggregates(rest),
        notes={"id": "unique within its source, by the specification"},
    )


def _web_logs(columns: Columns) -> PresetRoles | None:
    times = [time.column for time in find_times(columns)]
    if not times or not any(column.name in ("status", "status_code") for column in columns):
        return None
    if not any(column.name in ("request", "uri", "request_uri", "path", "url") for column in columns):
        return None
    named = [column for column in times if column.name in _LOG_TIMES]
    return columns, _web_log_roles(columns, (named or times)[0].path)


_LOG_TIMES = ("time_iso8601", "logged_at", "@timestamp", "timestamp", "time", "time_local", "msec", "ts")


def _web_log_roles(columns: Columns, time: str) -> Roles:
    status = next(column for column in columns if column.name in ("status", "status_code"))
    size = next((column for column in columns if column.name in ("size", "body_bytes_sent", "bytes_sent")), None)
    code = status.sql if status.kind == "bigint" else f"try_cast({status.sql} as int)"
    aggregates = {"requests": "count(*)", "server_errors": f"count_if({code} >= 500)"}
    if size is not None and size.kind == "bigint":
        aggregates["bytes_sent"] = f"sum({size.sql})"
    hosts = tuple(column.path for column in columns if column.name in ("host", "server_name", "vhost"))
    return Roles(
        event_time=Choice(time),
        key=Choice(hosts[0] if hosts else None, (*hosts, status.path), is_certain=bool(hosts)),
        aggregates=aggregates,
    )


_LAYOUTS: Mapping[Preset, _Layout] = {
    Preset.DEBEZIUM: _Layout(_debezium, "the columns op, ts_ms, and source.ts_ms"),
    Preset.CLOUDEVENTS: _Layout(_cloudevents, "the columns time, source, id, and type"),
    Preset.KAFKA: _Layout(_kafka, "the columns partition and offset, or folders such as partition=0"),
    Preset.WEB_LOGS: _Layout(_web_logs, "access logs, or the columns of a time, a status, and a request"),
}


def _first_of(columns: Columns, name: str) -> ColumnProfile | None:
    names = [f"{prefix}{name}" for prefix in _PREFIXES]
    return next((column for each in names for column in columns if column.path.lower() == each), None)


def _is_time(column: ColumnProfile, times: Sequence[SampledTime]) -> bool:
    return any(time.column.path == column.path for time in times)
