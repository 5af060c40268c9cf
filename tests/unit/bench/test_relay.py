"""A relay counts what goes through it, both ways, and changes nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from bench.relay import Moved, Relay
from tests.harness.broker import refusing_port


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other side has ended."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.fixture
def server() -> Iterator[str]:
    """Answers all that comes with what it was, twice, when it has ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(2 * everything(connection))

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def relay(server: str) -> Iterator[Relay]:
    made = Relay().start(server)
    try:
        yield made
    finally:
        made.stop()


def ask(relay: Relay, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", relay.port), timeout=300) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return everything(connection)


def test_what_goes_through_arrives_and_is_counted_both_ways(relay: Relay) -> None:
    content = bytes(range(256)) * 20_000
    assert ask(relay, content) == 2 * content
    before = relay.moved()
    assert before == Moved(len(content), 2 * len(content))
    assert ask(relay, b"more") == b"moremore"
    assert relay.moved() - before == Moved(4, 8)


def test_a_server_that_is_away_is_away_for_the_client() -> None:
    with refusing_port() as nowhere:
        relay = Relay().start(f"127.0.0.1:{nowhere}")
        try:
            with socket.create_connection(("127.0.0.1", relay.port), timeout=300) as connection:
                assert connection.recv(1) == b""
            assert relay.moved() == Moved(0, 0)
        finally:
            relay.stop()
