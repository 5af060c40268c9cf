from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from statecore.errors import Capacity, Fenced, Invalid, Retryable
from statecore.formats.kinds import StoreKind
from statecore.formats.rows.values import encode_value
from statecore.formats.topic_partition import TopicPartition
from statecore.metrics import NO_METRICS
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.metered import MeteredStore
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.tasks.change_logging import ChangeLoggingStore, check_kind, kind_of, logged_store
from tests.harness.raising import raises
from tests.unit.tasks.producing import ListedProducer

CHANGELOG = TopicPartition("app-s-changelog", 2)


class ProducerFencedError(Exception):
    """As kafka-python calls it."""


def logged(store: InMemoryStore, producer: ListedProducer, *, transactional: bool = False) -> ChangeLoggingStore:
    made = ChangeLoggingStore(store, producer, CHANGELOG, transactional=transactional)
    made.open()
    return made


@pytest.fixture
def producer() -> ListedProducer:
    return ListedProducer(first=40)


@pytest.fixture
def store(producer: ListedProducer) -> ChangeLoggingStore:
    return logged(InMemoryStore(), producer)


def test_every_write_is_sent_and_a_read_is_not(store: ChangeLoggingStore, producer: ListedProducer) -> None:
    store.put(b"a", b"1")
    store.put_all([(b"b", b"2"), (b"a", None)])
    store.delete(b"c")
    assert store.put_if_absent(b"b", b"9") == b"2"
    assert store.put_if_absent(b"d", b"4") is None
    store.get(b"a")
    list(store.all())
    assert [(sent.key, sent.value) for sent in producer.records] == [
        (b"a", b"1"),
        (b"b", b"2"),
        (b"a", None),
        (b"c", None),
        (b"d", b"4"),
    ]
    assert {(sent.topic, sent.partition) for sent in producer.records} == {CHANGELOG}
    assert dict(store.all()) == {b"b": b"2", b"d": b"4"}


def test_a_commit_flushes_and_stands_at_the_greatest_offset_acknowledged(
    store: ChangeLoggingStore, producer: ListedProducer
) -> None:
    store.put_all([(b"a", b"1"), (b"b", b"2")])
    assert store.committed_offset(CHANGELOG) is None
    store.commit()
    assert (producer.happened, store.committed_offset(CHANGELOG)) == (["flush"], 41)
    store.commit()
    assert producer.happened == ["flush"]
    store.put(b"a", b"3")
    other = TopicPartition("in", 0)
    store.commit({other: 7})
    assert (store.committed_offset(CHANGELOG), store.committed_offset(other)) == (42, 7)


def test_with_transactions_nothing_is_flushed_and_an_aborted_one_leaves_no_trace(producer: ListedProducer) -> None:
    store = logged(InMemoryStore(), producer, transactional=True)
    store.put(b"a", b"1")
    store.abort()
    store.put(b"b", b"2")
    store.commit()
    assert (producer.happened, dict(store.all()), store.committed_offset(CHANGELOG)) == ([], {b"b": b"2"}, 41)
    with store.transaction() as transaction:
        transaction.put(b"c", b"3")
    with store.transaction() as transaction:
        transaction.put(b"d", b"4")
        transaction.commit({})
    assert (dict(store.all()), store.committed_offset(CHANGELOG)) == ({b"b": b"2", b"d": b"4"}, 43)


def test_without_transactions_what_was_dropped_after_it_was_sent_has_to_be_restored(
    store: ChangeLoggingStore, producer: ListedProducer
) -> None:
    """A later commit would put the offset past records that the store lacks."""
    store.abort()
    store.put(b"a", b"1")
    store.abort()
    for call in (lambda: store.put(b"b", b"2"), store.commit, lambda: store.commit({CHANGELOG: 50})):
        with raises(Invalid, "changelog-ahead"):
            call()
    store.close()
    store.open()
    store.put(b"b", b"2")
    store.commit()
    assert store.committed_offset(CHANGELOG) == 41


@pytest.mark.parametrize(("error", "kind"), [(TimeoutError("slow"), Retryable), (ProducerFencedError("x"), Fenced)])
@pytest.mark.parametrize("transactional", [False, True])
def test_nothing_is_committed_when_a_record_was_not_acknowledged(
    producer: ListedProducer, error: Exception, kind: type[Fenced | Retryable], transactional: bool
) -> None:
    store = logged(InMemoryStore(), producer, transactional=transactional)
    store.put(b"a", b"1")
    producer.failing = error
    store.put(b"b", b"2")
    producer.failing = None
    store.put(b"c", b"3")
    code = "producer-fenced" if kind is Fenced else "record-not-acknowledged"
    with raises(kind, code, topic="app-s-changelog", partition=2):
        store.commit()
    with store.query_view() as view:
        assert (list(view.all()), view.committed_offset(CHANGELOG)) == ([], None)
    with pytest.raises(Invalid, match="restore"):
        store.commit()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TypeError("no header"), Invalid), (OSError("gone"), Retryable), (ProducerFencedError(), Fenced)],
)
def test_a_record_that_cannot_be_sent_is_not_committed(
    store: ChangeLoggingStore, producer: ListedProducer, error: Exception, kind: type[Exception]
) -> None:
    producer.refusing = error
    with pytest.raises(kind):
        store.put(b"a", b"1")
    producer.refusing = None
    with pytest.raises(Invalid, match="restore"):
        store.commit()
    store.abort()
    assert store.get(b"a") is None


def test_a_row_whose_record_a_signal_handler_kept_from_being_sent_is_not_committed(
    store: ChangeLoggingStore, producer: ListedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    store.put(b"a", b"1")
    monkeypatch.setattr(producer, "send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put(b"b", b"2")
    with raises(Invalid, "changelog-ahead"):
        store.commit()
    assert store.committed_offset(CHANGELOG) is None


def test_a_producer_without_acknowledgements_is_refused() -> None:
    """With ``acks=0`` every offset is -1."""
    store = logged(InMemoryStore(), ListedProducer(first=-1))
    store.put(b"a", b"1")
    with pytest.raises(Invalid, match="acks='all'"):
        store.commit()
    assert store.committed_offset(CHANGELOG) is None


def test_a_commit_of_the_store_that_failed_can_be_repeated(producer: ListedProducer) -> None:
    class Full(InMemoryStore):
        full = True

        def commit(self, offsets: Mapping[TopicPartition, int | None]) -> None:
            if self.full:
                raise Capacity("No room.", code="test-error", action="Make some.")
            super().commit(offsets)

    inside = Full()
    store = logged(inside, producer)
    store.put(b"a", b"1")
    with pytest.raises(Capacity):
        store.commit()
    inside.full = False
    store.commit()
    assert (dict(store.all()), store.committed_offset(CHANGELOG)) == ({b"a": b"1"}, 40)


def test_acknowledgements_are_taken_as_they_come_so_that_few_are_kept(producer: ListedProducer) -> None:
    store = ChangeLoggingStore(InMemoryStore(), producer, CHANGELOG, most_in_flight=5)
    store.open()
    for number in range(20):
        store.put(b"%d" % number, b"x")
        assert len(store._sent) <= 5
    producer.records[-1].error = TimeoutError()
    with pytest.raises(Retryable):
        store.commit()
    store.abort()
    store.close()


def test_what_is_not_bytes_is_neither_staged_nor_sent(store: ChangeLoggingStore, producer: ListedProducer) -> None:
    for key, value in ((b"a", "1"), ("a", b"1"), (b"a", bytearray(b"1"))):
        with pytest.raises(Invalid, match="bytes"):
            store.put(key, value)  # type: ignore[arg-type]
    assert (producer.records, store.uncommitted_bytes) == ([], 0)


def test_records_have_the_raw_value_and_the_row_s_own_timestamp_and_headers(
    producer: ListedProducer, tmp_path: Path
) -> None:
    def sent(kind: StoreKind, row: bytes | None) -> tuple[bytes | None, int | None, list[tuple[str, bytes]]]:
        with ChangeLoggingStore(
            RocksDBStore(tmp_path / kind, kind, create_if_missing=True), producer, CHANGELOG
        ) as store:
            store.record_timestamp = 5
            store.put(b"k", row)
            last = producer.records[-1]
            return last.value, last.timestamp_ms, last.headers

    headers = [("a", b"1"), ("a", b"")]
    for kind, expected in (
        (StoreKind.KEY_VALUE, (b"v", 5, [])),
        (StoreKind.TIMESTAMPED_KEY_VALUE, (b"v", 1_000, [])),
        (StoreKind.HEADERS_KEY_VALUE, (b"v", 1_000, headers)),
    ):
        assert sent(kind, encode_value(kind, b"v", 1_000, headers)) == expected
        assert sent(kind, None) == (None, 5, [])
    with raises(Invalid, "row-format-invalid", kind="timestamped-key-value"):
        sent(StoreKind.TIMESTAMPED_KEY_VALUE, b"short")


def test_kinds_with_several_rows_or_records_are_refused(producer: ListedProducer, tmp_path: Path) -> None:
    with raises(Invalid, "kind-unsupported"):
        ChangeLoggingStore(RocksDBStore(tmp_path / "w", StoreKind.WINDOW), producer, CHANGELOG)
    with raises(Invalid, "kind-unsupported"):
        ChangeLoggingStore(InMemoryStore(), producer, CHANGELOG, kind=StoreKind.VERSIONED_KEY_VALUE)


def test_a_restore_writes_to_the_store_inside(store: ChangeLoggingStore) -> None:
    metered = MeteredStore(store, NO_METRICS, task="0_0", name="s")
    assert logged_store(metered) is store.wrapped
    assert logged_store(store.wrapped) is store.wrapped


KINDS = {StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.HEADERS_KEY_VALUE, StoreKind.LIST}


def test_a_rocksdb_store_knows_its_kind_through_wrappers(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path, StoreKind.TIMESTAMPED_KEY_VALUE)
    assert kind_of(MeteredStore(store, NO_METRICS, task="0_0", name="s")) is StoreKind.TIMESTAMPED_KEY_VALUE
    assert kind_of(InMemoryStore()) is StoreKind.KEY_VALUE


@pytest.mark.parametrize("kind", list(StoreKind))
def test_kinds_that_one_database_cannot_keep_up_record_by_record_are_refused(kind: StoreKind) -> None:
    if kind in KINDS:
        check_kind(kind)
        return
    with raises(Invalid, "kind-unsupported", kind=kind.value):
        check_kind(kind)
