"""A running application of ``tests.harness.kinds``: its topics, its records, and its directory."""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml

from tests.harness import directory, topics
from tests.harness.feeds import MINUTE, SPAN, Portion
from tests.harness.kinds import KindsApplication
from tests.harness.queries import Row
from tests.harness.streams import StreamsApplication
from tests.harness.topics import Record

PARTITIONS = 2

T = TypeVar("T")

Rows = dict[tuple[str, str], dict[str, list[tuple[bytes, bytes]]]]
"""By task and store (``store/segment``): the rows of each column family."""

Answers = dict[tuple[str, int | None], list[Row]]
"""By store and partition (None: a global store): what a query answered."""


class FedApplication:
    """One application with stores of many kinds, its topics, and its state directory.

    Attributes:
        base: time of the first record in ms. Recent: the cleaner of the broker comes to what is older than a week.
        inputs: the input topics by role.
        outputs: the topics that the application writes, by role.
        description: the text of ``Topology.describe()``, once it was made.
    """

    def __init__(
        self,
        servers: str,
        application_id: str,
        state_dir: Path,
        guarantee: str,
        kinds: KindsApplication,
        partitions: int = PARTITIONS,
        base: int | None = None,
        *,
        create: bool = True,
    ) -> None:
        self.servers, self.kinds = servers, kinds
        self.application_id, self.state_dir, self.guarantee = application_id, state_dir, guarantee
        self.partitions = partitions
        self.base = (int(time.time() * 1000) - 2 * SPAN) // MINUTE * MINUTE if base is None else base
        self.inputs = {role: f"{application_id}-{role}" for role in kinds.roles()}
        self.outputs = {role: f"{application_id}-{role}" for role in kinds.outputs}
        self.description = ""
        if create:
            for topic in (*self.inputs.values(), *self.outputs.values()):
                topics.create(self.servers, topic, partitions)

    @property
    def directory(self) -> Path:
        """The application's state directory."""
        return self.state_dir / self.application_id

    def at(self, state_dir: Path) -> Self:
        """The same application with another state directory."""
        other = copy.copy(self)
        other.state_dir = state_dir
        return other

    def copied(self, name: str) -> Self:
        """The same application upon a copy of its directory as it is now, beside it."""
        other = self.at(self.state_dir.parent / name)
        shutil.copytree(self.state_dir, other.state_dir)
        return other

    def feed_all(self) -> None:
        """Feeds it everything, and waits until it has it."""
        self.feed(self.kinds.feed(self.base, self.partitions))

    def feed(self, portions: list[Portion]) -> None:
        """Produces portions, all roles' at once, and waits each time until the application has them."""
        left = list(portions)
        while left:
            roles: set[str] = set()
            while left and left[0][0] not in roles:
                role, records = left.pop(0)
                roles.add(role)
                topics.produce(self.servers, self.inputs[role], records)
            self.wait(roles)

    def wait(self, roles: set[str]) -> None:
        """Waits until the application has consumed these topics, as far as they belong to tasks."""
        of_globals = {case.source for case in self.kinds.cases if case.is_global}
        wanted = [self.inputs[role] for role in self.inputs if role in roles - of_globals]
        topics.wait_until_consumed(self.servers, self.application_id, wanted)

    def answers(self, running: StreamsApplication, until: int = SPAN) -> Answers:
        """What every store that can be asked answers; ``until`` as in ``KindsApplication.queries``."""
        running.stores = self.kinds.queries(self.base, until)
        return self.asked(running)

    def asked(self, running: StreamsApplication) -> Answers:
        """What every store answers that ``running.stores`` says how to ask."""
        found: Answers = {
            (store, p): running.query_rows(store, p) for _, store, p in running.store_tasks() if store in running.stores
        }
        for case in self.kinds.cases:
            if case.is_global:
                found[case.store, None] = running.query_rows(case.store, None)
        return found

    def rows(self) -> Rows:
        """Every row of every data column family; segments without a row are left out."""
        found = {}
        for (task, name), families in directory.read_application(self.directory).items():
            data = {family: rows for family, rows in families.items() if family != "offsets"}
            if "/" not in name or any(data.values()):
                found[task, name] = data
        return found

    def lose(self) -> None:
        """Deletes the state."""
        shutil.rmtree(self.directory)

    def spec(self) -> dict[str, Any]:
        """What statecore is told."""
        return {
            "application_id": self.application_id,
            "bootstrap_servers": self.servers,
            "processing_guarantee": self.guarantee,
            **({"transactional_state_stores": True} if self.kinds.transactional else {}),
            "subtopologies": self.kinds.subtopologies(self.description, self.inputs),
            **({"global_stores": found} if (found := self.kinds.global_stores(self.inputs)) else {}),
        }

    def write_spec(self, file: Path) -> Path:
        """The same as a file."""
        file.write_text(yaml.safe_dump(self.spec()))
        return file


def eventually(found: Callable[[], T], expected: T, timeout: float = 600.0) -> T:
    """What ``found`` returns, as soon as it is as expected, else after the timeout.

    For global stores: they belong to no group, and only the store itself has its offset.
    """
    deadline = time.monotonic() + timeout
    while (last := found()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return last


def table(records: Iterable[Record], *, timestamped: bool) -> list[Row]:
    """The answers of a table that has seen these records."""
    rows: dict[bytes, Row] = {}
    for one in records:
        if one.key is not None and one.value is not None:
            rows[one.key] = (one.key, one.value, one.timestamp if timestamped else None)
        elif one.key is not None:
            rows.pop(one.key, None)
    return sorted(rows.values())


def restored(running: StreamsApplication) -> dict[str, int]:
    """Records that Kafka Streams had to restore, by store; stores with none are left out."""
    found: dict[str, int] = {}
    for (store, _), records in running.restored_records().items():
        if records:
            found[store] = found.get(store, 0) + records
    return found
