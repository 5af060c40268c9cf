"""Several real brokers in one cluster, each broker and controller in one process, on free loopback ports.

::

    with BrokerCluster(directory, 3) as cluster:
        cluster.bootstrap_servers           # all three
        cluster[2].kill()                   # one of three may be lost: the other two are a quorum

Topics get their replicas where the test wants them; a leader is moved by stopping it, or by electing the preferred one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.broker import Broker, Node, free_ports, kafka_uuid

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    # A broker that is lost is noticed soon, and so is an active controller.
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "3600",
    "unclean.leader.election.interval.ms": "1000",
    # Quotas look at two seconds, not at ten.
    "quota.window.num": "3",
}
"""What each node sets besides the harness's ``tests.harness.broker.SETTINGS``."""

_TIMEOUT = 600.0


class BrokerCluster:
    """A cluster; a context manager.

    Args:
        directory: where each node gets a directory of its own.
        nodes: how many; they are numbered from 1.
    """

    def __init__(self, directory: Path, nodes: int) -> None:
        numbers = range(1, nodes + 1)
        quorum = dict(zip(numbers, free_ports(nodes), strict=True))
        cluster_id = kafka_uuid()
        self._nodes = {
            number: Broker(
                directory / str(number), heap_mb=256, settings=SETTINGS, node=Node(number, cluster_id, quorum)
            )
            for number in numbers
        }

    def __getitem__(self, number: int) -> Broker:
        return self._nodes[number]

    @property
    def bootstrap_servers(self) -> str:
        """All nodes that were ever started, running or not."""
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    def start(self) -> None:
        """Starts all nodes that do not run, at once: none is ready before a quorum is."""
        stopped = [node for node in self._nodes.values() if not node.running]
        with ThreadPoolExecutor(max(1, len(stopped))) as pool:
            list(pool.map(Broker.start, stopped))

    def stop(self) -> None:
        """Ends all nodes."""
        for node in self._nodes.values():
            node.kill()  # a clean stop of the last ones would wait for a quorum that is gone

    def __enter__(self) -> BrokerCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def create(self, topic: str, replicas: list[int], config: Mapping[str, str] | None = None) -> None:
        """Creates a topic of one partition with its replicas on these nodes, the first preferred, all in sync."""
        new = NewTopic(topic, 1, replica_assignment=[replicas], config=dict(config or {}))
        self.wait_until(lambda: self._has_created(new))
        self.wait_until(lambda: self.in_sync(topic) == set(replicas))
        if self.leader(topic) != replicas[0]:  # it had just come back when the topic was made, and led nothing yet
            self.elect_preferred(topic)
        self.wait_until(lambda: self.leader(topic) == replicas[0])

    def _has_created(self, new: NewTopic) -> bool:
        """Create a topic; false if the client lost the broker that it had asked, whatever became of the request."""
        admin = self._admin()  # it has to live until the answer
        try:
            admin.create_topics([new])[new.topic].result(_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._DESTROY_BROKER:
                return False
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    def leader(self, topic: str) -> int:
        """The node that leads partition 0, -1 for none."""
        found = self._admin().list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions.get(0)
        return -1 if found is None else int(found.leader)

    def in_sync(self, topic: str) -> set[int]:
        """The nodes whose replica of partition 0 is in sync."""
        found = self._admin().list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions.get(0)
        return set() if found is None else set(found.isrs)

    def elect_preferred(self, topic: str) -> None:
        """Moves the leader of partition 0 to the first of its replicas."""
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(_TIMEOUT)

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        """Waits for a condition that the cluster comes to by itself."""
        deadline = time.monotonic() + _TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("the cluster did not come to it")
            time.sleep(0.05)

    def _admin(self) -> AdminClient:
        # A new one each time: an old one keeps asking the node it knows, which may be the one that is gone.
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "log.connection.close": False})
