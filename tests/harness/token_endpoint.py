"""A token endpoint over HTTPS (RFC 6749, 4.4) with unsecured tokens (``alg: none``), Kafka's default."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.harness.certificates import Certificate

CLIENT, SECRET = "statecore-tests", "a secret of the client"


class TokenEndpoint(ThreadingHTTPServer):
    """A context manager; ``lives`` are the seconds for which the next tokens are valid, the last one for all others."""

    daemon_threads = True

    def __init__(self, certificate: Certificate) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.lives: list[float] = [3600.0]
        self.status = 200
        self.answer: tuple[int, str] | None = None
        """Status and body of all answers, if they are not to be right."""
        self.authorizations: list[str] = []
        self.bodies: list[str] = []
        """Bodies of the requests that came, in order."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}/token"

    def settings(self, **changes: Any) -> dict[str, Any]:
        """What a client of this endpoint has under ``kafka``."""
        return {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": self.url,
            "sasl_oauthbearer_client_credentials_client_id": CLIENT,
            "sasl_oauthbearer_client_credentials_client_secret": SECRET,
            **changes,
        }

    def __enter__(self) -> TokenEndpoint:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """Clients that do not trust the certificate go away; that is what they are tested for."""


def unsecured_token(life: float, subject: str = CLIENT) -> str:
    """A JSON Web Signature without a signature."""
    now = time.time()
    parts = [{"alg": "none"}, {"sub": subject, "iat": now - 60, "exp": now + life}]
    return ".".join([base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]) + "."


class _Handler(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.server.bodies.append(body)
        self.server.authorizations.append(self.headers.get("Authorization") or "")
        if self.server.answer is not None:
            status, text = self.server.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if 300 <= status < 400:
                self.send_header("Location", self.server.url)
            self.end_headers()
            self.wfile.write(text.encode())
            return
        known = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.server.status != 200:
            self._answer(self.server.status, {})
        elif self.headers.get("Authorization") != known:
            self._answer(401, {"error": "invalid_client", "error_description": "the secret is wrong"})
        else:
            lives = self.server.lives
            life = lives.pop(0) if len(lives) > 1 else lives[0]
            # It promises an hour, as an endpoint does whose tokens are revoked before their time.
            token = {"access_token": unsecured_token(life), "token_type": "Bearer", "expires_in": 3600}
            self._answer(200, token)

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        answer = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""
