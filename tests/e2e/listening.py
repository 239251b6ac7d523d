"""Who is told by the cluster: a chat service takes alerts, a StatsD server takes metrics."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Told:
    """What has come: alerts as path and text, and the names of metrics."""

    alerts_port: int
    metrics_port: int
    alerts: list[tuple[str, str]] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)


@contextmanager
def listening() -> Iterator[Told]:
    """Both servers, for the length of a block."""

    class Chat(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.alerts.append((self.path, json.loads(body)["text"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    class Statsd(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            """Lines of `name:value|kind`."""
            data: bytes = self.request[0]
            told.metrics.update(line.partition(":")[0] for line in data.decode().splitlines())

    here = ("127.0.0.1", 0)
    with http.server.ThreadingHTTPServer(here, Chat) as chat, socketserver.UDPServer(here, Statsd) as statsd:
        told = Told(chat.server_port, statsd.server_address[1])
        for server in (chat, statsd):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield told
        chat.shutdown()
        statsd.shutdown()
