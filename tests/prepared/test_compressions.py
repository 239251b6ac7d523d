"""`init`, `check`, and a run read the same compressions and bytes, or refuse them with the same reason."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from tests.prepared.random_files import SOURCES, Source
from tests.prepared.random_tables import AVRO_CODECS, TABLES
from tests.prepared.test_random_files import prepare, require_refusal, write_definition

import backstream
from backstream.errors import BackstreamError
from backstream.runs.home import Home
from backstream.source.archive.evidence import examine_archive
from backstream.workflow.checks.check_definition import check_definition
from backstream.workflow.checks.check_sample import check_sample

pytestmark = pytest.mark.slow

ROWS = [
    {"id": number, "k": "QQQQ" if number else "good", "amount": 1.5, "ts": f"2024-03-01T0{number}:00:00Z"}
    for number in range(5)
]
LINES = "".join(f'{{"id": 1, "k": "a", "amount": 2, "ts": "2024-03-01T0{hour}:00:00Z"}}\n' for hour in range(5))
CELLS = "id,k,amount,ts\n" + "".join(f"1,a,2,2024-03-01T0{hour}:00:00Z\n" for hour in range(5))
BY_NAME = {source.name: source for source in (*SOURCES, *TABLES)}


def outcomes(spark: SparkSession, folder: Path, source: Source, name: str, content: bytes) -> list[str | int]:
    """Return the number of records, or the refusal, of `init`, `check`, and a preparation for one file."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / name).write_bytes(content)
    definition, home = write_definition(folder, source, "auto"), Home(folder / "home")
    definition.write_text(definition.read_text().replace('corrupt_files = "skip"\n', ""))

    def init() -> int:
        return len(examine_archive(str(folder / "data"), None).sample.records)

    def check() -> int:
        for problem in check_definition(definition, home).problems:
            raise problem
        return check_sample(spark, definition, 1_000, home).read

    def run() -> int:
        found, _ = prepare(definition, home, spark)
        return sum(sum(rows.values()) + sum(reasons.values()) for rows, reasons in found.values())

    return [outcome(act, folder) for act in (init, check, run)]


def outcome(act: Callable[[], int], folder: Path) -> str | int:
    """Return the result of a call, or its refusal."""
    try:
        return act()
    except BackstreamError as error:
        require_refusal(error, folder)
        return str(error)


def avro_rows(codec: str = "null") -> bytes:
    """Return an Avro file."""
    kinds = {"id": "long", "k": "string", "amount": "double", "ts": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    stream = io.BytesIO()
    fastavro.writer(stream, {"type": "record", "name": "event", "fields": fields}, ROWS, codec=codec)
    return stream.getvalue()


def parquet_rows() -> bytes:
    """Return a Parquet file that is not compressed."""
    stream = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(ROWS), stream, compression="none", use_dictionary=False, write_statistics=False
    )
    return stream.getvalue()


def orc_rows() -> bytes:
    """Return an ORC file that is not compressed."""
    stream = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(ROWS), stream, compression="uncompressed")
    return stream.getvalue()


@pytest.mark.parametrize("codec", AVRO_CODECS)
def test_each_compression_of_avro_is_read_by_all(codec: str, spark: SparkSession, tmp_path: Path) -> None:
    assert outcomes(spark, tmp_path, BY_NAME["avro"], "a.avro", avro_rows(codec)) == [5, 5, 5]


def test_a_compression_of_avro_that_spark_lacks_is_refused_by_all(spark: SparkSession, tmp_path: Path) -> None:
    content = avro_rows().replace(b"\x08null", b"\x06lz4")

    found = outcomes(spark, tmp_path, BY_NAME["avro"], "a.avro", content)

    reason = "Spark cannot read its compression 'lz4': write it with deflate or zstandard"
    assert [reason in str(each) for each in found] == [True, True, True]


@pytest.mark.parametrize(("name", "text"), [("lines", LINES), ("csv", CELLS)])
@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".zst", lambda content: pa.compress(content, codec="zstd", asbytes=True)),
    ],
)
def test_each_checked_compression_of_text_is_read_by_all(
    name: str, text: str, suffix: str, compress: Callable[[bytes], bytes], spark: SparkSession, tmp_path: Path
) -> None:
    source = BY_NAME[name]
    found = outcomes(spark, tmp_path, source, f"a{source.suffix}{suffix}", compress(text.encode()))
    assert found == [5, 5, 5]


@pytest.mark.parametrize(("name", "text"), [("lines", LINES), ("csv", CELLS)])
@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".deflate", zlib.compress),
        (".xz", lzma.compress),
        (".lz4", lambda content: pa.compress(content, codec="lz4", asbytes=True)),
        (".snappy", lambda content: pa.compress(content, codec="snappy", asbytes=True)),
        (".snappy", bytes),
    ],
)
def test_another_compression_of_text_is_refused_by_all_with_one_sentence(
    name: str, text: str, suffix: str, compress: Callable[[bytes], bytes], spark: SparkSession, tmp_path: Path
) -> None:
    source = BY_NAME[name]
    found = outcomes(spark, tmp_path, source, f"a{source.suffix}{suffix}", compress(text.encode()))
    reason = f"backstream reads no text with the suffix {suffix}: compress it with gzip, bzip2, or zstd"
    assert [reason in str(each) for each in found] == [True, True, True]


BINARY = [("avro", avro_rows), ("parquet", parquet_rows), ("orc", orc_rows)]


@pytest.mark.parametrize(("name", "make"), BINARY)
def test_a_text_that_is_not_utf_8_is_counted_in_quarantine(
    name: str, make: Callable[[], bytes], spark: SparkSession, tmp_path: Path
) -> None:
    source = BY_NAME[name]
    content = make().replace(b"QQQQ", b"Q\xff\xfeQ")

    _, checked, _ = outcomes(spark, tmp_path, source, f"a{source.suffix}", content)
    definition, home = tmp_path / "events.toml", Home(tmp_path / "home")

    assert checked == 5
    ((rows, reasons),) = prepare(definition, home, spark)[0].values()
    assert reasons == {"malformed_record": 4}
    assert [row[1] for row in rows] == ["good"]


@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.usefixtures("spark")
def test_a_parquet_file_in_place_whose_text_is_not_utf_8_is_refused(engine: str, tmp_path: Path) -> None:
    source = Source("in place", "", ".parquet", lambda _: b"", BY_NAME["parquet"].read)
    (tmp_path / "data").mkdir()
    table = pa.Table.from_pylist(ROWS)
    times = pa.array([1_709_251_200_000_000 + number for number in range(5)], pa.timestamp("us", "UTC"))
    path = tmp_path / "data/a.parquet"
    pq.write_table(
        table.set_column(3, "ts", times), path, compression="none", use_dictionary=False, write_statistics=False
    )
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ"))
    definition = write_definition(tmp_path, source, engine)

    with pytest.raises(BackstreamError, match=r"column 'k' has bytes that are not UTF-8 in file:") as raised:
        backstream.run(definition, "2024-03-01", "2024-03-02", home=tmp_path / "home", allow_unsealed=True)

    require_refusal(raised.value, tmp_path)
    assert "set source.prepare = true" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("avro", avro_rows()[:4] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + avro_rows()[5:]),
        ("avro", avro_rows().replace(b'"long"', b'"lonh"')),
        ("avro", b"Obj\x01"),
        ("parquet", parquet_rows()[:-20]),
        ("parquet", b""),
        ("orc", orc_rows()[:-5]),
        ("orc", b"ORC"),
        ("parquet", avro_rows()),
        ("avro", parquet_rows()),
    ],
)
def test_a_damaged_header_or_footer_is_refused_by_all(
    name: str, content: bytes, spark: SparkSession, tmp_path: Path
) -> None:
    source = BY_NAME[name]
    found = outcomes(spark, tmp_path, source, f"a{source.suffix}", content)
    assert [isinstance(each, str) for each in found[1:]] == [True, True]


def test_brotli_is_refused_before_spark_fails(spark: SparkSession, tmp_path: Path) -> None:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), stream, compression="brotli")

    found = outcomes(spark, tmp_path, BY_NAME["parquet"], "a.parquet", stream.getvalue())

    assert "Spark cannot read its compression brotli: write it with zstd or snappy" in str(found[2])


def test_seconds_and_nanoseconds_in_two_files_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, unit in enumerate(("s", "us", "ns")):
        times = pa.array([1_709_251_200], pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
        table = pa.Table.from_pylist(ROWS[:1]).set_column(3, "ts", times)
        pq.write_table(table, tmp_path / f"data/{number}.parquet")

    found, _ = prepare(
        write_definition(tmp_path, BY_NAME["parquet instants"], "auto"), Home(tmp_path / "home"), spark
    )

    times_us = {row[3] for rows, _ in found.values() for row in rows}
    assert (len(found), times_us) == (3, {1_709_251_200_000_000})
