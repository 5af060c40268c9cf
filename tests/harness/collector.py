"""A collector of OpenTelemetry metrics for tests: OTLP over HTTP on a free port, kept in memory."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Points = dict[tuple[str, ...], float]
"""Values by attributes: name, value, name, value…"""


class Collector:
    """Runs inside a ``with`` block.

    Attributes:
        services: ``service.name`` of everybody who has sent something.
    """

    def __init__(self) -> None:
        self.services: set[str] = set()
        self._points: dict[str, Points] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                found = self.path == "/v1/metrics"
                if found:
                    collector._take(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def endpoint(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def last(self, name: str) -> Points:
        """What was told last of a counter or a gauge."""
        return self._points.get(name, {})

    def wait_for(self, name: str, value: float, timeout: float = 600.0) -> None:
        """Returns when some point of an instrument has had this value last."""
        deadline = time.monotonic() + timeout
        while value not in self.last(name).values():
            assert time.monotonic() < deadline, f"{name} was never {value}: {self.last(name)}"
            time.sleep(0.01)

    def _take(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.services.add(named["service.name"])
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in (*metric.sum.data_points, *metric.gauge.data_points):
                    tags = [part for one in point.attributes for part in (one.key, one.value.string_value)]
                    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                    self._points.setdefault(metric.name, {})[tuple(tags)] = value

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
