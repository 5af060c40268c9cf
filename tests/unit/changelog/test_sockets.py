"""What kafka-python keeps to itself and this project uses: every name of it, as the pinned version has it."""

from __future__ import annotations

import ast
import inspect
import re
import socket
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.metadata import ApiVersionsRequest

import statecore
from statecore.changelog import sockets
from statecore.changelog.cluster import Cluster
from statecore.changelog.sockets import connect_apart, take_socket
from tests.unit.changelog.conftest import Connect
from tests.unit.changelog.scripted import ScriptedBrokers

PACKAGE = Path(statecore.__file__).parent
WHO_KNOWS_KAFKA = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if re.search(r"^\s*(from|import) kafka\b", path.read_text(), re.MULTILINE)
]

USED = {
    "_auth_failures": "of a manager: brokers that rejected this client, which it does not connect to again",
    "_build_transport": "of a manager: makes the socket and the transport of a connection; replaced here",
    "_closed": "of a transport: it takes no more requests, and closes nothing",
    "_connect": "of a manager: makes a connection ready, with versions and authentication",
    "_net": "of a manager and of a transport: the event loop",
    "_protocol": "of a transport: the connection that gets what it receives",
    "_read_task": "of a transport: its task that receives",
    "_reauth": "of a connection: authenticates anew before the session runs out",
    "_sock": "of a transport: its socket",
    "_sock_recv": "of a transport: receives what there is; replaced here",
}


GROUP = {"_client", "_conns", "_coordinator", "_heartbeat_enabled", "_join_task", "_manager", "_sock"}
"""Those of ``kafka_group.py``, which says what for."""
GIVEN_UP = {"_sender"}
"""That of ``bounded_producer.py``, whose tests hold it to the pinned version: what a producer sends with."""


def private(path: Path) -> Iterator[str]:
    """Names with an underscore that a module uses of other objects than its own, or that it replaces."""
    tree = ast.parse(path.read_text())
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            foreign = not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            if foreign or (path.name == "sockets.py" and node.attr in own):
                yield node.attr
        if path.name == "sockets.py" and isinstance(node, ast.ClassDef):
            methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield from (name for name in methods if re.match("_[a-z]", name))


def test_three_modules_use_what_is_kafka_pythons_own_and_every_name_is_listed() -> None:
    assert PACKAGE / "changelog" / "sockets.py" in WHO_KNOWS_KAFKA
    found = {path.name: set(private(path)) for path in WHO_KNOWS_KAFKA}
    assert found.pop("sockets.py") == set(USED)
    assert found.pop("kafka_group.py") == GROUP
    assert found.pop("bounded_producer.py") == GIVEN_UP
    assert {name: names for name, names in found.items() if names} == {}


def test_kafka_python_is_pinned_to_the_version_whose_names_these_are() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    (pinned,) = (one for one in project["dependencies"] if one.startswith("kafka-python"))
    assert pinned == f"kafka-python=={version('kafka-python')}"


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (KafkaConnectionManager, "_build_transport", ["self", "node", "timeout_at"]),
        (KafkaConnectionManager, "_connect", ["self", "node", "conn", "reset_backoff_on_connect", "timeout_at"]),
        (KafkaTCPTransport, "_sock_recv", ["self"]),
        (KafkaTCPTransport, "__init__", ["self", "net", "sock", "host"]),
        (KafkaSSLTransport, "__init__", ["self", "net", "sock", "host", "configs"]),
        (KafkaNetSocket, "sock_connect", ["self", "net", "sock", "sockaddr", "timeout_at"]),
        (KafkaConnection, "__init__", ["self", "net", "node_id", "broker_version_data", "configs"]),
    ],
)
def test_what_is_called_or_replaced_takes_what_it_is_given(owner: type, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


@pytest.mark.parametrize("name", ["_build_transport"])
def test_the_manager_that_is_used_has_its_own(name: str) -> None:
    assert getattr(sockets.ConnectionManager, name) is not getattr(KafkaConnectionManager, name)


def apart(cluster: Cluster) -> Any:
    """A ready connection of its own, from inside the event loop."""

    async def connecting() -> Any:
        broker = cluster.manager.cluster.broker_metadata(0)
        return await connect_apart(cluster.manager, broker, cluster.deadline())

    cluster.list_topics()
    return cluster.run(connecting)


def test_a_ready_connection_has_what_is_taken_from_it(brokers: ScriptedBrokers, connect: Connect) -> None:
    cluster = connect(brokers)
    connection = apart(cluster)
    transport = connection.transport
    assert cluster.manager._net is transport._net
    assert connection.connected
    assert callable(connection._reauth.cancel)
    assert transport._protocol is connection
    assert transport._read_task is not None
    assert transport._closed is False
    assert isinstance(transport._sock, socket.socket)
    assert type(transport)._sock_recv is not KafkaTCPTransport._sock_recv
    connection.close()


def test_a_socket_that_was_taken_is_neither_read_nor_closed_by_kafka_python(
    brokers: ScriptedBrokers, connect: Connect
) -> None:
    cluster = connect(brokers)
    connection = apart(cluster)
    transport = connection.transport
    with take_socket(connection) as taken:
        assert (transport._sock, transport._protocol, transport._read_task) == (None, None, None)
        assert transport._closed
        assert not connection.connected
        request = ApiVersionsRequest(version=0)
        request.with_header(correlation_id=77, client_id="test")
        taken.settimeout(10)
        taken.sendall(request.encode(framed=True, header=True))
        brokers.wait(lambda: len(brokers.asked(ApiVersionsRequest)) == 3)
        cluster.list_topics()  # the event loop runs, and leaves the answer where it is
        assert taken.recv(8)[4:] == (77).to_bytes(4)
        connection.close()
        cluster.close()
        brokers.wait(lambda: brokers.open_connections() == 1)
    brokers.wait(lambda: brokers.open_connections() == 0)
