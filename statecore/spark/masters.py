"""Spark masters: whether one is local, whether two are the same, and whether one can be reached.

Spark itself retries an unreachable standalone master for a minute, with pages of stack traces; this check is quick.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time

from statecore.errors import Invalid, Retryable

REACH_SECONDS = 5.0
"""How long to try a standalone master before it counts as unreachable."""

_MASTER = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[.*\]|yarn|spark://[^\s/]+|(?!spark:|https?:)\w+://\S+"
)
"""Spark's syntax of masters; an unknown scheme may be that of an external cluster manager."""

_ATTEMPT_SECONDS = 4.0
_PAUSE_SECONDS = 0.5
_DEFAULT_PORT = 7077


def is_master(master: str) -> bool:
    """Whether this is written as a Spark master."""
    return _MASTER.fullmatch(master) is not None


def is_local(master: str) -> bool:
    """Whether the executors of a master are threads of the driver."""
    return master == "local" or master.startswith("local[")


def same_master(requested: str, actual: str) -> bool:
    """Whether a context on ``actual`` runs on the master ``requested``. Kubernetes and YARN rewrite their masters."""
    if requested.startswith("spark://"):
        return actual == requested
    return actual.partition(":")[0] == requested.partition(":")[0]


def reach_master(master: str, seconds: float = REACH_SECONDS) -> None:
    """Check that a standalone master accepts connections; other masters are not checked."""
    if not is_master(master):
        raise Invalid(
            f"{master!r} is not a Spark master.",
            code="spark-master-invalid",
            action="Write spark://host:7077, local[*], local[4], yarn, or k8s://https://host:port.",
            master=master,
        )
    if not master.startswith("spark://"):
        return
    addresses = [_address(master, one) for one in master.removeprefix("spark://").split(",")]
    deadline = time.monotonic() + seconds
    while True:
        why = ""
        for host, port in addresses:
            try:
                with contextlib.closing(socket.create_connection((host, port), timeout=_ATTEMPT_SECONDS)):
                    return
            except OSError as error:
                why = error.strerror or str(error)
        if time.monotonic() + _PAUSE_SECONDS > deadline:
            raise Retryable(
                f"No Spark master can be reached at {master}: {why}.",
                code="spark-master-unreachable",
                action="Start the master, or correct its address; then start the job again.",
                master=master,
            )
        time.sleep(_PAUSE_SECONDS)


def _address(master: str, one: str) -> tuple[str, int]:
    host, colon, port = one.rpartition(":")
    if not colon:
        host, port = one, str(_DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Invalid(
            f"{master!r} is not the address of a Spark master.",
            code="spark-master-invalid",
            action="Write spark://host:port.",
            master=master,
        )
    return host.strip("[]"), int(port)
