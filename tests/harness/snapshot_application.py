"""An application whose changelogs are written at random, without the application.

It has some of the kinds of ``tests.harness.kinds`` in one topology. Its own input is empty, so that Kafka Streams, when
it is started, restores what its changelogs have, and changes nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.kinds import GLOBAL_HEADERS, GLOBALS, HEADERS, PLAIN, SOURCES, KindCase, KindsApplication
from tests.harness.rebuilding import KindsWorld
from tests.harness.snapshot_histories import History, history_of
from tests.harness.streams import StreamsJvm
from tests.harness.topics import Record

HOUR = 3_600_000
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"

_CLEANER_SECONDS = 5.0
PATIENCE = 10.0
"""Seconds for which a job waits for a transaction that is being ended."""


def application_of(seed: int, chance: Random) -> KindsApplication:
    """An application of some kinds; four seeds that follow one another, from a multiple of four on, have all kinds."""
    headers = seed % 2 == 1
    of_tasks = HEADERS if headers else PLAIN
    of_globals, sources = (GLOBAL_HEADERS, ()) if headers else (GLOBALS, SOURCES.cases)
    cases = (*of_tasks.cases, *(case for case in of_globals.cases if case.is_global), *sources)
    adds = list(dict.fromkeys(case.add for case in cases))
    Random(seed // 4 * 2 + headers).shuffle(adds)
    half = adds[seed % 4 // 2 :: 2]
    if all(case.is_global for case in cases if case.add in half):
        half.append(PLAIN.cases[0].add)  # an application without a task never gets to run
    chosen = tuple(case for case in cases if case.add in half)
    properties = {**of_tasks.properties, **of_globals.properties}
    if any(case in chosen for case in sources):
        properties |= SOURCES.properties
    roles = [*of_tasks.roles(), *of_globals.roles(), *(SOURCES.roles() if not headers else ())]
    return KindsApplication("campaign", chosen, lambda *_: [(role, []) for role in roles], properties)


class RandomApplication:
    """One application, its topics, and the histories of its store partitions.

    Args:
        seed: decides all but the clock.
        broker: where its topics are.
        jvm: where its topology is made.
        scratch: a directory for its own state.

    Attributes:
        chance: decides everything.
        world: the application.
        spec: what statecore is told.
        cases: its stores.
        kinds: the kind of each store.
        topics: the changelog of each store.
        compacted: the stores whose changelogs the broker may compact at any time.
        histories: by store and partition.
        told: what was done so far, for the message of a failure.
        transaction_wait: seconds for which a job may wait for open transactions.
    """

    def __init__(self, seed: int, broker: Broker, jvm: StreamsJvm, scratch: Path) -> None:
        self.chance = chance = Random(seed)
        self.broker = broker
        self.partitions = (seed + seed // 4 + 1) % 3 + 1
        guarantee = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)[seed % 4]
        application_id = f"campaign-{seed}-{uuid.uuid4().hex[:8]}"
        kinds = application_of(seed, chance)
        self.world = KindsWorld(broker, jvm, application_id, scratch / "own", guarantee, kinds, self.partitions)
        # Which records share a segment does not depend on the minute.
        self.world.base = base = (int(time.time() * 1000) // HOUR - 3) * HOUR
        topology = kinds.topology(self.world.inputs)(jvm)
        self.world.description = str(topology.describe().toString())
        self.spec = self.world.spec()
        self.cases = {case.store: case for case in kinds.cases}
        self.kinds = {case.store: case.kind for case in kinds.cases}
        self.topics: dict[str, str] = {}
        self.compacted: set[str] = set()
        for case in kinds.cases:
            self._make_topic(case)
        self.histories: dict[tuple[str, int], History] = {
            (case.store, partition): history_of(case.kind, chance, base, nulls=case.source is not None)
            for case in kinds.cases
            for partition in range(self.partitions)
        }
        self.silent = {key for key in self.histories if chance.random() < 0.15}
        self.told = [f"{guarantee}, {self.partitions} partitions, {', '.join(self.cases)}"]
        self.transaction_wait = PATIENCE
        self._consumed: dict[int, int] = {}

    @property
    def application_id(self) -> str:
        """The application."""
        return self.world.application_id

    def _make_topic(self, case: KindCase) -> None:
        if case.source is not None:
            self.topics[case.store] = self.world.inputs[case.source]
            return
        self.topics[case.store] = topic = f"{self.application_id}-{case.store}-changelog"
        settings = topics.UNCLEANED
        # Compaction takes away records of which the rows of a versioned store are made.
        if not case.kind.startswith("versioned") and self.chance.random() < 0.3:
            settings = topics.COMPACTED
            self.compacted.add(case.store)
        topics.create(self.world.servers, topic, self.partitions, settings)

    def tell(self, what: str) -> None:
        """Keep what is done."""
        self.told.append(what)

    def append(self) -> None:
        """Some records for some store partitions; under exactly-once in transactions, some of them aborted."""
        for _ in range(self.chance.choice((1, 2, 3))):
            records = {store: self._some_records(store) for store in self.cases}
            self._produce({self.topics[store]: made for store, made in records.items() if made})
        self.consume()

    def _some_records(self, store: str) -> list[Record]:
        chance = self.chance
        made: list[Record] = []
        for partition in range(self.partitions):
            if (store, partition) in self.silent:
                continue
            history = self.histories[store, partition]
            made += history.records(chance.choice((0, 0, 1, 5, 40)), partition)
            if self.kinds[store].endswith(("key-value", "window")) and chance.random() < 0.04:
                made += history.records(300, partition, large=True)
        if self.cases[store].is_global:  # the order of partitions is nobody's: their keys are their own
            made = [one if one.key is None else replace(one, key=b"%d" % one.partition + one.key) for one in made]
        return made

    def _produce(self, records: Mapping[str, Sequence[Record]]) -> None:
        servers = self.world.servers
        transactional = self.chance.random() < (0.8 if self.world.guarantee == EXACTLY_ONCE else 0.1)
        aborted = self.chance.random() < 0.25
        self.tell(
            f"{sum(map(len, records.values()))} records"
            + (f" in {'an aborted' if aborted else 'a'} transaction" if transactional else "")
        )
        if not transactional or not records:
            for topic, made in records.items():
                topics.produce(servers, topic, made)
            return
        first, *others = records
        with topics.transaction(servers, first, records[first]) as producer:
            for topic in others:
                topics.send(producer, topic, records[topic])
            if aborted:
                producer.abort_transaction(60)

    def consume(self, *, all_of_it: bool = False) -> None:
        """The application's group consumes some of the source topic that is a changelog."""
        for store, case in self.cases.items():
            if case.source is None or case.is_global:
                continue
            for partition in range(self.partitions):
                end = topics.end_offset(self.world.servers, self.topics[store], partition)
                done = self._consumed.get(partition, 0)
                self._consumed[partition] = end if all_of_it else self.chance.randint(done, end)
            offsets = {(self.topics[store], partition): offset for partition, offset in self._consumed.items()}
            topics.commit(self.world.servers, self.application_id, offsets)

    def compact(self) -> None:
        """One of the partitions is compacted, now and then, as soon as the broker comes to it."""
        if not self.compacted or self.chance.random() < 0.5:
            return
        store, partition = self.chance.choice(sorted(self.compacted)), self.chance.randrange(self.partitions)
        if topics.end_offset(self.world.servers, self.topics[store], partition) < 2:
            return  # of an empty log the broker begins no second segment
        (filler,) = self.histories[store, partition].records(1, partition)
        servers, topic, data = self.world.servers, self.topics[store], self.broker.data_directory
        try:
            topics.compact(servers, topic, partition, data, filler, timeout=_CLEANER_SECONDS)
        except TimeoutError:  # the broker finds too little in it that is dirty, or has more to do: later, then
            self.tell(f"{store} {partition} may be compacted at any time")
        else:
            self.tell(f"compacted {store} {partition}")

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Under exactly-once a transaction may be open meanwhile, below whose begin everything ends; or none is."""
        own = [store for store, case in sorted(self.cases.items()) if case.source is None]
        if self.world.guarantee != EXACTLY_ONCE or not own or self.chance.random() < 0.8:
            yield
            return
        store, partition = self.chance.choice(own), self.chance.randrange(self.partitions)
        records = self.histories[store, partition].records(5, partition)
        # A busy machine takes minutes for what is done meanwhile, and nobody but the test is to end it.
        producer = topics.produce_hanging(self.world.servers, self.topics[store], records, timeout_ms=900_000)
        committed = self.chance.random() < 0.5
        self.tell(f"a transaction is open on {store} {partition}, and later {'committed' if committed else 'aborted'}")
        self.transaction_wait = 0.2
        yield
        self.transaction_wait = PATIENCE
        (producer.commit_transaction if committed else producer.abort_transaction)(60)
