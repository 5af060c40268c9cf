"""Whoever waits for an object store that does not answer is told so, and not for every request."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from statecore.errors import Retryable
from statecore.objectstore.s3 import S3Blobs
from statecore.objectstore.s3_location import S3Location, make_client
from statecore.objectstore.s3_waiting import RetryNotes


def test_a_server_that_answers_busy_is_named_with_the_try(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        location = S3Location("bucket", endpoint=endpoint, region="us-east-1")
        with caplog.at_level(logging.WARNING), pytest.raises(Retryable):
            S3Blobs(location, make_client(location, attempts=3)).get("name")
        server.shutdown()
    assert caplog.messages == [f"{endpoint}: retrying GetObject (2 of 3): status 503."]


def test_it_is_said_every_ten_seconds_at_most_and_only_of_what_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    notes = RetryNotes(8, clock=lambda: now[0])

    def tried(attempts: int, status: int = 0) -> list[str]:
        caplog.clear()
        notes(
            response=None if not status else (SimpleNamespace(status_code=status), {}),
            endpoint=SimpleNamespace(host="http://store"),
            operation=SimpleNamespace(name="HeadObject"),
            attempts=attempts,
            caught_exception=None if status else TimeoutError("Read timeout."),
            request_dict={},
        )
        return caplog.messages

    for status in (200, 304, 404, 412):
        assert tried(1, status) == []
    assert tried(8) == [], "there is no other try"
    assert tried(1) == ["http://store: retrying HeadObject (2 of 8): Read timeout."]
    now[0] = 9.9
    assert tried(2) == []
    now[0] = 10.0
    assert tried(2, 429) == ["http://store: retrying HeadObject (3 of 8): status 429."]
