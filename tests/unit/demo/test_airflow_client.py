"""The client of Airflow's REST API against a server that refuses."""

import threading
import urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from demo.airflow_client import call


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(409)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"busy")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_refusal_keeps_its_text_and_no_socket() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(urllib.error.HTTPError) as caught:
            call("GET", f"http://127.0.0.1:{server.server_port}/dags")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert caught.value.code == 409
    assert caught.value.read() == b"busy"
    with pytest.raises(OSError, match="fileno"):
        caught.value.fileno()
