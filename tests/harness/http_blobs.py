"""Blobs that no worker has a file of: kept behind an HTTP server, as an object store keeps them. For tests."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, urlsplit

from statecore.errors import NotFound, Retryable, StatecoreError, error_from_json
from statecore.jobs.pipeline.staging_place import StagingPlace
from statecore.objectstore.base import Blob, Blobs, checked_name, checked_range
from statecore.objectstore.directory import DirectoryBlobs

PATIENCE = 60.0


class BlobServer(ThreadingHTTPServer):
    """Serves the blobs of a directory; ``asked`` counts the requests by method and first part of the name."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs = DirectoryBlobs(root)
        self.asked: Counter[tuple[str, str]] = Counter()
        self.guard = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextmanager
def serving(root: Path) -> Iterator[BlobServer]:
    """A server of the blobs below ``root``, until the end."""
    server = BlobServer(root)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: BlobServer

    def _answer(self) -> None:
        asked = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        arguments = {name: values[0] for name, values in parse_qs(asked.query, keep_blank_values=True).items()}
        name = arguments.get("name", "")
        with self.server.guard:
            self.server.asked[self.command, name.partition("/")[0]] += 1
        try:
            status, answer = 200, self._done(name, arguments, body)
        except StatecoreError as error:
            status, answer = 400, json.dumps(error.to_json()).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _done(self, name: str, arguments: dict[str, str], body: bytes) -> bytes:
        blobs = self.server.blobs
        if self.command == "PUT":
            return json.dumps(blobs.put_if_absent(name, body)).encode()
        if self.command == "GET":
            return blobs.get(name, int(arguments["start"]), int(arguments["end"]) if arguments["end"] else None)
        if self.command == "DELETE":
            blobs.delete(name)
            return b"null"
        if self.command == "POST":  # HEAD has no body, and no reason for a failure therefore
            return json.dumps(blobs.head(name)).encode()
        return json.dumps(list(blobs.list(name))).encode()

    do_PUT = do_GET = do_DELETE = do_POST = do_OPTIONS = _answer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class HttpBlobs(Blobs):
    """The blobs that a :class:`BlobServer` of this machine has."""

    port: int

    def put_if_absent(self, name: str, content: bytes | Path) -> bool:
        checked_name(name)
        if isinstance(content, Path):
            if not content.is_file():
                raise NotFound(
                    f"There is no file {content} to be put.", code="upload-file-missing", action="Make it anew."
                )
            content = content.read_bytes()
        return bool(json.loads(self._ask("PUT", content, name=name)))

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        checked_range(start, end)
        return self._ask("GET", name=checked_name(name), start=str(start), end="" if end is None else str(end))

    def head(self, name: str) -> Blob:
        return Blob(*json.loads(self._ask("POST", name=checked_name(name))))

    def list(self, prefix: str = "") -> Iterator[Blob]:
        for one in json.loads(self._ask("OPTIONS", name=prefix)):
            yield Blob(*one)

    def delete(self, name: str) -> None:
        self._ask("DELETE", name=checked_name(name))

    def local_path(self, name: str) -> None:
        self.head(name)

    def _ask(self, method: str, body: bytes | None = None, **arguments: str) -> bytes:
        query = "&".join(f"{name}={quote(value)}" for name, value in arguments.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, f"/?{query}", body)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Retryable(
                f"The server of blobs does not answer: {error}.", code="object-store-unreachable", action="Try again."
            ) from error
        finally:
            connection.close()
        if response.status != 200:
            said = json.loads(answer)
            raise error_from_json(said)
        return answer


@dataclass(frozen=True)
class HttpPlace(StagingPlace):
    """Staging behind a :class:`BlobServer`."""

    interval: ClassVar[float] = 0.05

    port: int

    def blobs(self) -> Blobs:
        return HttpBlobs(self.port)

    def __str__(self) -> str:
        return f"the server of blobs at {self.port}"
