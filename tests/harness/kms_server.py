"""The part of AWS KMS that statecore uses: it encrypts and decrypts with keys that it keeps."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class KmsServer(ThreadingHTTPServer):
    """A server with some keys.

    Attributes:
        keys: by id.
        asked: the operations, in their order.
        refusing: the error code of each answer; empty if it does what it is asked for.
    """

    daemon_threads = True

    def __init__(self, *names: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys = {name: os.urandom(32) for name in names}
        self.asked: list[str] = []
        self.refusing = ""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(operation)
        if self.refusing:
            return 500 if self.refusing == "KMSInternalException" else 400, {"__type": self.refusing, "message": "no"}
        name = request["KeyId"]
        if name not in self.keys:
            return 400, {"__type": "NotFoundException", "message": f"there is no key {name}"}
        context, cipher = json.dumps(request["EncryptionContext"]).encode(), AESGCM(self.keys[name])
        if operation == "Encrypt":
            nonce = os.urandom(12)
            sealed = nonce + cipher.encrypt(nonce, base64.b64decode(request["Plaintext"]), context)
            return 200, {"CiphertextBlob": base64.b64encode(sealed).decode(), "KeyId": name}
        sealed = base64.b64decode(request["CiphertextBlob"])
        try:
            plain = cipher.decrypt(sealed[:12], sealed[12:], context)
        except (InvalidTag, ValueError):
            return 400, {"__type": "InvalidCiphertextException", "message": ""}
        return 200, {"Plaintext": base64.b64encode(plain).decode(), "KeyId": name}


class _Handler(BaseHTTPRequestHandler):
    server: KmsServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.server.answer(self.headers["X-Amz-Target"].partition(".")[2], request)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(*names: str) -> Iterator[KmsServer]:
    server = KmsServer(*names)
    thread = threading.Thread(target=server.serve_forever, name="kms-server")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
