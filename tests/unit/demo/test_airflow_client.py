"""The client of Airflow's REST API against a server that refuses, or does not answer."""

import threading
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from demo.airflow_client import AirflowFailed, call


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(409)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"busy")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Hanging(BaseHTTPRequestHandler):
    """Answers a request only after another one has come."""

    asked = 0
    again = threading.Event()

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.asked > 1:
            self.again.set()
        self.again.wait()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"41")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/dags"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_get_without_an_answer_is_sent_again_and_a_post_is_not() -> None:
    class Handler(_Hanging):
        again = threading.Event()

    with serving(Handler) as url:
        try:
            with pytest.raises(AirflowFailed, match=f"POST {url}"):
                call("POST", url, {}, seconds=0.2)
            Handler.asked = 0
            assert call("GET", url, seconds=0.2, tries=1000) == 41
            assert Handler.asked > 1
        finally:
            Handler.again.set()


def test_a_refusal_keeps_its_text_and_no_socket() -> None:
    with serving(_Refusing) as url, pytest.raises(urllib.error.HTTPError) as caught:
        call("GET", url)
    assert caught.value.code == 409
    assert caught.value.read() == b"busy"
    with pytest.raises(OSError, match="fileno"):
        caught.value.fileno()
