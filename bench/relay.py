"""Counts the bytes that go to a server and come from it: a relay between clients and the server, in its own process.

What clients and servers say of themselves is no measure of both, and neither says what the other sends. The relay
moves bytes from socket to socket inside the kernel (``splice``), so it costs far less than what it watches.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import socket
import threading
from contextlib import suppress
from ctypes import c_uint64
from dataclasses import dataclass
from typing import Any

_ROOM = 1 << 20
_F_SETPIPE_SZ = 1031


@dataclass(frozen=True)
class Moved:
    """Bytes that went through a relay.

    Attributes:
        sent: from clients to the server.
        came: from the server to clients.
    """

    sent: int
    came: int

    def __sub__(self, earlier: Moved) -> Moved:
        """What has moved since."""
        return Moved(self.sent - earlier.sent, self.came - earlier.came)


class Relay:
    """A port of this machine whose connections go to a server.

    The port is known at once; connections are taken from :meth:`start` on, and ended by :meth:`stop`, or with this
    process.

    Attributes:
        port: where clients connect to.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._counts: Any = multiprocessing.get_context("fork").Array(c_uint64, 2)
        self._process: Any = None

    @property
    def address(self) -> str:
        """``host:port`` of it."""
        return f"127.0.0.1:{self.port}"

    def start(self, server: str) -> Relay:
        """Take connections.

        Args:
            server: ``host:port`` of the server.
        """
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_serve, args=(self._listener, server, self._counts), daemon=True)
        self._process.start()
        self._listener.close()
        return self

    def moved(self) -> Moved:
        """Bytes that have moved so far."""
        with self._counts.get_lock():
            return Moved(self._counts[0], self._counts[1])

    def stop(self) -> None:
        """End all connections; again is fine."""
        self._listener.close()
        if self._process is not None:
            self._process.kill()  # a handler of SIGTERM that was set before the fork would be its own
            self._process.join()
            self._process = None


def _serve(listener: socket.socket, server: str, counts: Any) -> None:
    host, _, port = server.rpartition(":")
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_connect, args=(client, (host, int(port)), counts), daemon=True).start()


def _connect(client: socket.socket, server: tuple[str, int], counts: Any) -> None:
    try:
        there = socket.create_connection(server)
    except OSError:  # the client finds out, as it would without us
        client.close()
        return
    for one in (client, there):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    other = threading.Thread(target=_move, args=(there, client, counts, 1), daemon=True)
    other.start()
    _move(client, there, counts, 0)
    other.join()
    client.close()
    there.close()


def _move(source: socket.socket, target: socket.socket, counts: Any, which: int) -> None:
    """Move all that comes until its end, and hand the end on."""
    out, into = os.pipe()
    try:
        with suppress(OSError):
            fcntl.fcntl(into, _F_SETPIPE_SZ, _ROOM)
        with suppress(OSError):
            while count := os.splice(source.fileno(), into, _ROOM):
                with counts.get_lock():
                    counts[which] += count
                while count:
                    count -= os.splice(out, target.fileno(), count)
    finally:
        os.close(out)
        os.close(into)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            source.shutdown(socket.SHUT_RD)
