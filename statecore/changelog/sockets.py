"""Sockets and TLS for kafka-python: closes failed sockets, adds deadlines, and tells final errors from transient ones.

This module uses private names of kafka-python, as do only :mod:`statecore.standby.kafka_group`, for groups, and
:mod:`statecore.tasks.bounded_producer`, at one place. The package is pinned to one version for that reason.
``tests/unit/changelog/test_sockets.py`` names every such attribute of this module and of the first of these two.

kafka-python 3.0 has four defects before a connection is ready:

- the socket of a connection that was refused, or whose TLS handshake failed, is left to the garbage collector, which
  reports it (``ResourceWarning``) later and elsewhere;
- a TLS handshake has no deadline: a broker that hangs is waited for without end;
- an error response that arrives together with the close of the connection (wrong password) is dropped, and only the
  close is reported, which is then retried;
- a certificate that is not trusted looks the same as a network error.

Transports are classes registered by URL scheme, meant for proxies; `DirectSocket` connects directly. Imports
kafka-python, so it is imported late.
"""

from __future__ import annotations

import logging
import socket
import ssl
from typing import Any

from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

DIRECT = "statecore-direct://"  # Value of kafka-python's setting proxy_url that selects DirectSocket
_TLS_ALERT = b"\x15\x03"  # record type and major version of an alert (RFC 8446, 5.1); as a length in Kafka: 352 MB
_PIECE = 4096


class TlsRefused(KafkaError):
    """A certificate, version or protocol was rejected; a retry does not help."""

    def __str__(self) -> str:
        return str(self.args[0])


class NameUnresolved(KafkaConnectionError):
    """The host of a broker has no address on this machine."""


class DirectSocket(KafkaNetSocket):
    """Connects without a proxy."""

    SCHEMES = ("statecore-direct",)

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> list[Any]:  # noqa: ARG002
        """The addresses of a host; kafka-python drops the reason, and with it the name."""
        try:
            return socket.getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameUnresolved(f"the name {host} does not resolve on this machine ({error})") from error

    async def sock_connect(
        self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None
    ) -> socket.socket:
        """Connect, or close the socket and raise what kafka-python raises."""
        try:
            connected: socket.socket = await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
        return connected


class ConnectionManager(KafkaConnectionManager):
    """kafka-python's manager with the transports of this module."""

    def forget_refusal(self, node: Any) -> None:
        """Connect again to a broker that rejected the last token; kafka-python would not."""
        self._auth_failures.pop(node, None)
        self.reset_backoff(node)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        config = self.config
        sock = await create_connection(
            self._net,
            node.host,
            node.port,
            config["socket_options"],
            proxy_url=config["proxy_url"],
            timeout_at=timeout_at,
        )
        try:
            if not self.ssl_enabled:
                return _PlainTransport(self._net, sock, host=node.host)
            tls = {name: value for name, value in config.items() if name.startswith("ssl_")}
            transport = _TlsTransport(self._net, sock, host=node.host, **tls)
            sock = transport._sock  # the TLS socket has replaced the plain one
            await transport.agree(timeout_at)
        except BaseException:
            sock.close()
            raise
        return transport


async def connect_apart(manager: KafkaConnectionManager, broker: Any, timeout_at: float) -> KafkaConnection:
    """Open another connection than the manager's, which are for metadata; its ``init_future`` has the error."""
    connection = KafkaConnection(
        manager._net, node_id=broker.node_id, broker_version_data=manager.broker_version_data, **manager.config
    )
    await manager._connect(broker, connection, timeout_at=timeout_at)
    return connection


def take_socket(connection: KafkaConnection) -> socket.socket:
    """Detach the socket from a ready connection, so that kafka-python neither reads from it nor closes it."""
    transport = connection.transport
    connection._reauth.cancel()  # the broker closes an expired session, and a new connection follows
    transport.pause_reading()
    if transport._read_task is not None:
        transport._net.cancel(transport._read_task)
    sock: socket.socket = transport._sock
    transport._sock = transport._protocol = transport._read_task = None
    transport._closed = True
    connection.connected = False
    return sock


class _PlainTransport(KafkaTCPTransport):
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        data, error = _receive(self._sock, (BlockingIOError, InterruptedError))
        if data.startswith(_TLS_ALERT):
            return b"", TlsRefused("the port uses TLS, and security_protocol does not")
        return data, error


class _TlsTransport(KafkaSSLTransport):
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _receive(self._sock, (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError))

    async def agree(self, timeout_at: float | None) -> None:
        """Do the TLS handshake. Raises `TlsRefused`; `KafkaConnectionError` if closed or silent until the deadline."""
        while True:
            try:
                self._sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                waiting = self._net.wait_read
            except ssl.SSLWantWriteError:
                waiting = self._net.wait_write
            except OSError as error:
                raise _meaning(error, "during the TLS handshake (does this port use TLS?)") from error
            try:
                await waiting(self._sock, timeout_at)
            except KafkaTimeoutError as error:
                raise KafkaConnectionError("silent during the TLS handshake") from error


def _receive(sock: socket.socket, later: tuple[type[OSError], ...]) -> tuple[bytes, Exception | None]:
    """Receive all available bytes; report the end of the connection only if no bytes came before it."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = sock.recv(_PIECE)
        except later:
            return b"".join(pieces), None
        except OSError as error:
            return (b"".join(pieces), None) if pieces else (b"", _meaning(error))
        if not piece:
            closed = KafkaConnectionError("closed by the broker (does security_protocol match this port?)")
            return (b"".join(pieces), None) if pieces else (b"", closed)
        pieces.append(piece)


def _meaning(error: OSError, when: str = "") -> KafkaError:
    """The error for a socket's error: final or transient."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsRefused(f"its certificate is not accepted: {error.verify_message}")
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)) or (
        isinstance(error, ConnectionError) and when
    ):
        return KafkaConnectionError(f"closed by the broker {when}".rstrip())
    if isinstance(error, ssl.SSLError):  # an alert of the broker, or bytes that are not TLS
        return TlsRefused(f"TLS fails: {error.reason or error}")
    return KafkaConnectionError(str(error))


# At level DEBUG these log every request, including the one with the password, in one case as bytes.
for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).setLevel(logging.INFO)
