"""Take a Flink SQL script, its events, and Flink's rows as a case.

The script becomes a definition, and a run computes its rows. A folder has `script.sql`, `events.jsonl`, and the
rows: `expected_live.jsonl` of the job, and `expected_complete.jsonl` of one whose watermark comes only at the end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from math import gcd, lcm
from pathlib import Path
from typing import Any

from backstream.conformance.case_dataset import toml_value
from backstream.conformance.cases import Pairs, UnsupportedCaseError
from backstream.definition.flink_sql.script import FlinkScript, ScriptText
from backstream.definition.flink_sql.translation import ScriptedInsert, expand_script, joined_sources
from backstream.definition.flink_sql.types import FlinkType
from backstream.definition.loader import parse_definition
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, duration_ms, duration_text, epoch_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.time_zones import find_zone
from backstream.runs.plan import Mode

_SCRIPT, _EVENTS = "script.sql", "events.jsonl"
_EXPECTED = {"live": "expected_live.jsonl", "complete": "expected_complete.jsonl"}
_MODES = {"live": Mode.REPLAY, "complete": Mode.RECOMPUTE}
"""The mode of the run that has the rows of each file."""
_MARGIN_DAYS = 10
"""The days before the first and after the last arrival in which windows are compared."""
_ARCHIVE_COLUMNS = {"partition": "int", "offset": "bigint", "arrival_ms": "bigint"}
_ARCHIVE = {
    "format": "json",
    "arrival_time": "arrival_ms",
    "arrival_time_unit": "ms",
    "partition": "partition",
    "sequence": "offset",
    "columns": _ARCHIVE_COLUMNS,
}
_DIGITS = 12
"""The significant digits of a double that are compared: the order of additions decides about the last ones."""


@dataclass(frozen=True, slots=True)
class ScriptCase:
    """A script, its events in arrival order, and the INSERT whose rows are recorded."""

    name: str
    content: Mapping[str, Any]
    script: str
    translated: ScriptedInsert
    events: Sequence[Mapping[str, Any]]
    modes: Mapping[str, Mode]
    """The modes of the runs whose rows are recorded."""


@dataclass(frozen=True, slots=True)
class ScriptRows:
    """The rows of the runs of a script, by the columns of its sink."""

    rows: Mapping[str, Mapping[str, int]]

    def pairs(self, case: ScriptCase, recorded: Mapping[str, Any]) -> Pairs:
        """Return what is compared with Flink: the rows of the job, and those without late records."""
        return {
            f"{which} rows": (_count_rows(recorded[which], case.translated.types), self.rows[which])
            for which in case.modes
        }


def load_script_cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the script in a folder, or those in its folders, in the form of a recorded case."""
    if not (folder / _SCRIPT).is_file():
        found = sorted(path.parent for path in folder.glob(f"*/{_SCRIPT}"))
        if not found:
            msg = f"cannot read conformance cases at {folder}: neither it nor a folder in it has {_SCRIPT}"
            raise SpecError(msg)
        for inner in found:
            yield from load_script_cases(inner)
        return
    script, events = (folder / _SCRIPT).read_text(encoding="utf-8"), list(_load_lines(folder / _EVENTS))
    case = {"name": folder.name, "script": script, "events": events}
    rows = {
        which: [line["row"] for line in _load_lines(folder / file)]
        for which, file in _EXPECTED.items()
        if (folder / file).is_file()
    }
    yield {"case": case, "flink": rows}


def _load_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        msg = f"cannot read conformance cases at {path}: {error}"
        raise SpecError(msg) from error


def parse_script_case(line: Mapping[str, Any]) -> ScriptCase:
    """Return the case of a script.

    Raises:
        UnsupportedCaseError: with the reason why no definition can express the script.
    """
    case, columns = line["case"], {name for rows in line["flink"].values() for row in rows for name in row}
    try:
        script = ScriptText(case["script"], _SCRIPT)
        read = FlinkScript.read(script)
        sinks = [each.sink for each in read.inserts]
        matching = [name for name in sinks if name in read.tables and {*read.tables[name].columns} == columns]
        insert = {"insert": matching[0]} if len(sinks) > 1 and len(matching) == 1 else {}
        names = joined_sources(script, insert.get("insert"), _SCRIPT)
        sources = [{"name": name, **_ARCHIVE, "path": f"{name}.jsonl"} for name in names]
        content = {
            "name": "recording",
            "flink_sql": {"script": _SCRIPT, "value": "value", **insert},
            "source": sources or {**_ARCHIVE, "path": "records.jsonl"},
        }
        translated = expand_script(content, script, _SCRIPT)
        parse_definition(translated.content, _SCRIPT)
    except SpecError as error:
        raise UnsupportedCaseError(str(error).partition("\n")[0]) from None
    _require_flushed_windows(translated.content["window"])
    events = [event for event in case["events"] if _is_of_topic(event, *translated.topics)]
    modes = {which: mode for which, mode in _MODES.items() if which in line["flink"]}
    return ScriptCase(case["name"], content, case["script"], translated, events, modes)


def _is_of_topic(event: Mapping[str, Any], *topics: str) -> bool:
    return "" in topics or event["topic"] in topics


def _require_flushed_windows(window: Mapping[str, Any]) -> None:
    """Check that Flink loses no records of the windows in its buffer, which no checkpoint flushes here."""
    zone, kind = find_zone(window.get("time_zone")), window["kind"]
    if zone is None or zone.has_daylight_saving or kind == "session":
        return
    slice_ms = gcd(*(duration_ms(window[key]) for key in ("size", "slide", "step") if key in window))
    if zone.offsets_ms[-1] % slice_ms:
        msg = f"windows in {zone.name}, of which Flink can lose records in a buffer"
        raise UnsupportedCaseError(msg)


def write_script_dataset(case: ScriptCase, folder: Path, engine: str) -> tuple[Path, Interval]:
    """Write the archive, the script, and the definition of a case, and return the definition and the range."""
    (folder / _SCRIPT).write_text(case.script, encoding="utf-8")
    given = case.content["source"]
    sources = [
        {**source, "path": str(folder / source["path"])}
        for source in (given if isinstance(given, list) else [given])
    ]
    for source, topic in zip(sources, case.translated.topics, strict=True):
        records = (event for event in case.events if _is_of_topic(event, topic))
        lines = (json.dumps({name: event[name] for name in (*_ARCHIVE_COLUMNS, "value")}) for event in records)
        Path(source["path"]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    unit_ms = parse_definition(case.translated.content, _SCRIPT).unit_ms
    days_ms = lcm(unit_ms, DAY_MS)
    first_ms, last_ms = (bound(event["arrival_ms"] for event in case.events) for bound in (min, max))
    interval = Interval((first_ms // DAY_MS - _MARGIN_DAYS) * DAY_MS, (last_ms // DAY_MS + _MARGIN_DAYS) * DAY_MS)
    chunk_ms = -(-(interval.end_ms - interval.start_ms) // days_ms) * days_ms
    content = {**case.content, "source": sources if len(sources) > 1 else sources[0]}
    content["backfill"] = {"engine": engine, "chunk": duration_text(chunk_ms)}
    definition = folder / "recording.toml"
    text = "".join(f"{key} = {toml_value(value)}\n" for key, value in content.items())
    definition.write_text(text, encoding="utf-8")
    return definition, interval


def count_result_rows(case: ScriptCase, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of equal rows of a result, by the columns of the sink."""
    columns = case.translated.columns
    return _count_rows(
        ({name: row[column] for name, column in columns.items()} for row in rows), case.translated.types
    )


def _count_rows(rows: Iterable[Mapping[str, Any]], types: Mapping[str, FlinkType]) -> dict[str, int]:
    texts = (", ".join(f"{name} = {_value_text(row[name], kind)}" for name, kind in types.items()) for row in rows)
    return dict(Counter(texts))


def _value_text(value: Any, kind: FlinkType) -> str:
    """Return a value as text, equal for equal values of a recording and of a result."""
    if value is None:
        return "null"
    if kind.is_time:
        moment = datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value
        return str(epoch_ms(moment)) if isinstance(moment, datetime) else str(moment)
    if kind.name == "DECIMAL":
        return str(Decimal(str(value)).normalize())
    if kind.is_floating:
        return f"{float(value):.{_DIGITS}g}"
    return value.isoformat() if isinstance(value, date) else str(value)
