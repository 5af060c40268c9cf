"""A way to connect for kafka-python that closes what it opened when the connection fails.

kafka-python leaves the socket of a refused connection to the garbage collector, which reports it (``ResourceWarning``)
at some later time and place. Ways to connect are classes registered by URL scheme, meant for proxies; this one goes
directly. Imports kafka-python, so it is imported late.
"""

from __future__ import annotations

import socket
from typing import Any

from kafka.net.inet import KafkaNetSocket

DIRECT = "statecore-direct://"
"""Value of kafka-python's setting ``proxy_url`` that selects `DirectSocket`."""


class DirectSocket(KafkaNetSocket):
    """Connects without a proxy."""

    SCHEMES = ("statecore-direct",)

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
