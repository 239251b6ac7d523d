"""Nessie, a REST catalog that chooses locations, keeps one snapshot, and drops tags, with tables in S3."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.engines.conftest import Orders, publish_orders
from tests.engines.parts import NESSIE, UnreachableError, fetch_jar
from tests.lake.store import BUCKET, Store

from backstream.variables import CATALOG_VARIABLE, NAMESPACE_VARIABLE, WAREHOUSE_VARIABLE

pytestmark = pytest.mark.engines
Record = Callable[[str, str, str], None]
LOWEST_JAVA = 21
SENTENCE = "this catalog keeps no history: no as-of, no rollback, no diff of a run"


def find_java() -> Path | None:
    """Return a Java that is new enough for Nessie; None if there is none."""
    programs = [*Path("/usr/lib/jvm").glob("*/bin/java"), Path(shutil.which("java") or "/nothing")]
    for program in filter(Path.exists, programs):
        told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', told)
        if version and int(version[1]) >= LOWEST_JAVA:
            return program
    return None


@pytest.fixture(scope="module")
def nessie(s3: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a running Nessie, or skip the tests that need one."""
    if (java := find_java()) is None:
        pytest.skip(f"Nessie needs Java {LOWEST_JAVA}, and none was found")
    try:
        jar = fetch_jar(NESSIE)
    except UnreachableError as error:
        pytest.skip(str(error))
    store, ports = "nessie.catalog.service.s3.default-options", [free_port(), free_port()]
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": ports[0],
        "quarkus.management.port": ports[1],
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": f"s3://{BUCKET}/nessie/",
        f"{store}.endpoint": s3.endpoint,
        f"{store}.path-style-access": "true",
        f"{store}.region": "us-east-1",
        f"{store}.request-signing-enabled": "false",
        f"{store}.access-key": "urn:nessie-secret:quarkus:mysecret",
        "mysecret.name": s3.key_id,
        "mysecret.secret": s3.secret,
    }
    log = tmp_path_factory.mktemp("nessie") / "nessie.log"
    options = [f"-D{name}={value}" for name, value in settings.items()]
    with log.open("w") as output:
        process = subprocess.Popen([java, "-Xmx700M", *options, "-jar", jar], stdout=output, stderr=output)
        try:
            yield wait_for(f"http://127.0.0.1:{ports[0]}/iceberg/", process, log)
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{address}v1/config", timeout=10)  # noqa: S310 - a local address
        except OSError:
            time.sleep(0.5)
        else:
            return address
    raise AssertionError(log.read_text()[-2_000:])


@pytest.fixture(scope="module")
def orders(nessie: str, s3: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    """Return published orders in Nessie; each table was made and published at the first try."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(WAREHOUSE_VARIABLE, raising=False)
        patch.setenv(CATALOG_VARIABLE, f"{nessie}?warehouse=warehouse")
        patch.setenv(NAMESPACE_VARIABLE, "sales")
        for name, value in {
            "AWS_ACCESS_KEY_ID": s3.key_id,
            "AWS_SECRET_ACCESS_KEY": s3.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": s3.endpoint,
        }.items():
            patch.setenv(name, value)
        yield publish_orders(tmp_path_factory.mktemp("orders"))


def count(orders: Orders) -> int:
    """Return the number of published rows."""
    return len(orders.command("show", "orders", "--format", "csv").stdout.splitlines()) - 1


def test_a_new_dataset_is_published_at_the_first_try(orders: Orders, record: Record) -> None:
    assert count(orders) == 112
    record("nessie 0.99", "first run of a new dataset", "published")


def test_what_needs_history_is_refused_at_its_start(orders: Orders, record: Record) -> None:
    assert SENTENCE in orders.command("doctor").stdout
    [run_id, *_] = [path.name for path in (orders.home / "runs/orders").iterdir()]
    for arguments in (
        ("rollback", run_id, "--yes", "--reason", "test"),
        ("diff", run_id),
        ("show", "orders", "--as-of", run_id),
    ):
        refused = orders.command(*arguments)
        assert (refused.returncode, SENTENCE in refused.stderr) == (1, True), arguments
    record("nessie 0.99", "as-of, rollback, diff", "refused at their start")


def test_runs_of_other_days_at_once_both_publish(orders: Orders, record: Record) -> None:
    def run(day: int) -> subprocess.CompletedProcess[str]:
        days = ("--since", f"2024-03-0{day}", "--until", f"2024-03-0{day + 1}")
        options = ("--runner", "local", "--mode", "recompute", "--replan", "--allow-unsealed")
        return orders.command("run", str(orders.definition), *days, *options)

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(run, (1, 3)))

    assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
    assert count(orders) == 112
    record("nessie 0.99", "two runs of other days at once", "both published")
