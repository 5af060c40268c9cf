"""Counts words exactly-once, in plain Python: a Kafka transaction, and a store that keeps its own offset.

::

    python docs/examples/word_count.py --bootstrap-servers localhost:9092 --state-dir state --partition 0

Reads lines from the topic ``lines``, keeps a count for each word in a store, and writes every new count to the topic
``counts``. Kill it at any moment (``kill -9``), start it again: no word is lost and none is counted twice.

Why that holds. For each batch of lines, in this order::

    Kafka transaction:  counts out, changelog records out, input offsets   one transaction: all or nothing
    store commit:       rows and changelog offset                          one write: all or nothing

A kill before the first is over aborts the transaction, and the store never saw the batch. A kill between the two leaves
the store behind the changelog, by exactly the records between its committed offset and the end: they are applied at the
next start. The store is never ahead, because it commits last.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from statecore import (
    ChangeLoggingStore,
    Cluster,
    RocksDBStore,
    StatecoreError,
    StoreKind,
    TopicPartition,
    committed_offsets,
    restore,
)

APPLICATION = "word-count"


def say(line: str) -> None:
    """Tell whoever watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class WordCount:
    """One partition's processor."""

    def __init__(self, servers: str, state_dir: Path, partition: int) -> None:
        lines = TopicPartition("lines", partition)
        changelog = TopicPartition(f"{APPLICATION}-words-changelog", partition)
        path = state_dir / APPLICATION / f"0_{partition}" / "rocksdb" / "words"
        store = RocksDBStore(path, StoreKind.KEY_VALUE, create_if_missing=True)
        store.open()  # first: a second instance on this directory ends here and leaves the one that runs alone
        transactional_id = f"{APPLICATION}-{partition}"  # a later instance elsewhere fences this one
        self.producer = KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=10_000
        )
        self.producer.init_transactions()  # aborts what a killed predecessor left open
        self.store = ChangeLoggingStore(store, self.producer, changelog, transactional=True)
        with Cluster(servers) as cluster:
            cluster.log_offsets([TopicPartition("counts", 0)])  # a producer would wait a minute for a topic to appear
            say(f"caught up: {restore(self.store, changelog, cluster).records} records")
            # Not the consumer's own look at them: it does not wait for a transaction that is just being committed.
            consumed = committed_offsets(cluster, APPLICATION, [lines])[lines]
        self.input = KafkaPartition(*lines)
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",  # where the first lines are gone already
        )
        self.consumer.assign([self.input])
        self.consumer.seek(self.input, consumed or 0)

    def run(self) -> None:
        """Process lines until told to stop; what is under way is finished first."""
        stopping: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
        say("running")
        while not stopping:
            for lines in self.consumer.poll(timeout_ms=200, max_records=500).values():
                self.process([line.value or b"" for line in lines], lines[-1].offset + 1)
        for one in (self.store, self.consumer, self.producer):
            one.close()

    def process(self, lines: list[bytes], next_offset: int) -> None:
        """Count the words of some lines; all of it happens, or nothing."""
        self.producer.begin_transaction()
        for word, more in Counter(word for line in lines for word in line.split()).items():
            count = b"%d" % (int(self.store.get(word) or 0) + more)
            self.store.put(word, count)  # and sends it to the changelog
            self.producer.send("counts", count, word)
        consumed = {self.input: OffsetAndMetadata(next_offset, "", -1)}
        self.producer.send_offsets_to_transaction(consumed, APPLICATION)
        self.producer.commit_transaction()
        self.store.commit()


def main() -> None:
    """The command line at the top of this module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--state-dir", required=True, type=Path)
    parser.add_argument("--partition", type=int, default=0)
    given = parser.parse_args()
    try:
        WordCount(given.bootstrap_servers, given.state_dir, given.partition).run()
    except StatecoreError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
