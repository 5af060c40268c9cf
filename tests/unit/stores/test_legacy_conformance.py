"""Stores around other stores do all that a store does: the conformance tests, through the wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import NO_METRICS
from statecore.stores.base import StateStore
from statecore.stores.delegating_store import DelegatingStore
from statecore.stores.legacy_checkpointing import LegacyCheckpointingStore
from statecore.stores.metered import MeteredStore
from statecore.stores.settings import StoreSettings
from statecore.tasks.change_logging import ChangeLoggingStore
from tests.unit.stores import implementations
from tests.unit.stores import test_conformance as conformance
from tests.unit.stores.implementations import QUICK, Factory
from tests.unit.stores.rows_in_file import RowsInFile
from tests.unit.tasks.producing import ListedProducer


def checkpointing(directory: Path, settings: StoreSettings) -> StateStore:
    rows = RowsInFile(directory / "rows", settings)
    return LegacyCheckpointingStore(rows, directory, "s", [conformance.CHANGELOG, conformance.OTHER], exactly_once=True)


def metered(directory: Path, settings: StoreSettings) -> StateStore:
    return MeteredStore(implementations.rocksdb(directory, settings), NO_METRICS, task="0_0", name="s")


def both(directory: Path, settings: StoreSettings) -> StateStore:
    return MeteredStore(checkpointing(directory, settings), NO_METRICS, task="0_0", name="s")


def change_logging(directory: Path, settings: StoreSettings) -> StateStore:
    changelog = TopicPartition("app-logged-changelog", 0)
    inside = implementations.rocksdb(directory, settings)
    return ChangeLoggingStore(inside, ListedProducer(), changelog, transactional=True, kind=StoreKind.KEY_VALUE)


@pytest.fixture(params=[checkpointing, metered, both, change_logging], ids=lambda factory: factory.__name__)
def factory(request: pytest.FixtureRequest) -> Factory:
    made: Factory = request.param
    return made


@pytest.fixture
def store(factory: Factory, tmp_path: Path) -> Iterator[StateStore]:
    with factory(tmp_path, QUICK) as store:
        yield store


@pytest.fixture
def filled(store: StateStore) -> StateStore:
    store.put_all(conformance.ROWS.items())
    store.commit({conformance.CHANGELOG: 7})
    return store


class TestLifetime(conformance.TestLifetime):
    pass


class TestReads(conformance.TestReads):
    pass


class TestWrites(conformance.TestWrites):
    pass


class TestCommit(conformance.TestCommit):
    def test_a_failed_commit_publishes_nothing_and_can_be_repeated(
        self, filled: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inside = filled
        while isinstance(inside, DelegatingStore):
            inside = inside.wrapped
        with monkeypatch.context() as patch:
            patch.setattr(type(inside), "_publish", conformance._fails)
            filled.put(b"a", b"new")
            with pytest.raises(OSError, match="no disk"):
                filled.commit({conformance.CHANGELOG: 8})
        assert (filled.get(b"a"), filled.committed_offset(conformance.CHANGELOG)) == (b"new", 7)
        filled.commit({conformance.CHANGELOG: 8})
        assert filled.committed_offset(conformance.CHANGELOG) == 8


class TestTransactions(conformance.TestTransactions):
    pass


class TestIterators(conformance.TestIterators):
    pass


class TestQueries(conformance.TestQueries):
    pass
