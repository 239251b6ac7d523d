"""Empty, damaged, vanished, and repeated raw files, written by other tools than backstream's."""

from __future__ import annotations

import bz2
import gzip
import re
import shutil
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
from backstream.errors import ContractError, QualityError, StorageError
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.inputs.prepared_batches import PreparedFiles
from backstream.workflow.runners import SparkRunner

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
        return prepare_source(
            self.definition(settings), Home(self.folder / "home"), SparkRunner(lambda: self.spark), note
        )


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
    for name in ("b.tar", "c.zip", "_SUCCESS"):
        (source.data / name).write_bytes(b"other")
    plan = backstream.plan(source.definition(), *RANGE, home=tmp_path / "home", allow_unsealed=True)
    suffixes = ".json, .jsonl, .ndjson, .log, .txt"
    assert [note for note in describe_inputs(plan) if note[0] == "No data"] == [
        ("No data", f"1 file with a name that begins with _ or .: {source.data}/_SUCCESS"),
        (
            "No data",
            f"2 files with another suffix than {suffixes}: {source.data}/b.tar, {source.data}/c.zip",
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
