"""Files are read and written by their location, on a disk or in an object store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.store import BUCKET, Store

from backstream.errors import PlanError, StorageError
from backstream.runs.plan import InputFile
from backstream.source.input_versions import require_input_files
from backstream.storage.stores import NO_STORES, Stores, is_below, is_in_store
from backstream.variables import WAREHOUSE_VARIABLE


def test_a_location_is_a_path_or_an_address() -> None:
    assert [is_in_store(each) for each in ("s3://b/k", "gs://b/k", "/b/k", "file:///b/k")] == [
        True,
        True,
        False,
        False,
    ]
    assert is_below("s3://b/k/x", "s3://b/k")
    assert is_below("/b/k/x/y", "/b/k/")
    assert not is_below("s3://b/kx", "s3://b/k")
    assert not is_below("/b/k", "")


@pytest.fixture
def stores(s3: Store, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Return the stores of a process that has the address of an empty warehouse."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    return Stores.from_environment()


def write_numbers(path: Path, rows: int) -> Path:
    pq.write_table(pa.table({"n": list(range(rows))}), path)
    return path


def test_a_file_is_the_same_wherever_it_is(tmp_path: Path, stores: Stores) -> None:
    path, location = write_numbers(tmp_path / "n.parquet", 3), f"{stores.warehouse}/n.parquet"

    stores.upload(path, location)
    stores.download(location, tmp_path / "copy")

    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert stores.read_footer(location) == stores.read_footer(str(path)) == NO_STORES.read_footer(str(path))
    found = stores.find_versions([location, str(path), f"{location}x", f"{path}x"])
    assert [version and version.size_bytes for version in found] == [path.stat().st_size] * 2 + [None] * 2
    with pytest.raises(FileNotFoundError):
        stores.read_footer(f"{location}x")
    stores.remove([location, f"{location}x"])
    assert stores.find_versions([location]) == [None]


def test_the_warehouse_has_its_own_keys(
    tmp_path: Path, s3: Store, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"{stores.warehouse}/n.parquet"
    stores.upload(write_numbers(tmp_path / "n.parquet", 3), location)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)

    mixed = Stores.from_environment()

    assert mixed.find_versions([location])[0] is not None
    with pytest.raises(StorageError, match=rf"^cannot read s3://{BUCKET}/elsewhere: .*ACCESS_DENIED"):
        mixed.find_versions([f"s3://{BUCKET}/elsewhere"])
    assert s3.secret not in repr(mixed)
    monkeypatch.delenv(WAREHOUSE_VARIABLE)
    assert Stores.from_environment().warehouse == ""


def test_a_replaced_object_is_another_version(tmp_path: Path, stores: Stores) -> None:
    location = f"{stores.warehouse}/n.parquet"
    stores.upload(write_numbers(tmp_path / "n.parquet", 3), location)
    (version,) = stores.find_versions([location])
    assert version is not None
    planned = InputFile(location, 3, version.size_bytes, modified_ms=version.modified_ms)
    require_input_files([planned], "run")

    stores.upload(write_numbers(tmp_path / "n.parquet", 1_000), location)
    size_bytes = (tmp_path / "n.parquet").stat().st_size
    with pytest.raises(PlanError) as changed:
        require_input_files([planned], "run")
    assert f"changed: {location} had {version.size_bytes:,} bytes, has {size_bytes:,}" in str(changed.value)

    stores.remove([location])
    with pytest.raises(PlanError, match=f"removed: {location}"):
        require_input_files([planned], "run")
