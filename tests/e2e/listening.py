"""A server that receives the alerts, the metrics, and the lineage of the cluster."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

LINEAGE_PATH, METRICS_PATH = "/api/v1/lineage", "/v1/metrics"
Series = tuple[str, frozenset[tuple[str, str]], int]
"""A metric by its name, its tags, and the time at which a process began to count, in ns."""


@dataclass
class Received:
    """Received alerts as path and text, metrics with their newest value, and events of OpenLineage."""

    port: int
    alerts: list[tuple[str, str]] = field(default_factory=list)
    metrics: dict[Series, float] = field(default_factory=dict)
    lineage: list[dict[str, Any]] = field(default_factory=list)

    def ends_of(self, job: str) -> list[dict[str, Any]]:
        """The events with which the runs of a job of OpenLineage have ended."""
        return [each for each in self.lineage if each["job"]["name"] == job and each["eventType"] == "COMPLETE"]

    def total(self, metric: str, **tags: str) -> float:
        """The sum of a metric over all processes, for the tags that are given."""
        found = (
            value for (name, has, _), value in list(self.metrics.items()) if name == metric and tags.items() <= has
        )
        return sum(found)

    def tags_of(self, metric: str) -> set[str]:
        """The names of the tags of a metric."""
        return {name for series in list(self.metrics) if series[0] == metric for name, _ in series[1]}


def _measured(body: bytes) -> Iterator[tuple[Series, float]]:
    """The metrics of a request by OTLP: counters and gauges by value, histograms by sum."""
    request = ExportMetricsServiceRequest.FromString(body)
    scopes = [scope for resource in request.resource_metrics for scope in resource.scope_metrics]
    for metric in (metric for scope in scopes for metric in scope.metrics):
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            tags = frozenset((tag.key, tag.value.string_value) for tag in point.attributes)
            value = point.sum if hasattr(point, "sum") else point.as_double or point.as_int
            yield (metric.name, tags, point.start_time_unix_nano), value


@contextmanager
def listening() -> Iterator[Received]:
    """The server of all three, for the length of a block."""

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == LINEAGE_PATH:
                received.lineage.append(json.loads(body))
            elif self.path == METRICS_PATH:
                received.metrics.update(_measured(body))
            else:
                received.alerts.append((self.path, json.loads(body)["text"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        received = Received(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield received
        server.shutdown()
