"""A proxy before a real HTTP server that loses replies, breaks bodies off and answers in the server's place."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


class Kind(Enum):
    """What happens to a request."""

    LOST_REPLY = auto()
    """The server handles the request, and the reply is lost."""

    LOST_REQUEST = auto()
    """The connection is closed before the server hears of it."""

    TRUNCATED = auto()
    """Half of the body comes, then the connection is closed."""

    FLIPPED = auto()
    """One bit in the middle of the body is another."""

    UNMEASURED = auto()
    """The body comes in chunks, and no header tells its length."""

    ANSWERED = auto()
    """The server never hears of it; the proxy answers."""


@dataclass(frozen=True)
class Fault:
    """What happens to requests of one method.

    Attributes:
        method: the method.
        kind: what happens.
        containing: words that the path with its query has.
        times: to how many of them.
        status: of the proxy's own answer.
        code: the S3 code in it.
        message: the message in it.
        body: the answer, in place of one with these.
    """

    method: str
    kind: Kind
    containing: str = ""
    times: int = 1
    status: int = 503
    code: str = "SlowDown"
    message: str = "as the test wants it"
    body: bytes | None = None


class FaultyProxy(ThreadingHTTPServer):
    """Forwards requests, but for the faults that are set; ``asked`` are the requests that came."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.asked: list[tuple[str, str]] = []
        self.then: Callable[[], object] | None = None
        """What is done, once, when a reply was lost."""
        self._faults: list[tuple[Fault, int]] = []
        self._guard = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, *faults: Fault) -> None:
        """Set faults, in place of those that are set."""
        with self._guard:
            self._faults = [(fault, fault.times) for fault in faults]
            self.asked.clear()

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._guard:
            self.asked.append((method, path))
            for at, (fault, left) in enumerate(self._faults):
                if left and fault.method == method and fault.containing in path:
                    self._faults[at] = (fault, left - 1)
                    return fault
        return None

    def handle_error(self, *_: Any) -> None:
        """Clients go away; that is what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.next_fault(self.command, self.path)
        kind = fault.kind if fault is not None else None
        if kind is Kind.LOST_REQUEST:
            self._close()
            return
        if fault is not None and kind is Kind.ANSWERED:
            answer = fault.body
            if answer is None:
                answer = f"<Error><Code>{fault.code}</Code><Message>{fault.message}</Message></Error>".encode()
            self._answer(fault.status, [("Content-Type", "application/xml")], answer, len(answer))
            return
        status, headers, answer = self._forward(body)
        if kind is Kind.LOST_REPLY:
            if self.server.then is not None:
                then, self.server.then = self.server.then, None
                then()
            self._close()
        elif kind is Kind.TRUNCATED:
            self._answer(status, headers, answer[: len(answer) // 2], len(answer))
            self._close()
        elif kind is Kind.UNMEASURED:
            self._answer(status, headers, answer, None)
        else:
            if kind is Kind.FLIPPED:
                middle = len(answer) // 2
                answer = answer[:middle] + bytes([answer[middle] ^ 1]) + answer[middle + 1 :]
            self._answer(status, headers, answer, len(answer))

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.server.target
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # the host, too: it is signed
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            with connection.getresponse() as response:  # one that is cut short keeps the socket otherwise
                answer = response.read()
            headers = [(name, value) for name, value in response.getheaders() if name.lower() not in _HOP]
            if self.command == "HEAD":
                headers.append(("Content-Length", response.getheader("Content-Length") or "0"))
            return response.status, headers, answer
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, size: int | None) -> None:
        """Answer; without a size in chunks, and to a HEAD without one."""
        self.send_response_only(status)
        for name, value in headers:
            if size is not None or name != "Content-Length":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header(*(("Transfer-Encoding", "chunked") if size is None else ("Content-Length", str(size))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if size is not None else b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    def _close(self) -> None:
        self.close_connection = True
        self.connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def before(target: str) -> Iterator[FaultyProxy]:
    """A proxy before a server, until the end."""
    proxy = FaultyProxy(target)
    threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
