"""Recognize the logs of servers and services, and know their columns.

Spark's reader of CSV separates the columns of most of them. A line of the others is one column of text, from which
SQL derives the columns. A name of a column that is not in a header is in lower case with underscores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from backstream.source.archive.encodings import split_lines

_COMMENT = "#"
_MIN_SHARE = 0.8
"""A log has at least this share of lines in its form."""
_RECOGNIZED_LINES = 20
_LINE = "line"
_UNUSED = "\x01"
"""Separator that no text has, so that a line is one column."""
_ONE_COLUMN = {"sep": _UNUSED, "quote": ""}


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """A column that SQL computes from others, and its value for a record."""

    sql: str
    compute: Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class LogLayout:
    """The columns of a log by position, and the options with which Spark's reader of CSV separates them."""

    columns: tuple[str, ...]
    options: Mapping[str, str]
    derived: Mapping[str, DerivedColumn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LogFormat:
    """A log whose lines have a form."""

    line: re.Pattern[str]
    layout: Callable[[Sequence[str]], LogLayout]
    is_header: bool = False
    """True if only one of the first lines has this form."""

    def fits(self, lines: Sequence[str]) -> bool:
        """Return whether the first lines of a file are of this format."""
        if self.is_header:
            return any(self.line.match(line) for line in lines)
        matched = sum(self.line.match(line) is not None for line in lines)
        return len(lines) > 0 and matched >= _MIN_SHARE * len(lines)


def find_log_format(head: str) -> str | None:
    """Return the name of the log whose first lines these are; None if they are no known log."""
    every = [line.rstrip("\r\n") for line in split_lines(head)]
    complete = every[:-1] or every
    lines = [line for line in complete if line.strip()][:_RECOGNIZED_LINES]
    return next((name for name, known in _FORMATS.items() if known.fits(lines)), None)


def layout_of_log(format_name: str, lines: Sequence[str]) -> LogLayout:
    """Return the columns of a log by its lines."""
    return _FORMATS[format_name].layout(lines)


def _by_position(names: Sequence[str], options: Mapping[str, str], lines: Sequence[str]) -> LogLayout:
    """Return the layout of lines with the first of these names, since newer writers add columns at the end."""
    separator, quoted = options["sep"], re.compile('"[^"]*"')
    counts = Counter(len(quoted.sub("", line).split(separator)) for line in lines if line.strip())
    width = counts.most_common(1)[0][0] if counts else len(names)
    more = [f"field_{number}" for number in range(len(names) + 1, width + 1)]
    return LogLayout((*names, *more)[:width], options)


_SPACES = {"sep": " ", "quote": '"', "escape": '"', "nullValue": "-"}
_ACCESS_COLUMNS = (
    *("remote_host", "ident", "remote_user", "day", "zone"),
    *("request", "status", "size", "referer", "user_agent"),
)
"""Fields of the combined log format; the common log format has the first eight."""
_COMMON_WIDTH = 8


def _access_log(lines: Sequence[str]) -> LogLayout:
    combined = sum(line.rstrip().endswith('"') for line in lines) > len(lines) // 2
    columns = _ACCESS_COLUMNS if combined else _ACCESS_COLUMNS[:_COMMON_WIDTH]
    logged_at = DerivedColumn("concat(substring(day, 2), ' ', substring(zone, 1, 5))", _access_time)
    return LogLayout(columns, _SPACES | {"escape": "\\"}, {"logged_at": logged_at})


def _bucket_log(lines: Sequence[str]) -> LogLayout:
    logged_at = DerivedColumn("concat(substring(day, 2), ' ', substring(zone, 1, 5))", _access_time)
    return replace(_by_position(_BUCKET_COLUMNS, _SPACES, lines), derived={"logged_at": logged_at})


def _access_time(record: Mapping[str, Any]) -> str | None:
    day, zone = record["day"], record["zone"]
    return f"{day[1:]} {zone[:5]}" if day and zone else None


_LOAD_BALANCER_COLUMNS = (
    *("type", "time", "elb", "client_port", "target_port", "request_processing_time"),
    *("target_processing_time", "response_processing_time", "elb_status_code", "target_status_code"),
    *("received_bytes", "sent_bytes", "request", "user_agent", "ssl_cipher", "ssl_protocol", "target_group_arn"),
    *("trace_id", "domain_name", "chosen_cert_arn", "matched_rule_priority", "request_creation_time"),
    *("actions_executed", "redirect_url", "error_reason", "target_port_list", "target_status_code_list"),
    *("classification", "classification_reason", "conn_trace_id"),
)
_CLASSIC_COLUMNS = (
    *("time", "elb", "client_port", "backend_port", "request_processing_time", "backend_processing_time"),
    *("response_processing_time", "elb_status_code", "backend_status_code", "received_bytes", "sent_bytes"),
    *("request", "user_agent", "ssl_cipher", "ssl_protocol"),
)
_BUCKET_COLUMNS = (
    *("bucket_owner", "bucket", "day", "zone", "remote_ip", "requester", "request_id", "operation", "key"),
    *("request", "status", "error_code", "bytes_sent", "object_size", "total_time_ms", "turn_around_time_ms"),
    *("referer", "user_agent", "version_id", "host_id", "signature_version", "cipher_suite"),
    *("authentication_type", "host_header", "tls_version", "access_point_arn", "acl_required"),
)
_FLOW_COLUMNS = (
    *("version", "account_id", "interface_id", "srcaddr", "dstaddr", "srcport", "dstport", "protocol", "packets"),
    *("bytes", "start", "end", "action", "log_status"),
)


def _with_fields(lines: Sequence[str]) -> LogLayout:
    """Return the layout of a log in W3C's extended format, whose comment `#Fields:` has the names."""
    fields = next(line for line in lines if line.startswith("#Fields:"))
    row = next((line for line in lines if line.strip() and not line.startswith(_COMMENT)), "")
    columns = _snake_names(fields.removeprefix("#Fields:").split())
    options = {"sep": "\t" if "\t" in row else " ", "quote": "", "comment": _COMMENT, "nullValue": "-"}
    derived = {}
    if {"date", "time"} <= {*columns}:
        derived["logged_at"] = DerivedColumn("concat(`date`, 'T', `time`, 'Z')", _day_and_time)
    return LogLayout(columns, options, derived)


def _day_and_time(record: Mapping[str, Any]) -> str | None:
    day, time = record["date"], record["time"]
    return f"{day}T{time}Z" if day and time else None


def _zeek(lines: Sequence[str]) -> LogLayout:
    directives = dict(line[1:].split("\t", 1) for line in lines if line.startswith(_COMMENT) and "\t" in line)
    options = {"sep": "\t", "quote": "", "comment": _COMMENT, "nullValue": directives.get("unset_field", "-")}
    return LogLayout(_snake_names(directives["fields"].split("\t")), options)


def _flow_log_with_header(lines: Sequence[str]) -> LogLayout:
    return LogLayout(tuple(lines[0].split()), _SPACES | {"header": "true"})


def _snake_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in lower case with underscores; a repeated one gets its position."""
    snake = [re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "field" for name in names]
    counts = Counter(snake)
    return tuple(name if counts[name] == 1 else f"{name}_{at}" for at, name in enumerate(snake, 1))


def _from_line(names: Mapping[str, int], pattern: str, _: Sequence[str]) -> LogLayout:
    """Return the layout of lines in which the groups of a pattern are the columns; `-` and no text are null."""
    derived = {name: _column_of_group(pattern, group, "-") for name, group in names.items()}
    return LogLayout((_LINE,), _ONE_COLUMN, derived)


def _column_of_group(pattern: str, group: int, null: str = "") -> DerivedColumn:
    literal = pattern.replace("\\", "\\\\")
    sql = f"nullif(regexp_extract({_LINE}, '{literal}', {group}), '')"
    return DerivedColumn(
        f"nullif({sql}, '{null}')" if null else sql, partial(_extract, re.compile(pattern), group, null)
    )


def _extract(pattern: re.Pattern[str], group: int, null: str, record: Mapping[str, Any]) -> str | None:
    match = pattern.search(record[_LINE] or "")
    return None if match is None or match[group] in ("", None, null) else match[group]


_SYSLOG = "^<[0-9]{1,3}>1 ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) (.*)$"
_SYSLOG_GROUPS = {"logged_at": 1, "host": 2, "app": 3, "process_id": 4, "message_id": 5, "message": 6}
_AFTER_TIME = " ([^ ]+) ([A-Za-z0-9_./-]+)[^:]*: (.*)$"
_RSYSLOG = "^(?:<[0-9]{1,3}>)?([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)?)" + _AFTER_TIME
_OLD_SYSLOG = "^(?:<[0-9]{1,3}>)?([A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8})" + _AFTER_TIME
"""Lines of RFC 3164, whose times have no year."""
_RSYSLOG_GROUPS = {"logged_at": 1, "host": 2, "app": 3, "message": 4}
_NGINX_ERROR = r"^([0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:]{8}) \[([a-z]+)\] ([0-9]+)#([0-9]+): (.*)$"
_NGINX_ERROR_GROUPS = {"logged_at": 1, "level": 2, "process_id": 3, "thread_id": 4, "message": 5}
_APACHE_ERROR = (
    r"^\[[A-Z][a-z]{2} ([A-Z][a-z]{2} [0-9]{2} [0-9:.]+ [0-9]{4})\] \[(?:([a-z0-9_]+):)?([a-z0-9]+)\] (.*)$"
)
_APACHE_ERROR_GROUPS = {"logged_at": 1, "module": 2, "level": 3, "message": 4}
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
_PAIR = rf"[^ =]+=(?:{_QUOTED}|[^ ]*)"
_LOGFMT_LINE = re.compile(rf"(?:{_PAIR} +)+{_PAIR}\s*$")


def _logfmt(lines: Sequence[str]) -> LogLayout:
    """Return the layout of lines with pairs such as `level=info msg="not found"`; escapes in quotes stay."""
    keys = dict.fromkeys(key for line in lines for key in re.findall(rf"([^ =]+)=(?:{_QUOTED}|[^ ]*)", line))
    names = dict(zip(_snake_names([*keys]), keys, strict=True))
    derived = {}
    for name, key in names.items():
        # From the begin pair by pair, so that a key within quotes does not count.
        pattern = rf'^(?:{_PAIR} +)*?{re.escape(key)}=(?:"((?:[^"\\]++|\\.)*+)"|([^ ]*))'
        quoted, plain = _column_of_group(pattern, 1), _column_of_group(pattern, 2)
        derived[name if name[0].isalpha() and name != _LINE else f"key_{name}"] = DerivedColumn(
            f"coalesce({quoted.sql}, {plain.sql})", partial(_first_value, quoted, plain)
        )
    return LogLayout((_LINE,), _ONE_COLUMN, derived)


def _first_value(first: DerivedColumn, second: DerivedColumn, record: Mapping[str, Any]) -> Any:
    value = first.compute(record)
    return second.compute(record) if value is None else value


_INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"
_FORMATS: Mapping[str, _LogFormat] = {
    "access log": _LogFormat(
        re.compile(r'\S+ \S+ \S+ \[\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}\] "'), _access_log
    ),
    "AWS load balancer log": _LogFormat(
        re.compile(rf"(?:https?|h2|grpcs|wss?) {_INSTANT} \S+ \S+ \S+ "),
        partial(_by_position, _LOAD_BALANCER_COLUMNS, _SPACES),
    ),
    "AWS classic load balancer log": _LogFormat(
        re.compile(rf"{_INSTANT} \S+ [\d.:\[\]a-f]+ \S+ -?[\d.]+ -?[\d.]+ -?[\d.]+ "),
        partial(_by_position, _CLASSIC_COLUMNS, _SPACES),
    ),
    "AWS VPC flow log with a header": _LogFormat(
        re.compile(r"(?=.*\bsrcaddr\b)(?=.*\bdstaddr\b)[a-z0-9 -]+$"), _flow_log_with_header, is_header=True
    ),
    "AWS VPC flow log": _LogFormat(
        re.compile(r"\d (?:\d{12}|unknown) eni-\w+ \S+ \S+ \S+ \S+ \S+ \S+ \S+ \d+ \d+ \S+ \S+\s*$"),
        partial(_by_position, _FLOW_COLUMNS, _SPACES),
    ),
    "log in W3C's extended format": _LogFormat(re.compile(r"#Fields: "), _with_fields, is_header=True),
    "Zeek log": _LogFormat(re.compile("#fields\t"), _zeek, is_header=True),
    "syslog of RFC 5424": _LogFormat(re.compile(_SYSLOG), partial(_from_line, _SYSLOG_GROUPS, _SYSLOG)),
    "syslog with ISO 8601 times": _LogFormat(re.compile(_RSYSLOG), partial(_from_line, _RSYSLOG_GROUPS, _RSYSLOG)),
    "syslog of RFC 3164": _LogFormat(re.compile(_OLD_SYSLOG), partial(_from_line, _RSYSLOG_GROUPS, _OLD_SYSLOG)),
    "error log of nginx": _LogFormat(
        re.compile(_NGINX_ERROR), partial(_from_line, _NGINX_ERROR_GROUPS, _NGINX_ERROR)
    ),
    "error log of Apache": _LogFormat(
        re.compile(_APACHE_ERROR), partial(_from_line, _APACHE_ERROR_GROUPS, _APACHE_ERROR)
    ),
    "AWS S3 access log": _LogFormat(
        re.compile(r"[0-9a-f]{64} \S+ \[\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}\] \S+ \S+ \S+ [A-Z]\S+ "),
        _bucket_log,
    ),
    "logfmt": _LogFormat(_LOGFMT_LINE, _logfmt),
}
