"""Write the same instants in many forms of time, as CSV files."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

ROWS = 40
_STEP = timedelta(hours=13, minutes=7, seconds=13, milliseconds=137)
INSTANTS = [datetime(2024, 3, 1, tzinfo=UTC) + number * _STEP for number in range(ROWS)]
"""Instants in 22 days of one month."""

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


def _without_zeros(text: str) -> str:
    return re.sub(r"\b0(\d)", r"\1", text)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00")


def _excel_days(at: datetime) -> float:
    return (at - datetime(1899, 12, 30, tzinfo=UTC)) / DAY


def _dotnet_ticks(at: datetime) -> int:
    return (at - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10


def _epoch(at: datetime) -> str:
    return f"{round(at.timestamp() * 1000)}"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of time: the text of an instant, its precision, and the keys that `init` writes for it."""

    write: Callable[[datetime], str | Mapping[str, str]]
    precision: timedelta
    keys: Mapping[str, str]


def _pattern(
    pattern: str, write: Callable[[datetime], str], precision: timedelta = SECOND, event_time: str = "ts"
) -> Form:
    return Form(write, precision, {"event_time": event_time, "event_time_pattern": pattern})


def _strftime(pattern: str, directives: str, precision: timedelta = SECOND, event_time: str = "ts") -> Form:
    return _pattern(pattern, lambda at: at.strftime(directives), precision, event_time)


ISO = {"event_time": "ts"}
MILLISECOND = timedelta(milliseconds=1)
NO_WEEKDAY = "regexp_replace(ts, '^[A-Za-z]+,? *', '')"
FORMS: Mapping[str, Form] = {
    # the forms of ISO 8601, and what Python, Java, Go, and SQL write
    "date": Form(lambda at: f"{at:%Y-%m-%d}", DAY, ISO),
    "iso with z": Form(lambda at: _iso(at) + "Z", MILLISECOND, ISO),
    "iso without seconds": Form(lambda at: f"{at:%Y-%m-%dT%H:%MZ}", MINUTE, ISO),
    "iso in basic form": Form(lambda at: f"{at:%Y%m%dT%H%M%SZ}", SECOND, ISO),
    "iso in lower case": Form(lambda at: _iso(at).lower() + "z", MILLISECOND, ISO),
    "iso with an offset": Form(lambda at: f"{_iso(at + timedelta(hours=2))}+02:00", MILLISECOND, ISO),
    "java": Form(lambda at: f"{_iso(at)}+00:00[UTC]", MILLISECOND, ISO),
    "go": Form(lambda at: f"{_iso(at).replace('T', ' ')}000 +0000 UTC", MILLISECOND, ISO),
    "python logging": Form(lambda at: _iso(at).replace("T", " ").replace(".", ","), MILLISECOND, ISO),
    "postgres": Form(lambda at: f"{_iso(at).replace('T', ' ')}+00", MILLISECOND, ISO),
    # patterns
    "access log": _strftime("'['dd/MMM/yyyy:HH:mm:ss Z']'", "[%d/%b/%Y:%H:%M:%S +0000]"),
    "http": _strftime("dd MMM yyyy HH:mm:ss z", "%a, %d %b %Y %H:%M:%S GMT", event_time=NO_WEEKDAY),
    "mail": _strftime("dd MMM yyyy HH:mm:ss Z", "%a, %d %b %Y %H:%M:%S +0000", event_time=NO_WEEKDAY),
    "old http": _strftime("dd-MMM-yy HH:mm:ss z", "%A, %d-%b-%y %H:%M:%S GMT", event_time=NO_WEEKDAY),
    "c": _pattern(
        "MMM d HH:mm:ss yyyy",
        lambda at: f"{at:%a %b} {at.day:2} {at:%H:%M:%S %Y}",
        event_time=f"regexp_replace({NO_WEEKDAY}, ' +', ' ')",
    ),
    "java date": _strftime("MMM dd HH:mm:ss z yyyy", "%a %b %d %H:%M:%S UTC %Y", event_time=NO_WEEKDAY),
    "ctime with an offset": _strftime(
        "MMM dd HH:mm:ss Z yyyy", "%a %b %d %H:%M:%S +0000 %Y", event_time=NO_WEEKDAY
    ),
    "javascript": _strftime(
        "MMM dd yyyy HH:mm:ss Z",
        "%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)",
        event_time="regexp_replace(replace(substring_index(ts, ' (', 1), 'GMT', ''), '^[A-Za-z]+,? *', '')",
    ),
    "oracle": _strftime("dd-MMM-yyyy HH:mm:ss", "%d-%b-%Y %H:%M:%S"),
    "oracle with upper case": _pattern("dd-MMM-yy HH:mm:ss", lambda at: f"{at:%d-%b-%y %H:%M:%S}".upper()),
    "db2": _pattern("yyyy-MM-dd-HH.mm.ss.SSSSSS", lambda at: f"{at:%Y-%m-%d-%H.%M.%S.%f}", MILLISECOND),
    "us": _strftime("MM/dd/yyyy HH:mm:ss", "%m/%d/%Y %H:%M:%S"),
    "us with am and pm": _strftime("MM/dd/yyyy hh:mm:ss a", "%m/%d/%Y %I:%M:%S %p"),
    "us with one digit": _pattern(
        "M/d/yyyy H:mm", lambda at: _without_zeros(f"{at:%m/%d/%Y %H:}") + f"{at:%M}", MINUTE
    ),
    "us with a long month": _pattern(
        "MMMM d, yyyy h:mm a", lambda at: _without_zeros(f"{at:%B %d, %Y %I:}") + f"{at:%M %p}", MINUTE
    ),
    "us with two digits of the year": _strftime("MM/dd/yy HH:mm", "%m/%d/%y %H:%M", MINUTE),
    "british": _strftime("dd/MM/yyyy HH:mm", "%d/%m/%Y %H:%M", MINUTE),
    "german": _strftime("dd.MM.yyyy HH:mm:ss", "%d.%m.%Y %H:%M:%S"),
    "german date": _strftime("dd.MM.yyyy", "%d.%m.%Y", DAY),
    "short german date": _strftime("dd.MM.yy", "%d.%m.%y", DAY),
    "date with dots": _strftime("yyyy.MM.dd", "%Y.%m.%d", DAY),
    "date with slashes": _strftime("yyyy/MM/dd HH:mm:ss", "%Y/%m/%d %H:%M:%S"),
    "region": _strftime("dd/MM/yyyy HH:mm:ss VV", "%d/%m/%Y %H:%M:%S Etc/UTC"),
    "date behind the clock": _strftime("HH:mm:ss dd-MM-yyyy", "%H:%M:%S %d-%m-%Y"),
    "some without milliseconds": _pattern(
        "yyyy/MM/dd HH:mm:ss[.SSS]",
        lambda at: f"{at:%Y/%m/%d %H:%M:%S}" + (f".{at:%f}"[:4] if at.microsecond else ""),
        MILLISECOND,
    ),
    # digits
    "fourteen digits": _strftime("yyyyMMddHHmmss", "%Y%m%d%H%M%S", event_time="cast(ts as string)"),
    "eight digits": _strftime("yyyyMMdd", "%Y%m%d", DAY, event_time="cast(ts as string)"),
    "digits with an underscore": _strftime("yyyyMMdd_HHmmss", "%Y%m%d_%H%M%S"),
    "excel": Form(
        lambda at: f"{_excel_days(at):.9f}",
        MILLISECOND,
        {"event_time": "round((ts - 25569) * 86400, 3)", "event_time_unit": "s"},
    ),
    "seconds": Form(lambda at: f"{int(at.timestamp())}", SECOND, {"event_time": "ts", "event_time_unit": "s"}),
    "seconds with decimals": Form(
        lambda at: f"{at.timestamp():.3f}", MILLISECOND, {"event_time": "ts", "event_time_unit": "s"}
    ),
    "milliseconds": Form(_epoch, MILLISECOND, {"event_time": "ts", "event_time_unit": "ms"}),
    "microseconds": Form(
        lambda at: f"{_epoch(at)}000", MILLISECOND, {"event_time": "ts", "event_time_unit": "us"}
    ),
    "nanoseconds": Form(
        lambda at: f"{_epoch(at)}000000", MILLISECOND, {"event_time": "ts", "event_time_unit": "ns"}
    ),
    "ticks": Form(
        lambda at: f"{_dotnet_ticks(at)}",
        MILLISECOND,
        {"event_time": "(ts - 621355968000000000) div 10", "event_time_unit": "us"},
    ),
    # two columns
    "date and time": Form(
        lambda at: {"date": f"{at:%Y-%m-%d}", "time": f"{at:%H:%M:%S}"}, SECOND, {"event_time": "date_time"}
    ),
    "us date and time": Form(
        lambda at: {"Start Date": f"{at:%m/%d/%Y}", "Start Time": f"{at:%I:%M %p}"},
        MINUTE,
        {"event_time": "start_date_time", "event_time_pattern": "MM/dd/yyyy hh:mm a"},
    ),
    "date and digits of the time": Form(
        lambda at: {"<DATE>": f"{at:%Y%m%d}", "<TIME>": f"{at:%H%M%S}"}, SECOND, {"event_time": "date_time"}
    ),
    "date and a number of the time": Form(
        lambda at: {"FL_DATE": f"{at:%m/%d/%Y}", "DEP_TIME": f"{at.hour * 100 + at.minute}"},
        MINUTE,
        {"event_time": "fl_date_time", "event_time_pattern": "MM/dd/yyyy HHmm"},
    ),
    "date and hour": Form(
        lambda at: {"day": f"{at:%Y-%m-%d}", "hour": str(at.hour)},
        timedelta(hours=1),
        {"event_time": "date_time", "event_time_pattern": "yyyy-MM-dd H"},
    ),
    "date and time with dots": Form(
        lambda at: {"Date": f"{at:%d/%m/%Y}", "Time": f"{at:%H.%M.%S}"},
        SECOND,
        {"event_time": "date_time", "event_time_pattern": "dd/MM/yyyy HH.mm.ss"},
    ),
    "year, month, and day": Form(
        lambda at: {"year": str(at.year), "month": str(at.month), "day": str(at.day)},
        DAY,
        {"event_time": "date", "event_time_pattern": "yyyy-M-d"},
    ),
    "year, month, day, and hour": Form(
        lambda at: {"Year": str(at.year), "Month": str(at.month), "Day": str(at.day), "Hour": str(at.hour)},
        timedelta(hours=1),
        {"event_time": "date_time", "event_time_pattern": "yyyy-M-d H"},
    ),
}


def truncated(at: datetime, precision: timedelta) -> datetime:
    """Return an instant without what a form leaves out."""
    return at - (at - datetime.combine(date(2000, 1, 1), datetime.min.time(), UTC)) % precision


def write_form(form: Form, folder: Path) -> None:
    """Write a CSV file with one record per instant."""
    folder.mkdir(parents=True)
    with (folder / "events.csv").open("w", newline="") as file:
        rows = []
        for number, at in enumerate(INSTANTS):
            written = form.write(at)
            times = {"ts": written} if isinstance(written, str) else written
            rows.append({"number": number, **times, "store": "ab"[number % 2], "amount": number})
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
