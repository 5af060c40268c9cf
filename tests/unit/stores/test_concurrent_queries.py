"""Readers in other threads while a writer commits transactions that keep an invariant."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.rocksdb import snapshot as rocksdb_instant
from statecore.stores.settings import StoreSettings
from tests.unit.stores.implementations import IMPLEMENTATIONS, QUICK

CHANGELOG = TopicPartition("app-accounts-changelog", 0)
ACCOUNTS = [b"account-%02d" % number for number in range(10)]
TOTAL = 1000
COMMITS = b"commits"


@pytest.fixture(autouse=True)
def impatient_threads() -> Iterator[None]:
    """Threads change places every few microseconds, not every five milliseconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval)


class Bank(threading.Thread):
    """Moves money between accounts: staged sums are right only at the end of a transaction."""

    def __init__(self, store: StateStore) -> None:
        super().__init__()
        self.store = store
        self.done = threading.Event()
        self.commits = 0
        self.failure: BaseException | None = None

    def begin(self) -> None:
        self.store.put_all((account, b"%d" % (TOTAL // len(ACCOUNTS))) for account in ACCOUNTS)
        self._commit()

    def run(self) -> None:
        try:
            moves = random.Random(3)
            while not self.done.is_set():
                self._move(moves)
        except BaseException as error:
            self.failure = error

    def _move(self, moves: random.Random) -> None:
        store = self.store
        with store.transaction() as transaction:
            for _ in range(3):
                giver, taker = moves.sample(ACCOUNTS, 2)
                amount = moves.randint(0, 9)
                transaction.put(giver, b"%d" % (int(transaction.get(giver) or b"0") - amount))
                transaction.put(taker, b"%d" % (int(transaction.get(taker) or b"0") + amount))
            if moves.random() < 0.2:
                return  # aborted
            self._commit()
        if self.commits % 50 == 0:
            store.flush()

    def _commit(self) -> None:
        self.commits += 1
        self.store.put(COMMITS, b"%d" % self.commits)
        self.store.update_position("in", 0, self.commits)
        self.store.commit({CHANGELOG: self.commits})


def read_committed(store: StateStore, number: int) -> tuple[int, list[str]]:
    """One query; the rows it read, and what was wrong with them."""
    wrong = []
    with store.query_view() as view:
        if number % 3 == 0:
            rows = dict(view.prefix_scan(b"account"))
        elif number % 3 == 1:
            rows = dict(view.reverse_prefix_scan(b"account"))
        else:
            rows = {key: value or b"" for key, value in zip(ACCOUNTS, view.get_many(ACCOUNTS), strict=True)}
        commits = int(view.get(COMMITS) or b"0")
        if sum(map(int, rows.values())) != TOTAL or len(rows) != len(ACCOUNTS):
            wrong.append(f"half a transaction: {rows}")
        if view.position != {"in": {0: commits}}:
            wrong.append(f"position {view.position} with rows of commit {commits}")
        if store.manages_offsets and view.committed_offset(CHANGELOG) != commits:
            wrong.append(f"offset {view.committed_offset(CHANGELOG)} with rows of commit {commits}")
    return len(rows) + 1, wrong


def read_uncommitted(store: StateStore, number: int) -> tuple[int, list[str]]:
    """A view of staged rows is no transaction, but it stands still."""
    with store.query_view(IsolationLevel.READ_UNCOMMITTED) as view:
        once = list(view.prefix_scan(b"account"))
        again = list(view.reverse_prefix_scan(b"account"))[::-1]
        points = list(zip(ACCOUNTS, view.get_many(ACCOUNTS), strict=True))
    return 3 * len(once), [] if once == again == points else [f"{once}, then {again}, then {points}"]


def beside(directory: Path, settings: StoreSettings) -> StateStore:
    """Rows in one place, offset and position in another."""
    rows = InMemoryRows(settings=settings)
    return LegacyCheckpointingStore(rows, directory, "s", [CHANGELOG], exactly_once=False)


class InMemoryRows(InMemoryStore):
    """As if it kept its rows, and no offsets: quick commits."""

    persistent = True
    manages_offsets = False

    def committed_offset(self, partition: TopicPartition) -> int | None:
        return None


STORES = {**IMPLEMENTATIONS, "offsets-beside": beside}


@pytest.mark.parametrize("implementation", STORES)
def test_a_reader_never_sees_half_a_transaction_nor_another_commit_s_position(
    tmp_path: Path, implementation: str
) -> None:
    wanted, commits = 100_000, 300
    with STORES[implementation](tmp_path, QUICK) as store:
        bank = Bank(store)
        bank.begin()
        bank.start()
        reads, wrong, seen = [0, 0], [], set()

        def committed() -> None:
            number = 0
            # As many commits may be over before the first read: it is those that were read between that count.
            while (reads[0] < wanted or bank.commits < commits or len(seen) <= 10) and not wrong and bank.is_alive():
                count, found = read_committed(store, number)
                reads[0] += count
                wrong.extend(found)
                number += 1
                seen.add(bank.commits)

        def uncommitted() -> None:
            while reads[1] < wanted // 5 and not wrong:
                count, found = read_uncommitted(store, 0)
                reads[1] += count
                wrong.extend(found)

        readers = [threading.Thread(target=committed), threading.Thread(target=uncommitted)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        bank.done.set()
        bank.join()
        assert bank.failure is None
        assert wrong == []
        assert reads[0] >= wanted
        assert len(seen) > 10  # reads and commits took turns


def test_closing_the_store_under_a_reader_is_an_error_for_it_and_nothing_worse(tmp_path: Path) -> None:
    """However the two meet, the reader gets whole views or an error that says why, and the lock is free again."""
    for _ in range(20):
        store = IMPLEMENTATIONS["rocksdb"](tmp_path, QUICK)
        store.open()
        store.put_all((b"%04d" % number, b"") for number in range(3000))
        store.commit({CHANGELOG: 1})
        outcomes: list[object] = []

        def reading(store: StateStore = store, outcomes: list[object] = outcomes) -> None:
            try:
                while True:
                    outcomes.append(len(list(store.query_view().all())))
            except BaseException as error:
                outcomes.append(error)

        reader = threading.Thread(target=reading)
        reader.start()
        while not outcomes:
            pass
        store.close()
        reader.join()
        assert isinstance(outcomes[-1], Invalid)
        assert set(outcomes[:-1]) == {3000}


def test_a_view_is_consistent_across_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view has snapshots of rows and of offsets and an iterator; a writer that wants to commit meanwhile waits."""
    with IMPLEMENTATIONS["rocksdb"](tmp_path, QUICK) as store:
        store.put(b"a", b"1")
        store.commit({CHANGELOG: 1})
        store.put(b"a", b"2")
        committing = threading.Thread(target=store.commit, args=({CHANGELOG: 2},))

        class AfterACommit(rocksdb_instant.FamilyIterator):
            def __init__(self, *arguments: Any) -> None:
                committing.start()
                committing.join(timeout=0.3)
                super().__init__(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(rocksdb_instant, "FamilyIterator", AfterACommit)
            view = store.query_view()
        committing.join()
        with view:
            assert (view.get(b"a"), list(view.all()), view.committed_offset(CHANGELOG)) == (b"1", [(b"a", b"1")], 1)
        with store.query_view() as view:
            assert (view.get(b"a"), list(view.all()), view.committed_offset(CHANGELOG)) == (b"2", [(b"a", b"2")], 2)
