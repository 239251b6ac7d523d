"""Split names of columns into words, and list the words that show the meaning of a column."""

from __future__ import annotations

import re

from backstream.source.archive.columns import ColumnProfile

EVENT_WORDS = frozenset(
    (
        *(
            "event",
            "events",
            "occurred",
            "occurrence",
            "occurs",
            "happened",
            "order",
            "ordered",
            "create",
            "created",
        ),
        *("creation", "measure", "measured", "measurement", "record", "recorded", "start", "started", "begin"),
        *("click", "clicked", "sent", "action"),
    )
)
ARRIVAL_WORDS = frozenset(
    (
        *("receive", "received", "receipt", "arrival", "arrived", "arrive", "ingest", "ingested", "ingestion"),
        *("append", "appended", "kafka", "load", "loaded", "insert", "inserted", "process", "processed"),
        *("processing", "stored", "server"),
    )
)
OTHER_TIME_WORDS = frozenset(
    (
        *(
            "birth",
            "birthday",
            "born",
            "expire",
            "expires",
            "expired",
            "expiry",
            "expiration",
            "valid",
            "validity",
        ),
        *("update", "updated", "deliver", "delivered", "delivery", "due", "end", "ended", "ends", "finish"),
        *("finished", "delete", "deleted", "paid", "ship", "shipped", "shipping"),
    )
)
_TIME_WORDS = frozenset(
    (
        *(
            "time",
            "times",
            "timestamp",
            "ts",
            "at",
            "date",
            "dates",
            "datetime",
            "day",
            "dt",
            "epoch",
            "when",
            "utc",
        ),
        *("unix", "millis", "msec", "datum", "zeit", "zeitstempel", "fecha", "hora"),
    )
)
DATE_WORDS = frozenset(("date", "day", "dt", "datum", "fecha"))
CLOCK_WORDS = frozenset(("time", "clock", "hour", "hours", "hr", "zeit", "uhrzeit", "hora"))
_COUNT_WORDS = frozenset(
    (
        *("bytes", "byte", "octets", "packets", "phone", "telephone", "tel", "mobile", "fax", "count", "counts"),
        *("counter", "total", "sum", "size", "length", "amount", "price", "cost", "cents", "balance", "revenue"),
        *(
            "quantity",
            "qty",
            "id",
            "ids",
            "uid",
            "number",
            "num",
            "no",
            "nr",
            "account",
            "zip",
            "postcode",
            "code",
        ),
        *("version", "serial", "sequence", "seq", "offset", "lsn", "requests", "hits", "visits", "value", "hash"),
        *("port", "isbn", "ean", "sku", "barcode", "ssn"),
    )
)
_JOINED = re.compile(r"(.+?)(timestamp|datetime|time|date|at|ts|ms)")
_KNOWN_WORDS = EVENT_WORDS | ARRIVAL_WORDS | OTHER_TIME_WORDS | {"end", "local", "server", "log"}


def words_of(path: str) -> tuple[str, ...]:
    """Return the words of a path in lower case: `source.createdAt_ms` has source, created, at, and ms.

    Two known words without a separator, such as `createdat`, are two words.
    """
    separate = re.sub(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", path)
    return tuple(part for word in re.findall(r"[^\W\d_]+", separate) for part in _split_joined(word.lower()))


def _split_joined(word: str) -> tuple[str, ...]:
    match = _JOINED.fullmatch(word)
    return (match[1], match[2]) if match and match[1] in _KNOWN_WORDS else (word,)


def has_word(path: str, words: frozenset[str]) -> bool:
    """Return whether one of the words is in a path."""
    return not words.isdisjoint(words_of(path))


def is_named_time(column: ColumnProfile) -> bool:
    """Return whether the name of a column says that it holds times."""
    words = words_of(column.path.rpartition(".")[2]) or words_of(column.path)
    return not _TIME_WORDS.isdisjoint(words) and _COUNT_WORDS.isdisjoint(words)


def is_named_count(column: ColumnProfile) -> bool:
    """Return whether the name of a column says that it holds counts, identifiers, or amounts, and no times."""
    words = words_of(column.path.rpartition(".")[2])
    return not _COUNT_WORDS.isdisjoint(words) and _TIME_WORDS.isdisjoint(words)
