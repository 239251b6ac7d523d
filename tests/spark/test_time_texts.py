"""Spark, Arrow, and plain Python read the same texts as the same instants."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.definition.test_time_texts import LOCAL, NO_INSTANTS, ZONED

from backstream.definition.time_patterns import parse_pattern, reason_against_pattern
from backstream.definition.time_texts import parse_iso
from backstream.native.preparation.instants import instants_of_texts
from backstream.native.preparation.task import UnusualLinesError, UnusualRowsError
from backstream.spark.time_texts import instant_of_text

FIRST_PARTS = (
    "2024-03-01",
    "2024-02-30",
    "20240301",
    "2024-10-27",
    "2024-03-31",
    "1900-01-01",
    "2024-3-1",
    "2024-13-01",
)
SECOND_PARTS = ("", "T", " ", "t", "  ", "_")
TIMES = (
    *("08:00:00", "08:00", "0800", "080000", "02:30:00", "24:00", "24:00:00", "24:00:01", "2400", "23:59:60"),
    *(
        "08",
        "8:00",
        "08:00:00.5",
        "08:00:00,123",
        "08:00:00.123456789",
        "08:00:00.",
        "080000.5",
        "25:00",
        "08:60:00",
    ),
)
ZONES = (
    *(
        "",
        "Z",
        "z",
        "+01:00",
        "-0330",
        "+05",
        "+18:00",
        "+18:30",
        "+1",
        " UTC",
        "UTC",
        " GMT",
        " +0000 UTC",
        "+25:00",
    ),
    *(
        "[Europe/Berlin]",
        "+01:00[Europe/Berlin]",
        " America/New_York",
        " Europe/Nowhere",
        " CET",
        "Z[UTC]",
        "[UTC]",
    ),
    *(" PST", "NZ", "GMT+1", " Z", " -0800 PST", "Africa/Brazzaville"),
)
PATTERNS = (
    *(
        "yyyy-MM-dd HH:mm:ss",
        "yyyy-MM-dd HH:mm:ss.SSS",
        "yyyy-MM-dd'T'HH:mm:ssXXX",
        "yyyy-MM-dd'T'HH:mm:ss[.SSS]'Z'",
    ),
    *("dd/MM/yyyy HH:mm", "M/d/yyyy h:mm:ss a", "MM/dd/yy hh:mm a", "dd.MM.yyyy", "yyyyMMddHHmmss", "yyyyMMdd"),
    *("dd/MMM/yyyy:HH:mm:ss Z", "d MMMM yyyy HH:mm:ss", "MMM d yyyy HH:mm:ss", "yyyy-DDD", "yyyyDDD HH:mm"),
    *("yyyy-MM-dd[ HH:mm[:ss]][XXX]", "yyyy-MM-dd HH:mm[:ss[.SSSSSS]][ ][XX][X]", "y-M-d H:m:s", "yy/M/d H:m"),
    *("yyyyMMdd'T'HHmmssSSS", "yyyy-MM-dd HH:mm:ss x", "yyyy-MM-dd HH:mm xxx", "yyyy-MM-dd HH:mm:ss VV"),
    *(
        "yyyy-MM-dd HH 'o''clock'",
        "HH:mm:ss dd-MM-yyyy",
        "yyyy/M/d a h:mm",
        "yyyy-MM-dd HH:mm:ss,SSS",
        "yyMMddHHmmss",
    ),
    *(
        "yyyy-MM-dd HH:mm:ss z",
        "yyyy-MM-dd HH:mm ZZZZZ",
        "yyyy-MM-dd HH:mm O",
        "dd-LLL-yyyy",
        "yyyy-MM-dd HH:mm a",
    ),
    *(
        "yyyyMMddHHmmss.SSS",
        "yyyy-MM-dd HH:mm:ss X",
        "yyyy-MM-dd HH:mm:ss XXXX",
        "yyyyMMdd HHmmss'UTC'",
        "Hmm yyyy-M-d",
    ),
)
VALUES = {
    "y": ("2024", "2023", "24", "12024", "999"),
    "M": ("03", "3", "12", "13", "Mar", "MARCH", "September", "Sept", "0"),
    "d": ("01", "1", "31", "30", "29", "0"),
    "D": ("061", "61", "366", "1", "001", "367"),
    "H": ("08", "8", "0", "23", "24", "12"),
    "h": ("08", "8", "12", "0", "13"),
    "m": ("00", "5", "59", "60"),
    "s": ("00", "5", "59", "60", "61"),
    "S": ("1", "123", "123456", "1234567"),
    "a": ("AM", "pm", "PM", "a"),
}
NAMES = {"MMM": ("Mar", "dec", "MAY"), "MMMM": ("March", "december", "MAY"), "a": ("AM", "pm", "PM")}
QUOTED = re.compile("'((?:[^']|'')*)'")
LAST_US = 253_402_300_800_000_000
"""The end of the year 9999."""
OFFSETS = (
    "Z",
    "z",
    "+01",
    "+0100",
    "+01:00",
    "-03:30",
    "+18:00",
    "+19:00",
    "+1",
    "UTC",
    "GMT",
    "GMT+1",
    *("PST", "EST", "IST", "CET"),
    "Europe/Berlin",
    "+00:00",
    "+0000",
    "+00",
)


def texts_of_iso() -> list[str]:
    made = [
        f"{first}{second}{time}{zone}"
        for first in FIRST_PARTS
        for second in SECOND_PARTS
        for time in TIMES
        for zone in ZONES
    ]
    return [*ZONED, *LOCAL, *NO_INSTANTS, *made]


def texts_of_pattern(pattern: str, maker: random.Random) -> Iterator[str]:
    """Yield texts that have a pattern, or nearly."""
    for number in range(240):
        is_usual = number % 3 > 0  # others have wrong values
        text, rest = "", pattern
        while rest:
            letter = rest[0]
            count = len(rest) - len(rest.lstrip(letter))
            if letter == "'":
                literal = QUOTED.match(rest)
                assert literal
                text, rest = text + literal[1].replace("''", "'"), rest[literal.end() :]
                continue
            rest = rest[count if letter.isalpha() else 1 :]
            name = "M" if letter == "L" else letter
            if name in "XxZzVO":
                text += maker.choice(OFFSETS)
            elif name in VALUES:
                sure = [each for each in VALUES[name] if len(each) == count]
                values = (NAMES.get(name * count) or sure or VALUES[name]) if is_usual else VALUES[name]
                text += maker.choice(values[:3] if is_usual else values)
            elif letter == "[" and maker.random() < 0.3:
                rest = rest.partition("]")[2]
            elif letter not in "[]":
                text += letter
        yield text


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_spark_reads_the_iso_texts_that_python_reads(zone: str | None, spark: SparkSession) -> None:
    texts = texts_of_iso()
    rows = spark.createDataFrame(pa.table({"text": texts}))
    local = F.to_utc_timestamp(F.timestamp_micros("local"), zone) if zone else F.timestamp_micros("local")
    found = rows.select(F.unix_micros(instant_of_text(F.col("text"), None, zone)).alias("us")).toArrow()
    written = [parse_iso(text) for text in texts]
    if zone:
        micros = [None if each is None or each.has_zone else each.epoch_us for each in written]
        shifted = spark.createDataFrame(pa.table({"local": pa.array(micros, pa.int64())}))
        in_utc = shifted.select(F.unix_micros(local).alias("us")).toArrow()["us"].to_pylist()
    else:
        in_utc = [None if each is None else each.epoch_us for each in written]
    expected = [
        None if each is None else each.epoch_us if each.has_zone else utc
        for each, utc in zip(written, in_utc, strict=True)
    ]
    assert differences(texts, found["us"].to_pylist(), expected) == []


def read_natively(*texts: str) -> int | None:
    """Return the instant of the last text; None if Spark must read the texts."""
    try:
        instants = instants_of_texts(pa.array(texts))
    except (UnusualRowsError, UnusualLinesError):
        return None
    return int(instants[-1].value)


def test_arrow_reads_no_text_in_another_way_than_python() -> None:
    texts = texts_of_iso()
    found = [read_natively(text, text) for text in texts]
    written = [parse_iso(text) for text in texts]
    pairs = zip(found, written, strict=True)
    expected = [None if own is None else each.epoch_us if each else None for own, each in pairs]
    assert differences(texts, found, expected) == []
    assert sum(each is not None for each in found) > 200


@pytest.mark.parametrize(
    "form", ["2024-03-01T08:00:00+{}:{}", "2024-03-01T08:00-{}{}", "2024-03-01T08:00:00.5+{}"]
)
def test_arrow_checks_offsets_in_texts_that_are_alike(form: str) -> None:
    texts = [form.format(f"{hour:02}", minute) for hour in range(100) for minute in ("00", "30", "59", "60", "99")]
    for first in (form.format("00", "00"), form.format("11", "00"), form.format("18", "00")):
        found = [read_natively(first, text) for text in texts]
        written = [parse_iso(text) for text in texts]
        assert differences(texts, found, [each.epoch_us if each else None for each in written]) == []


def test_spark_accepts_the_patterns_that_have_no_reason_against_them(spark: SparkSession) -> None:
    maker = random.Random(11)  # noqa: S311 - not for secrets
    runs = [letter * count for letter in "yMLdDHhmsSaXxZzVOEFGQqwWYuekKABnNptTcf-:[]" for count in range(1, 6)]
    dates = ("yyyy-MM-dd ", "dd/MM/yy", "yyyyDDD", "d MMM y'T'", "[HH:]MMMM d yyyy")
    made = {
        maker.choice(dates) + "".join(maker.choice(runs) for _ in range(maker.randrange(4))) for _ in range(20_000)
    }
    accepted = sorted(pattern for pattern in made if reason_against_pattern(pattern) is None)
    assert len(accepted) > 400
    rows = spark.createDataFrame(pa.table({"pattern": accepted}))
    assert rows.where(F.try_to_timestamp(F.lit("x"), "pattern").isNotNull()).collect() == []


def differences(
    texts: Sequence[object], found: Sequence[int | None], expected: Sequence[int | None]
) -> Sequence[object]:
    rows = zip(texts, found, expected, strict=True)
    return [(text, own, other) for text, own, other in rows if own != other][:20]


def test_spark_reads_the_texts_that_python_reads_with_each_pattern(spark: SparkSession) -> None:
    maker = random.Random(7)  # noqa: S311 - not for secrets
    pairs = [(pattern, text) for pattern in PATTERNS for text in texts_of_pattern(pattern, maker)]
    assert {pattern: reason for pattern in PATTERNS if (reason := reason_against_pattern(pattern))} == {}
    rows = spark.createDataFrame(
        pa.table({"pattern": [each for each, _ in pairs], "text": [each for _, each in pairs]})
    )
    by_pattern = [
        F.when(F.col("pattern") == each, instant_of_text(F.col("text"), each, None)) for each in PATTERNS
    ]
    found = rows.select(F.unix_micros(F.coalesce(*by_pattern)).alias("us")).toArrow()["us"].to_pylist()
    until_9999 = [None if each and each > LAST_US else each for each in found]
    written = [parse_pattern(pattern, text) for pattern, text in pairs]
    assert differences(pairs, until_9999, [each.epoch_us if each else None for each in written]) == []
    read = {pattern for (pattern, _), each in zip(pairs, written, strict=True) if each}
    assert read == {*PATTERNS}
