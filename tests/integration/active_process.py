"""A process with the active task ``0_0`` of an application that counts, to be killed at a point of ``STATECORE_FAULT``.

Arguments: brokers, application id, state directory, guarantee, the offset of the input up to which it works.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition

from statecore.changelog.cluster import Cluster
from statecore.changelog.sockets import DIRECT
from statecore.faults import fault_points_from_environment
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.state_directory import StateDirectory
from statecore.tasks.active_task import ActiveTask
from statecore.tasks.commit_policy import CommitSettings
from statecore.tasks.task_stores import TaskStores
from tests.unit.tasks.counting import AGAIN, COUNTS, Counting, spec_of


class Member:
    """The Kafka clients of one member, and the active task that it makes of stores."""

    def __init__(
        self, servers: str, application_id: str, guarantee: str, cluster: Cluster, names: tuple[str, ...] = (COUNTS,)
    ) -> None:
        self.spec = spec_of(application_id, ProcessingGuarantee(guarantee), servers, names=names)
        self.cluster = cluster
        exactly_once = guarantee == "exactly_once_v2"
        more = {"transactional_id": f"{application_id}-0_0"} if exactly_once else {}
        self.producer = KafkaProducer(bootstrap_servers=servers, acks="all", proxy_url=DIRECT, **more)
        self.servers = servers
        self.consumer = self._consumer()
        self.input = TopicPartition(f"{application_id}-in", 0)
        self.output = f"{application_id}-out"
        self.processor = Counting(self.output, names)

    def _consumer(self, **more: int) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.spec.application_id,
            proxy_url=DIRECT,  # else kafka-python leaves sockets behind when the brokers are away
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **more,
        )

    def created(self, stores: TaskStores, commits: CommitSettings | None = None) -> ActiveTask:
        """An active task that is not opened yet."""
        return ActiveTask(
            stores,
            self.spec,
            self.cluster,
            self.processor,
            self.producer,
            self.consumer,
            [self.input],
            commits=commits or CommitSettings(interval_ms=0),
            faults=fault_points_from_environment(),
        )

    def active(self, stores: TaskStores, commits: CommitSettings | None = None) -> tuple[ActiveTask, int]:
        """An active task that runs, and how many records of the changelog it took for that."""
        task = self.created(stores, commits)
        task.open()
        return task, self.catch_up(task)

    def catch_up(self, task: ActiveTask) -> int:
        """Have a task run that is restoring; how many records it took for that."""
        deadline, records = time.monotonic() + 180, 0
        while True:
            caught_up = task.catch_up()
            records += caught_up.records
            if caught_up.is_complete:
                return records
            assert time.monotonic() < deadline, "it never came to the end"
            time.sleep(0.05)

    def work(self, task: ActiveTask, until: int, *, commits: bool = True) -> None:
        """Process what there is, some records at a time, up to an offset of the input; without a commit if so told."""
        at = KafkaPartition(*self.input)
        if not self.consumer.subscription():
            self.consumer.assign([at])
        self.consumer.seek(at, task.positions()[self.input] or 0)
        deadline = time.monotonic() + 180
        while (task.positions()[self.input] or 0) < until:
            assert time.monotonic() < deadline, "the input never came"
            for records in self.consumer.poll(timeout_ms=200, max_records=20).values():
                task.process(record for record in records if record.offset < until)
                if commits and task.commit_due():
                    task.commit()

    def join(self, heartbeat_ms: int) -> None:
        """Have the consumer join the group of the application, and say so this often; there is input already.

        One poll does all of it and ends with the first record: kafka-python loses the answer to a join that outlasts a
        poll, where the reason of the join was that the topic's partitions had become known (``need_rejoin``).
        """
        self.consumer.close()
        self.consumer = self._consumer(heartbeat_interval_ms=heartbeat_ms, session_timeout_ms=45_000)
        self.consumer.subscribe([self.input.topic])
        deadline = time.monotonic() + 180
        while not self.consumer.assignment():
            assert time.monotonic() < deadline, "it never joined"
            self.consumer.poll(timeout_ms=60_000, max_records=1)

    def close(self) -> None:
        """Close the clients."""
        self.consumer.close()
        self.producer.close()


def main(servers: str, application_id: str, state_dir: str, guarantee: str, until: str) -> None:
    directory = StateDirectory(Path(state_dir), application_id)
    with directory.lock(), Cluster(servers) as cluster:
        member = Member(servers, application_id, guarantee, cluster, (COUNTS, AGAIN))
        task, _ = member.active(TaskStores(member.spec, directory, "0_0"))
        member.work(task, int(until))
        task.close()
        member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
