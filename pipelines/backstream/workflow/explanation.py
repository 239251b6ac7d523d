"""Define the explanation of a published row, and write it as text for a terminal, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from backstream.definition.model import Definition
from backstream.eventtime.instants import duration_text, epoch_ms, instant_text
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import describe_window
from backstream.lake.ledger import RunRow
from backstream.native.raw_input import Target
from backstream.runs.plan import Mode, Plan
from backstream.runs.table_schemas import RECORD_COUNT
from backstream.text import align_cells, count_of, visible_line
from backstream.workflow.recomputation.windows import ExplainedRecord, Firing, RecomputedWindow

Style = Callable[[str, str], str]
"""Function that returns a text in a color, `green` or `red`."""
_NEVER = "at the end of the input"
_SHOWN_RECORDS = 20
"""The number of records that a text shows by default."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A column whose published value differs from the recomputed one; None for a missing row."""

    column: str
    published: Any
    recomputed: Any

    def __str__(self) -> str:
        if self.column == RECORD_COUNT and self.published is None:
            return f"the table has no row, the input makes one of {count_of(self.recomputed, 'record')}"
        if self.column == RECORD_COUNT and self.recomputed is None:
            return f"the table has a row of {count_of(self.published, 'record')}, the input makes none"
        return f"{self.column} is {self.published} in the table, {self.recomputed} recomputed"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A window of a key: the published row, and the opinion of the reference engine.

    `row` is the published row; None: there is none. `not_recomputed` are columns that only Spark can evaluate.
    `value_columns` are the columns of the source that the aggregates read.
    """

    plan: Plan
    definition: Definition
    recomputed: RecomputedWindow
    row: Mapping[str, Any] | None
    differences: Sequence[Difference]
    not_recomputed: Sequence[str]
    value_columns: Sequence[str]
    run: RunRow | None

    @property
    def target(self) -> Target:
        """The window and the key."""
        return self.recomputed.target

    @property
    def key(self) -> dict[str, Any]:
        """The values of the key by column."""
        return dict(zip(self.definition.source.key, self.target.key, strict=True))

    def __str__(self) -> str:
        """Return the explanation as `backstream explain` prints it."""
        return explanation_text(self, _SHOWN_RECORDS)

    @property
    def is_confirmed(self) -> bool:
        """Return whether the reference engine agrees with the published row."""
        return not self.differences


def explanation_text(found: Explanation, limit: int, style: Style = lambda text, _: text) -> str:
    """Return the explanation with at most `limit` records."""
    sections = [
        "\n".join(_head(found, style)),
        _table(list_record_rows(found, limit), "lag") + _more(found, limit),
        _table(list_firing_rows(found), "records"),
        "\n".join(f"{label:<15}{text}" for label, text in list_origins(found)),
    ]
    return "\n\n".join(section for section in sections if section)


def explanation_json(found: Explanation, limit: int) -> dict[str, Any]:
    """Return the explanation as a JSON object with at most `limit` records."""
    window, again = found.target.window, found.recomputed
    return {
        "dataset": found.plan.dataset,
        "window_start": instant_text(window.start_ms),
        "window_end": instant_text(window.end_ms),
        "key": {name: _json_value(value) for name, value in found.key.items()},
        "run_id": found.plan.run_id,
        "plan_hash": found.plan.plan_hash,
        "mode": found.plan.mode.value,
        "is_confirmed": found.is_confirmed,
        "differences": [
            {
                "column": each.column,
                "published": _json_value(each.published),
                "recomputed": _json_value(each.recomputed),
            }
            for each in found.differences
        ],
        "published": None
        if found.row is None
        else {name: _json_value(value) for name, value in found.row.items()},
        "recomputed": None
        if again.values is None
        else {
            RECORD_COUNT: again.record_count,
            **{name: _json_value(value) for name, value in again.values.items()},
        },
        "not_recomputed": list(found.not_recomputed),
        "fates": dict(count_record_fates(found)),
        "records": [_record_json(each) for each in sample_records(again.records, limit)],
        "firings": [_firing_json(firing) for firing in again.firings],
        "fires_at": _instant(again.fires_at_ms),
        "removed_at": _instant(again.is_removed_at_ms),
        "files": again.files,
    }


def count_record_fates(found: Explanation) -> Counter[str]:
    """Return the number of records by fate."""
    return Counter(each.fate for each in found.recomputed.records)


def sample_records(records: Sequence[ExplainedRecord], limit: int) -> list[ExplainedRecord]:
    """Return at most `limit` records in arrival order.

    Those that were not on time take up to half of the places. The others are evenly spaced.
    """
    if len(records) <= limit:
        return list(records)
    special = [number for number, each in enumerate(records) if each.fate != Fate.ON_TIME][: max(1, limit // 2)]
    others = [number for number in range(len(records)) if number not in set(special)]
    left = limit - len(special)
    spaced = {others[at * (len(others) - 1) // max(1, left - 1)] for at in range(left)}
    return [records[number] for number in sorted({*special, *spaced})]


def _head(found: Explanation, style: Style) -> Iterator[str]:
    window = found.target.window
    key = "  ".join(f"{name}={_text(value)}" for name, value in found.key.items())
    spec = found.definition.window.spec()
    yield f"{found.plan.dataset}  {describe_window(spec, window)}" + (f"  {key}" if key else "")
    yield f"published         {row_text(found)}"
    if found.is_confirmed:
        what = "has no row either" if found.row is None else "computes the same row"
        text = f"{what} from {count_of(len(found.recomputed.records), 'record')}"
        yield f"reference engine  {style(text, 'green')}"
    else:
        for difference in found.differences:
            yield f"reference engine  {style(f'DIFFERS: {difference}', 'red')}"
    if found.not_recomputed:
        yield f"not recomputed    {', '.join(found.not_recomputed)}: only Spark can evaluate it"
    counts = (f"{count:,} {fate.replace('_', ' ')}" for fate, count in count_record_fates(found).items())
    yield f"fates             {', '.join(counts) or 'none'}"


def row_text(found: Explanation) -> str:
    """Return the columns of the published row with their values."""
    if found.row is None:
        sections = [f"[{name}]" for name in ("having", "top") if getattr(found.definition, name)]
        return "no row" + (f" (rows that do not meet {' and '.join(sections)} are withheld)" if sections else "")
    names = [*found.definition.value_names, RECORD_COUNT]
    return ", ".join(f"{name} {_text(found.row.get(name))}" for name in dict.fromkeys(names))


def list_record_rows(found: Explanation, limit: int) -> Iterator[Sequence[str]]:
    """Yield the header and the cells of at most `limit` records in arrival order; nothing without records."""
    if not found.recomputed.records:
        return
    watermark = ["watermark"] if is_replay(found) else []
    partition = ["partition"] if found.definition.source.partition else []
    shown = [name for name in found.value_columns if name not in found.definition.source.key]
    yield ["arrival", "event time", "lag", *partition, *watermark, "fate", *shown]
    for each in sample_records(found.recomputed.records, limit):
        record = each.record
        cells = [instant_text(record.arrival_ms), instant_text(record.instant_ms)]
        cells.append(duration_text(record.arrival_ms - record.instant_ms))
        cells += [visible_line(record.source_partition)] if partition else []
        cells += [instant_text(each.watermark_ms)] if watermark and each.watermark_ms is not None else []
        yield [*cells, each.fate.replace("_", " "), *(_text(record.values[name]) for name in shown)]


def _more(found: Explanation, limit: int) -> str:
    total = len(found.recomputed.records)
    return f"\nand more: {limit:,} of {total:,} records are shown" if total > limit else ""


def list_firing_rows(found: Explanation) -> Iterator[Sequence[str]]:
    """Yield the header and the cells of each firing; nothing without firings."""
    if not found.recomputed.firings:
        return
    names = list(found.recomputed.firings[0].values)
    yield ["firing", "at", "watermark", "records", *names]
    for firing in found.recomputed.firings:
        at = _NEVER if firing.at_ms is None else instant_text(firing.at_ms)
        values = [_text(firing.values[name]) for name in names]
        cells = [firing.timing.value.replace("_", " "), at, instant_text(firing.watermark_ms)]
        yield [*cells, f"{firing.record_count:,}", *values]


def list_origins(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: the removal of the state, the watermarks, the run, its plan, and the input files."""
    again, run = found.recomputed, found.run
    if is_replay(found):
        removed = _instant(again.is_removed_at_ms)
        lateness = duration_text(found.definition.lateness.allowed)
        if removed is None and not found.definition.emission.has_end:
            yield "state removed", "not yet: the window is open at the end of the job's logs"
        else:
            yield "state removed", f"{removed or _NEVER}, after an allowed lateness of {lateness}"
        yield "watermarks", again.source
    when = f", finished {instant_text(run.finished_at_ms)}" if run else ""
    yield "run", f"{found.plan.run_id} ({found.plan.mode.value}{when})"
    yield "plan", f"{found.plan.plan_hash} of {found.plan.definition_path} {found.plan.definition_hash}"
    for number, file in enumerate(again.files):
        yield "file" if number == 0 else "", visible_line(file)


def _table(rows: Iterator[Sequence[str]], *right: str) -> str:
    """Return aligned columns with two spaces between them."""
    cells = list(rows)
    if not cells:
        return ""
    return "\n".join(align_cells(cells, [number for number, name in enumerate(cells[0]) if name in right]))


def _record_json(each: ExplainedRecord) -> dict[str, Any]:
    record = each.record
    return {
        "arrival_time": instant_text(record.arrival_ms),
        "event_time": instant_text(record.instant_ms),
        "source_partition": record.source_partition,
        "arrival_seq": record.arrival_seq,
        "watermark": None if each.watermark_ms is None else instant_text(each.watermark_ms),
        "fate": each.fate,
        "values": {name: _json_value(value) for name, value in record.values.items()},
        "file": record.file,
    }


def _firing_json(firing: Firing) -> dict[str, Any]:
    return {
        "timing": firing.timing.value,
        "at": _instant(firing.at_ms),
        "watermark": instant_text(firing.watermark_ms),
        RECORD_COUNT: firing.record_count,
        "values": {name: _json_value(value) for name, value in firing.values.items()},
    }


def _instant(value_ms: int | None) -> str | None:
    return None if value_ms is None else instant_text(value_ms)


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, date | Decimal) else value


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return instant_text(epoch_ms(value))
    if isinstance(value, float):
        return f"{value:.12g}"
    return visible_line(str(value))


def is_replay(explanation: Explanation) -> bool:
    """Return whether records have a watermark at their arrival."""
    return explanation.plan.mode is Mode.REPLAY
