"""Counts words exactly-once with a task that restores, commits and outlives brokers by itself.

::

    python docs/examples/active_task.py --bootstrap-servers localhost:9092 --state-dir state

Reads lines from the topic ``lines``, and writes every new count to the topic ``counts``; both have one partition, as
the changelog ``active-words-words-changelog`` has. Kill it at any moment and start it again, or stop the brokers for as
long as you like: no word is lost and none is counted twice.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError

from statecore import (
    ActiveTask,
    ApplicationSpec,
    Cluster,
    CommitSettings,
    InputRecord,
    ProcessingGuarantee,
    ProcessorContext,
    Retryable,
    StatecoreError,
    StateDirectory,
    StoreKind,
    StoreSpec,
    TaskStores,
    TopicPartition,
)

APPLICATION = "active-words"
TASK = "0_0"
LINES = TopicPartition("lines", 0)


def say(line: object) -> None:
    """Tell whoever watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Counting:
    """What is done with a line."""

    def init(self, context: ProcessorContext) -> None:
        """The store is at the end of its changelog."""
        self.context = context
        self.words = context.store("words")

    def process(self, record: InputRecord) -> None:
        """Count the words of a line."""
        for word in (record.value or b"").split():
            count = b"%d" % (int(self.words.get(word) or 0) + 1)
            self.words.put(word, count)  # and sends it to the changelog
            self.context.forward("counts", word, count)

    def close(self) -> None:
        """There is nothing to close."""


def work(task: ActiveTask, consumer: KafkaConsumer, stopping: Callable[[], bool]) -> None:
    """Process lines until told to stop; what is under way is finished first."""
    task.open()  # fences an earlier instance
    while not task.catch_up(stopping).is_complete:
        if stopping():
            return
        time.sleep(0.1)
    lines = KafkaPartition(*LINES)
    consumer.assign([lines])
    consumer.seek(lines, task.positions()[LINES] or 0)
    say("running")
    while not stopping():
        for records in consumer.poll(timeout_ms=100).values():
            task.process(records)
        if task.commit_due():
            task.commit()
    task.commit()


def producer_of(servers: str) -> KafkaProducer:
    """A producer of the task, which fences those before."""
    return KafkaProducer(bootstrap_servers=servers, transactional_id=f"{APPLICATION}-{TASK}")


def consumer_of(servers: str) -> KafkaConsumer:
    """A consumer of the application."""
    return KafkaConsumer(
        bootstrap_servers=servers,
        group_id=APPLICATION,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )


def main() -> None:
    """The command line at the top of this module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--state-dir", required=True, type=Path)
    parser.add_argument("--max-block-ms", type=int, default=60_000)
    given = parser.parse_args()
    servers = given.bootstrap_servers
    words = StoreSpec("words", StoreKind.KEY_VALUE, 0, f"{APPLICATION}-words-changelog")
    spec = ApplicationSpec(APPLICATION, servers, ProcessingGuarantee.EXACTLY_ONCE_V2, (words,))
    commits = CommitSettings(interval_ms=100, max_block_ms=given.max_block_ms)
    directory = StateDirectory(given.state_dir, APPLICATION)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    with directory.lock(), Cluster(servers) as cluster, closing(TaskStores(spec, directory, TASK)) as stores:
        stores.open()
        while not signals:
            try:
                with closing(producer_of(servers)) as producer, closing(consumer_of(servers)) as consumer:
                    task = ActiveTask(stores, spec, cluster, Counting(), producer, consumer, [LINES], commits=commits)
                    try:
                        work(task, consumer, lambda: bool(signals))
                    finally:
                        task.recycle()  # the stores are open, at their last commit
            except (Retryable, KafkaError) as error:
                say(f"again: {error}")
                time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except StatecoreError as error:
        sys.exit(f"{type(error).__name__}: {error}")
