"""A home in an object store has a copy on each machine."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
from tests.lake.store import BUCKET, Store

from backstream.errors import SpecError, StorageError
from backstream.runs.home import Home, RunFolder
from backstream.runs.store import Runs
from backstream.storage.files import remove_file, write_text
from backstream.storage.home_copy import HomeCopy, parse_home_address
from backstream.storage.stores import FileVersion, Stores
from backstream.variables import CACHE_VARIABLE, CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE


@pytest.fixture
def address(s3: Store, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Return the address of an empty home; this process has its keys."""
    monkeypatch.delenv(WAREHOUSE_VARIABLE, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    return f"s3://{BUCKET}/homes/{request.node.name.partition('[')[0]}"


class Machines:
    """Machines that share nothing but a store: each has its own cache."""

    def __init__(self, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address, self.folder, self._patch = address, folder, monkeypatch

    def use(self, machine: str) -> None:
        """Act on a machine from now on."""
        self._patch.setenv(CACHE_VARIABLE, str(self.folder / machine))

    def home(self, machine: str) -> Home:
        """Return the home as a new process on a machine sees it, and act on this machine from now on."""
        self.use(machine)
        home = Home.from_location(self.address)
        HomeCopy(home.address, home.path).fetch()
        return home


@pytest.fixture
def machines(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(address, tmp_path, monkeypatch)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_written_on_one_machine_is_on_all(machines: Machines) -> None:
    written = machines.home("a").run("clicks", "r1").audit_result
    write_text(written, "first")

    seen = machines.home("b").run("clicks", "r1").audit_result
    assert seen.read_text() == "first"
    assert seen.stat().st_mtime_ns == written.stat().st_mtime_ns
    write_text(seen, "other")  # in the same second, of the same length

    machines.home("a")
    assert written.read_text() == "other"


def test_a_removed_file_is_removed_everywhere(machines: Machines) -> None:
    first = machines.home("a").dismissals("clicks")
    write_text(first / "r1.json", "{}")
    write_text(first / "r2.json", "{}")
    second = machines.home("b").dismissals("clicks")
    assert names(second) == ["r1.json", "r2.json"]

    remove_file(second / "r1.json")

    machines.home("a")
    assert names(first) == ["r2.json"]


def test_a_cache_stays_on_its_machine(machines: Machines, s3: Store) -> None:
    write_text(machines.home("a").summary("s.json"), "{}")

    assert not machines.home("b").summary("s.json").exists()
    assert not any("summaries" in key for key in s3.keys(BUCKET) if machines.address[5:] in key)


def test_only_folders_with_changes_are_listed(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write_text(machines.home("a").run("clicks", f"r{number}").report, "report")
    machines.home("b")
    write_text(machines.home("a").run("clicks", "r1").report, "new report")
    listed: list[str] = []
    list_versions = Stores.list_versions

    def record(stores: Stores, location: str) -> dict[str, FileVersion]:
        listed.append(location.removeprefix(machines.address))
        return list_versions(stores, location)

    monkeypatch.setattr(Stores, "list_versions", record)

    home = machines.home("b")

    assert home.run("clicks", "r1").report.read_text() == "new report"
    assert listed == ["/changes", "/runs/clicks/r1"]
    machines.home("b")
    assert listed[2:] == ["/changes"]


def test_the_store_keeps_one_change_per_folder(machines: Machines, s3: Store) -> None:
    folder = machines.home("a").run("clicks", "r1")
    for number in range(4):
        write_text(folder.manifest(str(number)), "{}")

    changes = [key for key in s3.keys(BUCKET) if f"{machines.address[5:]}/changes/" in key]
    assert len(changes) == 1


def test_a_crash_between_file_and_change_leaves_the_file_for_the_next_task(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machines.home("a").run("clicks", "r1")
    write_text(folder.plan, "plan")
    machines.home("b")
    machines.home("a")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HomeCopy, "_mark_change", crash)
        with pytest.raises(KeyboardInterrupt):
            write_text(folder.publication, "published")

    machines.home("b")
    seen = RunFolder.from_plan(f"{machines.address}/runs/clicks/r1/plan.json")
    assert seen.publication.read_text() == "published"


def test_machines_that_write_at_once_lose_nothing(machines: Machines) -> None:
    machines.home("b")
    home = machines.home("a")
    other = HomeCopy(home.address, machines.folder / "b" / home.path.relative_to(machines.folder / "a"))
    own = HomeCopy(home.address, home.path)

    def write(copy: HomeCopy, name: str) -> None:
        path = copy.folder / "requests" / "clicks" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{name}")
        draft.write_text(name)
        copy.send(draft, path)

    with ThreadPoolExecutor(8) as pool:
        work = [(copy, f"{copy is own}-{number}") for number in range(10) for copy in (own, other)]
        list(pool.map(lambda item: write(*item), work))
        list(pool.map(lambda copy: copy.fetch(), [own, other] * 4))

    expected = {f"{name}.json" for _, name in work}
    for copy in (own, other):
        copy.fetch()
        assert set(names(copy.folder / "requests" / "clicks")) == expected


def test_a_write_does_not_hide_the_change_of_another_machine(machines: Machines) -> None:
    first, second = machines.home("a").run("clicks", "r1"), machines.home("b").run("clicks", "r1")
    machines.use("a")
    write_text(first.report, "report")

    machines.use("b")
    write_text(second.approval, "approval")
    assert not second.report.exists()

    machines.home("b")
    assert second.report.read_text() == "report"


def test_a_fetch_does_not_undo_a_write_of_its_machine(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    machines.home("b")
    machines.home("a")
    write_text(Home.from_location(machines.address).run("clicks", "r1").report, "old")
    machines.use("b")
    report = Home.from_location(machines.address).run("clicks", "r1").report
    writer = Thread(target=write_text, args=(report, "new"))
    download_all = Stores.download_all

    def write_meanwhile(stores: Stores, targets: Mapping[str, Path]) -> None:
        download_all(stores, targets)
        writer.start()
        writer.join(1)  # it waits for the fetch

    monkeypatch.setattr(Stores, "download_all", write_meanwhile)
    machines.home("b")
    writer.join()

    assert report.read_text() == "new"


def test_a_file_that_is_removed_during_a_fetch_is_no_error(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machines.home("a").run("clicks", "r1")
    for path in (folder.report, folder.phases / "audit"):
        write_text(path, "")
    list_versions, removed = Stores.list_versions, False

    def remove_then(stores: Stores, location: str) -> dict[str, FileVersion]:
        nonlocal removed
        found = list_versions(stores, location)
        if location.endswith("/r1") and not removed:
            removed = True
            stores.remove([f"{location}/phases/audit"])
        return found

    monkeypatch.setattr(Stores, "list_versions", remove_then)
    seen = machines.home("b").run("clicks", "r1")

    assert removed
    assert seen.report.exists()
    assert not (seen.phases / "audit").exists()


def test_a_store_that_refuses_changes_nothing(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    path = machines.home("a").run("clicks", "r1").approval
    write_text(path, "before")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")

    with pytest.raises(StorageError, match=r"^cannot write s3://.*/approval.json: .*\n\nhint: keys are read"):
        write_text(path, "after")

    assert path.read_text() == "before"
    assert names(path.parent) == ["approval.json"]
    with pytest.raises(StorageError, match=r"^cannot read s3://"):
        machines.home("b")


@pytest.mark.parametrize("text", ["gs://bucket/home", "s3://", "s3://a b/c", "s3://bucket/ho%me", "s3://BUCKET"])
def test_an_address_that_is_no_home_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=rf"must be s3://bucket/prefix .*got {text!r} \(BACKSTREAM_HOME\)"):
        parse_home_address(text)


def test_keys_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(SpecError, match=r"got 's3://\.\.\.@bucket/home'") as error:
        parse_home_address("s3://key:secret@bucket/home")
    assert "secret" not in str(error.value).partition("hint")[0]


def test_a_home_in_a_store_is_not_shared_with_executors_and_needs_a_catalog(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv(HOME_VARIABLE, f"{address}/")
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)

    home = Home.from_environment()

    assert (home.location, home.is_shared) == (address, False)
    with pytest.raises(SpecError, match=r"needs a catalog elsewhere, got s3://"):
        _ = home.catalog_uri


def test_an_error_names_the_address_of_a_home_in_a_store(tmp_path: Path) -> None:
    runs = Runs(Home(tmp_path, "s3://bucket/home"))
    with pytest.raises(SpecError, match="in s3://bucket/home, which has 0 runs"):
        runs.plan_of_id("cli.unknown")
    with pytest.raises(SpecError, match="no run of clicks in s3://bucket/home"):
        runs.newest_plan("clicks")
