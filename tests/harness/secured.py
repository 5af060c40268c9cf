"""A broker that is reached in every way at once: plain, over TLS, and with a name and password over either.

::

    BROKER            PLAINTEXT        for the broker itself and for the tests' own tools
    TLS               SSL              server certificate only
    MUTUAL            SSL              client certificate required
    SASL              SASL_SSL         PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    SHORT             SASL_SSL         the same, and a session ends after ``SESSION_SECONDS`` (KIP-368)
    TOKENS            SASL_SSL         OAUTHBEARER, with tokens of ``endpoint``

One user for each mechanism, because a test that logs in by one must not pass by another.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.harness.broker import Broker
from tests.harness.certificates import Authority
from tests.harness.token_endpoint import TokenEndpoint

LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL", "SHORT": "SASL_SSL", "TOKENS": "SASL_SSL"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_SECONDS = 2.0

_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredBroker:
    """Starts such a broker; a context manager.

    Args:
        directory: for the broker and the certificates.
    """

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "tls")
        self.client = self.authority.sign("client")
        self.passwords = {mechanism: secrets.token_hex(16) for mechanism in MECHANISMS}
        server = self.authority.sign("localhost", ("127.0.0.1",))
        self.endpoint = TokenEndpoint(server)
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.short.connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
        }
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        user = f'user_{self.user("PLAIN")}="{self.passwords["PLAIN"]}"'
        settings["listener.name.tokens.sasl.enabled.mechanisms"] = "OAUTHBEARER"
        settings["listener.name.tokens.oauthbearer.sasl.jaas.config"] = (
            f'{_OAUTH} unsecuredLoginStringClaim_sub="broker";'
        )
        for name in ("sasl", "short"):
            stem = f"listener.name.{name}"
            settings[f"{stem}.plain.sasl.jaas.config"] = f"{plain} {user};"
            settings[f"{stem}.scram-sha-256.sasl.jaas.config"] = _SCRAM
            settings[f"{stem}.scram-sha-512.sasl.jaas.config"] = _SCRAM
        self.broker = Broker(directory / "broker", settings=settings, listeners=LISTENERS)

    def __enter__(self) -> SecuredBroker:
        self.broker.start()
        self.endpoint.__enter__()
        try:
            self._add_users()
        except BaseException:
            self.broker.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.endpoint.__exit__()
        self.broker.stop()

    @staticmethod
    def user(mechanism: str) -> str:
        """The one user who may log in by a mechanism."""
        return f"user-of-{mechanism.lower()}"

    def settings(self, listener: str, mechanism: str = "PLAIN", **changes: Any) -> dict[str, Any]:
        """What a client needs for a listener, by kafka-python's names."""
        found: dict[str, Any] = {"security_protocol": LISTENERS[listener], "ssl_cafile": str(self.authority.file)}
        if listener == "TOKENS":
            return {**found, **self.endpoint.settings(), **changes}
        if LISTENERS[listener] == "SASL_SSL":
            found["sasl_mechanism"] = mechanism
            found["sasl_plain_username"] = self.user(mechanism)
            found["sasl_plain_password"] = self.passwords[mechanism]
        if listener == "MUTUAL":
            found |= {"ssl_certfile": str(self.client.certificate), "ssl_keyfile": str(self.client.key)}
        return {**found, **changes}

    def _add_users(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        scram = {
            "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
            "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
        }
        changes = [
            UserScramCredentialUpsertion(
                self.user(name), ScramCredentialInfo(mechanism, 4096), self.passwords[name].encode()
            )
            for name, mechanism in scram.items()
        ]
        for done in admin.alter_user_scram_credentials(changes).values():
            done.result(20)
