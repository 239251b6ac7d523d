"""Write the definition of an examined archive, as TOML with a comment for each guess."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backstream.definition.loader import parse_definition
from backstream.definition.run_sections import Quality
from backstream.definition.source_section import Source
from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, duration_ms, duration_text, instant_text, utc_datetime
from backstream.runs.table_schemas import RESULT_COLUMNS
from backstream.source.archive.columns import ColumnProfile, left_out_lines, reader_columns, split_path
from backstream.source.archive.evidence import Evidence, rounded_duration
from backstream.source.archive.job import JobEvidence, job_lines
from backstream.source.archive.roles import QUANTILES, suggest_delay_ms
from backstream.source.archive.sampled import shown_text
from backstream.source.archive.times import SampledTime
from backstream.text import share_text

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT_COLUMN = 44
_MAX_DAYS = 31
_FIRST_DAYS = 7


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a new definition that the sample cannot show."""

    name: str
    window: str = "1h"
    time_zone: str = "UTC"


def write_definition_text(evidence: Evidence, settings: Settings) -> str:
    """Return the definition as TOML.

    Raises:
        SpecError: when the result is not a valid definition, e.g., because of its name or its window, or when a
            job has read a topic, and the columns of its partitions and offsets are not known.
    """
    if evidence.job:
        _require_position(evidence, evidence.job)
    text = "\n".join(_lines(evidence, settings)) + "\n"
    content = tomllib.loads(text)
    if key := incomplete_key(evidence):
        content["source"][key] = _EXAMPLES[key]
    parse_definition(content, f"{settings.name}.toml")
    return text


def incomplete_key(evidence: Evidence) -> str | None:
    """Return the key of `[source]` that the user must complete; None if the definition is complete."""
    lacks = evidence.event_time.lacks
    return lacks and ("event_time" if lacks == "expression" else f"event_time_{lacks}")


_EXAMPLES = {
    "event_time": "concat('2026 ', time)",
    "event_time_pattern": "dd/MM/yyyy HH:mm:ss",
    "event_time_unit": "ms",
}
"""Values of the keys that the user can have to complete."""


def _lines(evidence: Evidence, settings: Settings) -> Iterator[str]:
    sample = evidence.sample
    yield f"# Events of {evidence.archive.location}"
    yield f"# `backstream init` guessed these settings from {len(sample.records):,} records."
    yield "# You can change each line."
    yield f"name = {_text(settings.name)}"
    yield ""
    yield "[source]"
    yield from _source_lines(evidence, settings)
    for section, values in _tables(evidence).items():
        if values:
            yield ""
            yield f"[source.{section}]"
            yield from (f"{_key(name)} = {_text(value)}" for name, value in values.items())
        if section == "columns":
            yield from (f"# {line}" for line in left_out_lines(evidence.sample))
    yield ""
    yield "[window]"
    yield f'kind = "tumbling"  # or {"sliding" if evidence.job else "sliding, session, cumulate"}'
    yield f"size = {_text(settings.window)}"
    yield from _job_lines(evidence, evidence.job) if evidence.job else _watermark_lines(evidence)
    yield ""
    yield "[aggregates]"
    yield from (f"{_key(name)} = {_text(call)}" for name, call in _aggregates(evidence).items())
    missing = evidence.share_without_events(duration_ms(settings.window))
    if missing is not None and missing > Quality().missing_ratio.fail:
        comment = f"{share_text(missing)} of the windows in these days have no event"
        yield ""
        yield "[quality]"
        yield _with_comment("missing_ratio = { warn = 0.0, fail = 1.0 }", comment)


def _source_lines(evidence: Evidence, settings: Settings) -> Iterator[str]:
    roles, archive = evidence.roles, evidence.archive
    times = [evidence.event_time, *([evidence.arrival_time] if evidence.arrival_time else [])]
    yield _with_comment(f"format = {_text(archive.source_format)}", archive.format if archive.is_log else "")
    yield f"path = {_value(archive.source_path())}".replace("$", "$$")
    if evidence.sample.records_path:
        comment = "the field that holds an array of the records"
        yield _with_comment(f"records = {_text(evidence.sample.records_path)}", comment)
    yield from _time_lines("event_time", evidence.event_time)
    if evidence.arrival_time:
        yield from _time_lines("arrival_time", evidence.arrival_time)
    if not all(time.has_zone for time in times):
        yield _with_comment(f"time_zone = {_text(settings.time_zone)}", "of times that are written without a zone")
    for key, choice in (("partition", roles.partition), ("sequence", roles.sequence)):
        if choice.value:
            yield _with_comment(f"{key} = {_text(_column_key(choice.value))}", _distinct(evidence, choice.value))
    if roles.key.value:
        comment = f"one row per key and window; {_distinct(evidence, roles.key.value)}"
        yield _with_comment(f"key = [{_text(_column_key(roles.key.value))}]", comment)
    elif roles.key.candidates:
        yield f"# key = [{_text(_column_key(roles.key.candidates[0]))}]"
    if roles.deduplicate_on:
        names = ", ".join(_text(_column_key(path)) for path in roles.deduplicate_on)
        yield _with_comment(f"deduplicate_on = [{names}]", "records with the same values are duplicates")


def _column_key(path: str) -> str:
    """Return a column as keys name it; only in paths of fields are names with dots in backticks."""
    name, *fields = split_path(path)
    return path if fields or "." in name else name


def _time_lines(key: str, time: SampledTime) -> Iterator[str]:
    if time.lacks:
        yield from _incomplete_lines(time)
        return
    values = time.present_ms
    comment = f"{time.form}; {instant_text(min(values))} to {instant_text(max(values))}"
    yield _with_comment(f"{key} = {_text(time.expression)}", comment)
    if time.unit:
        yield f"{key}_unit = {_text(time.unit)}"
    if time.pattern:
        others = ", ".join(each.pattern or "" for each in time.rivals)
        doubt = "" if time.is_order_shown else "; the records do not show which is right"
        rivals = f"this fits as well: {others}{doubt}" if others else ""
        yield _with_comment(f"{key}_pattern = {_text(time.pattern)}", rivals)
    if key == "event_time" and (span := _unusual_years(values)):
        comment = "by default, times before 1970 and from 2100 on are quarantined"
        yield _with_comment(f"event_time_range = {_value(span)}", comment)


def _incomplete_lines(time: SampledTime) -> Iterator[str]:
    """Yield the lines of an event time that no known form fits: one is empty, so that a run refuses it."""
    example = shown_text(next(iter(time.column.present), ""))
    if time.lacks == "expression":
        sql = f"concat('2026 ', regexp_replace({time.expression}, ' +', ' '))"
        yield f"# Complete event_time: {_text(example)} has no year. SQL that adds it is, e.g., {_text(sql)}"
        yield 'event_time = ""'
        yield 'event_time_pattern = "yyyy MMM d HH:mm:ss"'
        return
    yield f"event_time = {_text(time.expression)}"
    key = f"event_time_{time.lacks}"
    fitting = " or ".join(_text(each.pattern or "") for each in (time, *time.rivals)) if time.pattern else ""
    yield f"# Complete {key}, {fitting or f'e.g., {_text(_EXAMPLES[key])}'}. A value is {_text(example)}."
    yield f'{key} = ""'


def _unusual_years(values_ms: Sequence[int]) -> tuple[str, str] | None:
    """Return the first day of the years of some times, and the day after them; None if the default holds them."""
    first_ms, end_ms = Source.model_fields["event_time_range"].default
    if first_ms <= min(values_ms) and max(values_ms) < end_ms:
        return None
    years = [utc_datetime(value_ms).year for value_ms in (min(values_ms), max(values_ms))]
    return f"{years[0]:04}-01-01", f"{years[1] + 1:04}-01-01"


def _tables(evidence: Evidence) -> Mapping[str, Mapping[str, str]]:
    """Return the sub-tables of the source: columns, derived columns, and options of the reader."""
    archive, columns, sample = evidence.archive, evidence.columns, evidence.sample
    declared = reader_columns(columns) if archive.is_text else {}
    if archive.source_format == "csv":  # Spark assigns the columns of CSV by their position
        declared = {name: declared.get(name, "string") for name in sample.columns}
    derived = {
        column.path: column.derived
        for column in columns
        if column.derived and (column.path in sample.derived or _is_used(evidence, column))
    }
    options = {key: value for key, value in sample.options.items() if (key, value) != ("sep", ",")}
    return {"columns": declared, "derive": derived, "options": options}


def _is_used(evidence: Evidence, column: ColumnProfile) -> bool:
    """Return whether a derived column is used; the others stay a suggestion in the evidence."""
    roles = evidence.roles
    choices = (roles.event_time, roles.arrival_time, roles.partition, roles.sequence, roles.key)
    names = {choice.value for choice in choices} | set(roles.deduplicate_on)
    pattern = re.compile(rf"\b{re.escape(column.path)}\b")
    return column.path in names or any(pattern.search(call) for call in roles.aggregates.values())


def _watermark_lines(evidence: Evidence) -> Iterator[str]:
    lateness = evidence.lateness
    if lateness is None:
        return
    behind = rounded_duration(lateness.behind_ms[QUANTILES.index(0.99)])
    delay = f"delay = {_text(duration_text(suggest_delay_ms(lateness)))}"
    yield ""
    yield _with_comment("[watermark]", "used by --mode replay only")
    yield 'strategy = "bounded_out_of_orderness"'
    yield _with_comment(delay, f"99% of the sample are at most {behind} out of order; see `backstream advise`")


def _require_position(evidence: Evidence, job: JobEvidence) -> None:
    """Check that the records have the columns of Kafka's partition and offset, if the job has read a topic."""
    if not job.source.topic:
        return
    columns = {"partition": evidence.roles.partition.value, "offset": evidence.roles.sequence.value}
    missing = [
        f"no column is certainly Kafka's {name}, such as `{name}` or `kafka_{name}`"
        for name, path in columns.items()
        if path is None
    ]
    if missing:
        msg = (
            f"the job has read the topic {job.source.topic} ({job.address}), so the records need"
            f" source.partition and source.sequence: in {evidence.archive.location}, {', and '.join(missing)}"
        )
        raise SpecError(msg)


def _job_lines(evidence: Evidence, job: JobEvidence) -> Iterator[str]:
    """Yield the watermarks of a job of Structured Streaming, and the settings of runs that replay it."""
    yield ""
    yield "[watermark]"
    yield from (f"# {line}" for line in job_lines(job))
    yield 'strategy = "structured_streaming"'
    yield f"checkpoint = {_text(job.address)}".replace("$", "$$")
    if len(job.source_names) > 1:
        yield _with_comment(f"source = {_text(job.source.name)}", f"of {', '.join(job.source_names)}")
    if len(job.topics) > 1:
        yield _with_comment(f"topic = {_text(job.source.topic)}", f"of {', '.join(job.topics)}").replace("$", "$$")
    delay_ms = job.find_delay_ms(evidence.event_time.times_ms) if evidence.sample.is_complete else None
    if delay_ms is not None:
        comment = "each watermark is the greatest event time less this"
        yield _with_comment(f"delay = {_text(duration_text(delay_ms))}", comment)
    elif len(job.source_names) == 1:
        doubt = "; no delay fits the event times" if evidence.sample.is_complete else ""
        yield _with_comment('# delay = "10m"', f"that of withWatermark, which a plan checks{doubt}")
    yield _with_comment('# late_by = "own_batch"', "if the job ran with Spark 3.3 or older")
    if job.batch_log.gaps:
        yield _with_comment('# undecided = "count"', 'or "drop": what happens to undecided records')
    yield ""
    yield "[backfill]"
    yield 'mode = "replay"'
    yield _with_comment('publish = "first"', 'the row of append mode; "live" is the last row of update mode')


def _aggregates(evidence: Evidence) -> dict[str, str]:
    """Return the aggregates under names that no key and no other result column has."""
    taken = {*RESULT_COLUMNS, (evidence.roles.key.value or "").replace(".", "_")}
    return {f"{name}_total" if name in taken else name: call for name, call in evidence.roles.aggregates.items()}


def _distinct(evidence: Evidence, path: str) -> str:
    column = evidence.column(path)
    count = column.distinct if column else 0
    return f"{count:,} distinct value{'' if count == 1 else 's'}"


def suggested_range(evidence: Evidence) -> tuple[str, str] | None:
    """Return the days of the sample for a first run: of a long archive the first week; None without times."""
    if evidence.event_days is None:
        return None
    since_ms, until_ms = evidence.event_days
    if until_ms - since_ms > _MAX_DAYS * DAY_MS:
        until_ms = since_ms + _FIRST_DAYS * DAY_MS
    since, until = (instant_text(value_ms)[: len("2026-01-01")] for value_ms in (since_ms, until_ms))
    return since, until


def _with_comment(line: str, comment: str) -> str:
    return f"{line.ljust(_COMMENT_COLUMN)}  # {comment}" if comment else line


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _value(value: str | Sequence[str]) -> str:
    return _text(value) if isinstance(value, str) else f"[{', '.join(map(_text, value))}]"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
