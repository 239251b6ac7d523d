"""Empty, damaged, vanished, and repeated raw files, written by other tools than backstream's."""

from __future__ import annotations

import bz2
import gzip
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.prepared.events import make_events, sums_by_hour
from tests.prepared.test_prepared import SOURCES, published, write_definition

import backstream
from backstream.errors import ContractError, PlanError, QualityError, StorageError
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.workflow.checks.check_definition import check_definition
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.inputs.prepared_batches import PreparedFiles

pytestmark = pytest.mark.slow

EVENTS = make_events(40)


@dataclass(frozen=True)
class Source:
    """A source of one format with a file of 20 records."""

    spark: SparkSession
    folder: Path
    kind: str
    data: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", self.folder / "data")
        self.write(f"a-{SOURCES[self.kind][1]}", 0)

    def write(self, name: str, first: int = 20) -> Path:
        """Write 20 records with the tool of the format."""
        SOURCES[self.kind][0](self.data, name, EVENTS[first : first + 20])
        return self.data / name

    def definition(self, settings: str = "") -> Path:
        """Write the definition with further settings of the source."""
        amount = "payload.amount" if self.kind.startswith("json") else "amount"
        return write_definition(self.folder, f"{settings}\n{SOURCES[self.kind][2]}", amount)

    def prepare(self, settings: str = "", note: Callable[[str], None] = lambda _: None) -> PreparedFiles | None:
        """Prepare the new files; `note` is called after they are listed."""
        return prepare_source(self.definition(settings), Home(self.folder / "home"), lambda: self.spark, note)


SKIP = 'corrupt_files = "skip"'
PLAIN = b"these lines are not compressed\n" * 10


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def cut(compress: Callable[[bytes], bytes], content: bytes) -> bytes:
    whole = compress(content)
    return whole[: len(whole) * 2 // 3]


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        ("json", "b.json", b""),
        ("json", "b.json.gz", b""),
        ("json", "b.json.gz", gzip.compress(b"", mtime=0)),
        ("csv", "b.csv", b""),
        ("csv", "b.csv", b"at,received_s,partition,offset,user,amount\n"),
        ("csv", "b.csv.gz", gzip.compress(b"at,user", mtime=0)),
        ("avro", "b.avro", b""),
        ("orc", "b.orc", b""),
    ],
)
def test_an_empty_file_has_no_records(
    kind: str, name: str, content: bytes, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, kind)
    (source.data / name).write_bytes(content)
    prepared = source.prepare()
    assert prepared is not None
    assert (prepared.files, prepared.counts.read, prepared.counts.unreadable) == (2, 20, 0)


@pytest.mark.parametrize(
    ("kind", "name", "damage", "reason"),
    [
        ("json", "b.json.gz", partial(cut, gzip.compress), "EOFException"),
        ("json", "b.json.bz2", partial(cut, bz2.compress), "unexpected end of stream"),
        ("json", "b.json.zst", partial(cut, zstd), "Truncated source"),
        ("json", "b.json.gz", lambda _: PLAIN, "not a gzip file"),
        ("json", "b.json.bz2", lambda _: PLAIN, "not a BZip2 file"),
        ("json", "b.json.zst", lambda _: PLAIN, "Unknown frame descriptor"),
        ("csv", "b.csv.gz", partial(cut, gzip.compress), ""),
        ("avro", "b.avro", partial(cut, bytes), ""),
        ("orc", "b.orc", partial(cut, bytes), ""),
        ("int96", "b.parquet", partial(cut, bytes), ""),
        ("int96", "b.parquet", lambda _: b"", "0 bytes"),
    ],
)
def test_a_damaged_file_is_named_or_left_out_whole(
    kind: str, name: str, damage: Callable[[bytes], bytes], reason: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, kind)
    whole = source.write("whole").rename(tmp_path / "whole")
    bad = source.data / name
    bad.write_bytes(damage(whole.read_bytes()))
    with pytest.raises(
        ContractError, match=f"^cannot read input file {bad}: .*{reason}.*orders.toml, source.path"
    ):
        source.prepare()
    prepared = source.prepare(SKIP)
    assert prepared is not None
    assert (prepared.counts.read, prepared.counts.unreadable) == (20, 0)


def test_a_plain_text_that_is_cut_keeps_its_complete_lines(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(spark, tmp_path, "json")
    file = source.write("b.json")
    file.write_bytes(file.read_bytes()[:-10])
    prepared = source.prepare()
    assert prepared is not None
    assert (prepared.counts.read, prepared.counts.unreadable) == (40, 1)


def lz4_frame(content: bytes) -> bytes:
    return subprocess.run(["lz4", "-c"], input=content, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("kind", "name", "compress", "reason"),
    [
        pytest.param(
            *(
                "json",
                "b.json.lz4",
                lz4_frame,
                "it is an LZ4 frame, and Spark reads only the blocks that Hadoop writes",
            ),
            marks=pytest.mark.skipif(shutil.which("lz4") is None, reason="no command lz4 on this machine"),
        ),
        ("json", "b.json.snappy", lambda _: b"\xff\x06\x00\x00sNaPpY", "it is a Snappy frame"),
        ("csv", "b.csv.lz4", bytes, "the header of a CSV file with the suffix .lz4 cannot be read"),
        ("csv", "b.csv.snappy", bytes, "the header of a CSV file with the suffix .snappy cannot be read"),
    ],
)
def test_a_compression_that_spark_cannot_read_is_refused_by_check_and_plan(
    kind: str, name: str, compress: Callable[[bytes], bytes], reason: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, kind)
    bad = source.data / name
    bad.write_bytes(compress(source.write("whole").read_bytes()))
    (problem,) = check_definition(source.definition(), Home(tmp_path / "home")).problems
    assert isinstance(problem, PlanError)
    assert str(problem).startswith(f"cannot read input file {bad}: {reason}")
    assert str(problem).endswith("compress it with gzip, bzip2, or zstd")
    with pytest.raises(ContractError, match=f"^cannot read input file {bad}: {reason}"):
        source.prepare()


@pytest.mark.parametrize("codec", ["lz4", "snappy", "deflate", "bzip2", "gzip"])
def test_json_that_spark_compressed_is_read(codec: str, spark: SparkSession, tmp_path: Path) -> None:
    source = Source(spark, tmp_path, "json")
    plain = source.write("plain").rename(tmp_path / "plain")
    spark.read.text(str(plain)).coalesce(1).write.option("compression", codec).text(str(tmp_path / "out"))
    (written,) = (tmp_path / "out").glob("part-*")
    written.rename(source.data / f"b.json{written.suffix}")
    prepared = source.prepare()
    assert prepared is not None
    assert (prepared.counts.read, prepared.counts.unreadable) == (40, 0)


@pytest.mark.parametrize("kind", ["json", "csv", "avro"])
def test_a_file_that_vanishes_while_it_is_prepared_is_named(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, kind)
    file = source.write(f"b-{SOURCES[kind][1]}")
    message = f"^input file {file} was removed while it was prepared .*\n\nhint: repeat the command"
    with pytest.raises(StorageError, match=message):
        source.prepare(SKIP, lambda _: file.unlink())
    assert StorageError.is_retryable
    prepared = source.prepare(SKIP)
    assert prepared is not None
    assert prepared.counts.read == 20


def test_a_file_that_appears_meanwhile_is_read_by_the_next_preparation(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path, "json")

    def deliver(_: str) -> None:
        source.write("b.json")

    first = source.prepare(note=deliver)
    assert first is not None
    assert (first.files, first.counts.read) == (1, 20)
    second = source.prepare()
    assert second is not None
    assert (second.files, second.counts.read) == (1, 20)


RANGE = ("2024-03-01", "2024-03-03")


def test_a_planned_run_does_not_need_the_raw_files(spark: SparkSession, tmp_path: Path) -> None:
    source, home = Source(spark, tmp_path, "json"), Home(tmp_path / "home")
    plan = backstream.plan(source.definition(), *RANGE, home=home.path, allow_unsealed=True)
    shutil.rmtree(source.data)
    backstream.execute(plan)
    assert published(home, "payload_user_id") == sums_by_hour(EVENTS[:20])


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_second_delivery_without_a_sequence_names_both_files(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    source, home = Source(spark, tmp_path, kind), Home(tmp_path / "home")
    first, second = source.data / f"a-{SOURCES[kind][1]}", source.data / f"b.{kind}"
    shutil.copy(first, second)
    for name in ("c", "d"):  # files without records are equal, too
        (source.data / f"{name}.{kind}").write_text(
            "at,received_s,partition,offset,user,amount\n" * (kind == "csv")
        )
    definition = source.definition()
    definition.write_text(re.sub(r'(?m)^(partition|sequence) = "\w+"$', "", definition.read_text(), count=2))

    with pytest.raises(QualityError) as caught:
        backstream.run(definition, *RANGE, home=home.path, allow_unsealed=True)

    assert str(caught.value).startswith('failed the check "no input file has the content of another one"; ')
    assert f"\n  equal files: {second} has the content of {first}\n" in str(caught.value)
    second.unlink()
    backstream.run(definition, *RANGE, home=home.path, allow_unsealed=True, replan=True)
    key = "payload_user_id" if kind == "json" else "user"
    assert published(home, key) == sums_by_hour(EVENTS[:20])


def test_files_with_other_endings_are_counted_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(spark, tmp_path, "json")
    for name in ("b.json.xz", "c.zip", "_SUCCESS"):
        (source.data / name).write_bytes(b"other")
    plan = backstream.plan(source.definition(), *RANGE, home=tmp_path / "home", allow_unsealed=True)
    suffixes = ".json, .jsonl, .ndjson, .log, .txt"
    assert [note for note in describe_inputs(plan) if note[0] == "No data"] == [
        ("No data", f"1 file with a name that begins with _ or .: {source.data}/_SUCCESS"),
        (
            "No data",
            f"2 files with another suffix than {suffixes}: {source.data}/b.json.xz, {source.data}/c.zip",
        ),
    ]


def test_a_file_that_is_delivered_twice_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    source, home = Source(spark, tmp_path, "json"), Home(tmp_path / "home")
    shutil.copy(source.data / "a-events.json", source.data / "b.json")
    with pytest.raises(QualityError, match=r"^20 positions occur more than once \(0 0 2 times"):
        backstream.run(source.definition(), *RANGE, home=home.path, allow_unsealed=True)
    definition = source.definition('deduplicate_on = ["partition", "offset"]')
    backstream.run(definition, *RANGE, home=home.path, allow_unsealed=True)
    assert published(home, "payload_user_id") == sums_by_hour(EVENTS[:20])
