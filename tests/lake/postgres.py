"""A PostgreSQL of the tests' own: no network, one socket in a temporary folder, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

USER = "postgres"
START_S = 30
QUICK = ("fsync=off", "full_page_writes=off", "max_connections=50")
"""What was committed outlives the server's own death, not that of the machine."""
QUICKEST = (*QUICK, "synchronous_commit=off")


@dataclass
class Server:
    """A server, by the folder of its socket and how it is started."""

    folder: Path
    command: list[str | Path]
    user: str | None
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start it, also again; its process id, once it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, user=self.user, cwd=self.folder, start_new_session=True
            )
        wait_for(self, self.process)
        return self.process.pid

    def stop(self) -> None:
        """End it, if it has not ended by itself."""
        if self.process:
            self.process.terminate()
            self.process.wait(timeout=START_S)

    def new_database(self) -> str:
        """The SQLAlchemy URI of an empty database."""
        name = f"lake{next(self.numbers)}"
        with self.connected() as connection:
            connection.execute(text(f"CREATE DATABASE {name} STRATEGY file_copy"))
        return self.uri(name)

    def connected(self) -> Connection:
        """A connection to the database that is always there."""
        return create_engine(self.uri("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT").connect()

    def uri(self, database: str) -> str:
        """The SQLAlchemy URI of a database."""
        return f"postgresql+psycopg2://{USER}@/{database}?host={self.folder}"


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL on this machine; None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@contextmanager
def running(bin_folder: Path, settings: Sequence[str] = QUICKEST) -> Iterator[Server]:
    """A server for the length of a block."""
    folder = Path(tempfile.mkdtemp(prefix="backstream-pg-"))
    user = USER if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    subprocess.run(
        [bin_folder / "initdb", "-D", data, "-U", USER, "-A", "trust", "-N", "-E", "UTF8", "--locale=C"],
        check=True,
        capture_output=True,
        user=user,
        cwd=folder,
    )
    options = [option for each in settings for option in ("-c", each)]
    command: list[str | Path] = [bin_folder / "postgres", "-D", data, "-k", folder, "-h", "", *options]
    server = Server(folder, command, user)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Until it takes connections."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            server.connected().close()
        except OperationalError:
            assert process.poll() is None, (server.folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return
