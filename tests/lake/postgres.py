"""A temporary PostgreSQL server without a network, with one socket in a temporary folder."""

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
    """A server with the folder of its socket and its start command."""

    folder: Path
    command: list[str | Path]
    user: str | None
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start the server, also repeatedly, and return its process id once it accepts connections."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, user=self.user, cwd=self.folder, start_new_session=True
            )
        wait_for(self, self.process)
        return self.process.pid

    def stop(self) -> None:
        """Stop the server if it is still running."""
        if self.process:
            self.process.terminate()
            self.process.wait(timeout=START_S)

    def new_database(self) -> str:
        """Return the SQLAlchemy URI of an empty database."""
        name = f"lake{next(self.numbers)}"
        with self.connected() as connection:
            connection.execute(text(f"CREATE DATABASE {name} STRATEGY file_copy"))
        return self.uri(name)

    def connected(self) -> Connection:
        """Return a connection to the default database."""
        return create_engine(self.uri("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT").connect()

    def uri(self, database: str) -> str:
        """Return the SQLAlchemy URI of a database."""
        return f"postgresql+psycopg2://{USER}@/{database}?host={self.folder}"


def binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL on this machine; None if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@contextmanager
def running(bin_folder: Path, settings: Sequence[str] = QUICKEST) -> Iterator[Server]:
    """Run a server for the length of a block."""
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
    options = [option for setting in settings for option in ("-c", setting)]
    command: list[str | Path] = [bin_folder / "postgres", "-D", data, "-k", folder, "-h", "", *options]
    server = Server(folder, command, user)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server accepts connections."""
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
