"""What every store does, whatever it keeps its rows in."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import Fenced, Invalid
from statecore.formats.topic_partition import TopicPartition
from statecore.isolation import IsolationLevel
from statecore.stores.base import StateStore, commit_requested
from statecore.stores.settings import StoreSettings
from tests.harness.raising import raises
from tests.unit.stores.implementations import IMPLEMENTATIONS, QUICK, Factory

CHANGELOG = TopicPartition("app-store-changelog", 0)
OTHER = TopicPartition("app-store-changelog", 1)
ROWS: dict[bytes, bytes] = {b"": b"5", b"a": b"1", b"ab": b"", b"b": b"3", b"\xff": b"6", b"\xff\xff": b"4"}
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


@pytest.fixture(params=IMPLEMENTATIONS)
def factory(request: pytest.FixtureRequest) -> Factory:
    return IMPLEMENTATIONS[request.param]


@pytest.fixture
def store(factory: Factory, tmp_path: Path) -> Iterator[StateStore]:
    with factory(tmp_path, QUICK) as store:
        yield store


@pytest.fixture
def filled(store: StateStore) -> StateStore:
    store.put_all(ROWS.items())
    store.commit({CHANGELOG: 7})
    return store


class TestLifetime:
    def test_it_is_open_between_open_and_close_and_both_may_be_repeated(self, factory: Factory, tmp_path: Path) -> None:
        store = factory(tmp_path, QUICK)
        assert not store.is_open
        store.close()
        store.open()
        store.open()
        assert store.is_open
        store.close()
        store.close()
        assert not store.is_open

    def test_nothing_works_while_it_is_closed(self, factory: Factory, tmp_path: Path) -> None:
        store = factory(tmp_path, QUICK)
        for call in (
            lambda: store.get(b"a"),
            lambda: store.get_many([b"a"]),
            store.all,
            lambda: store.put(b"a", b"b"),
            lambda: store.commit({CHANGELOG: 1}),
            store.abort,
            store.flush,
            store.query_view,
            store.approximate_num_entries,
            lambda: store.committed_offset(CHANGELOG),
            lambda: store.position,
            store.transaction,
        ):
            with raises(Invalid, "store-not-open"):
                call()

    def test_committed_rows_are_there_after_reopening_if_it_is_persistent(
        self, factory: Factory, tmp_path: Path
    ) -> None:
        with factory(tmp_path, QUICK) as store:
            store.put_all(ROWS.items())
            store.commit({CHANGELOG: 7})
            store.delete(b"a")
        with factory(tmp_path, QUICK) as store:
            assert dict(store.all()) == (ROWS if store.persistent else {})
            assert store.committed_offset(CHANGELOG) == (7 if store.persistent and store.manages_offsets else None)

    def test_it_flushes(self, filled: StateStore) -> None:
        filled.flush()
        assert dict(filled.all()) == ROWS

    def test_a_persistent_store_is_fenced_while_another_has_it(self, factory: Factory, tmp_path: Path) -> None:
        with factory(tmp_path, QUICK) as store:
            if not store.persistent:
                return
            with pytest.raises(Fenced, match="Stop the process"):
                factory(tmp_path, QUICK).open() if (tmp_path / "rows.lock").exists() else _reopen(tmp_path)
            store.put(b"a", b"1")
            store.commit({CHANGELOG: 1})
        with factory(tmp_path, QUICK) as store:
            assert store.get(b"a") == b"1"


def _reopen(directory: Path) -> None:
    IMPLEMENTATIONS["rocksdb"](directory, QUICK).open()


class TestReads:
    def test_points(self, filled: StateStore) -> None:
        assert [filled.get(key) for key in ROWS] == list(ROWS.values())
        assert filled.get(b"absent") is None

    def test_batches_keep_the_order_of_their_keys(self, filled: StateStore) -> None:
        assert filled.get_many([b"b", b"absent", b"", b"b"]) == [b"3", None, b"5", b"3"]
        assert filled.get_many([]) == []
        filled.delete(b"b")
        filled.put(b"absent", b"now")
        assert filled.get_many([b"b", b"absent", b"", b"ab"]) == [None, b"now", b"5", b""]

    @pytest.mark.parametrize(
        ("first", "last"), [(None, None), (b"a", b"b"), (b"aa", None), (None, b"ab"), (b"b", b"a"), (b"", b"")]
    )
    def test_ranges_include_both_ends_and_run_both_ways(
        self, filled: StateStore, first: bytes | None, last: bytes | None
    ) -> None:
        wanted = [
            (key, ROWS[key])
            for key in sorted(ROWS)
            if (first is None or key >= first) and (last is None or key <= last)
        ]
        assert list(filled.range(first, last)) == wanted
        assert list(filled.reverse_range(first, last)) == wanted[::-1]

    @pytest.mark.parametrize("prefix", [b"", b"a", b"ab", b"abc", b"\xff", b"\xff\xff", b"\xff\xff\xff"])
    def test_prefixes_both_ways(self, filled: StateStore, prefix: bytes) -> None:
        wanted = [(key, ROWS[key]) for key in sorted(ROWS) if key.startswith(prefix)]
        assert list(filled.prefix_scan(prefix)) == wanted
        assert list(filled.reverse_prefix_scan(prefix)) == wanted[::-1]

    def test_everything_both_ways(self, filled: StateStore) -> None:
        assert list(filled.all()) == sorted(ROWS.items())
        assert list(filled.reverse_all()) == sorted(ROWS.items(), reverse=True)

    @pytest.mark.parametrize("reverse", [False, True])
    def test_more_rows_than_fit_a_chunk_come_once_each(self, store: StateStore, reverse: bool) -> None:
        rows = {b"%05d" % n: b"%d" % n for n in range(5000)}
        store.put_all(rows.items())
        store.commit({CHANGELOG: 1})
        store.put_all((b"%05d" % n, None if n % 2 else b"new") for n in range(0, 5000, 3))
        rows |= {b"%05d" % n: b"new" for n in range(0, 5000, 6)}
        for n in range(3, 5000, 6):
            del rows[b"%05d" % n]
        assert list(store.scan(None, None, reverse=reverse)) == sorted(rows.items(), reverse=reverse)

    def test_entries_are_counted(self, filled: StateStore) -> None:
        assert filled.approximate_num_entries() == len(ROWS)


class TestWrites:
    def test_none_deletes_and_so_does_delete(self, filled: StateStore) -> None:
        filled.put(b"a", None)
        filled.delete(b"ab")
        filled.delete(b"absent")
        filled.commit({CHANGELOG: 8})
        assert dict(filled.all()) == {key: value for key, value in ROWS.items() if key not in (b"a", b"ab")}

    def test_many_rows_at_once(self, filled: StateStore) -> None:
        filled.put_all([(b"a", None), (b"c", b"1"), (b"c", b"2")])
        assert filled.get_many([b"a", b"c"]) == [None, b"2"]

    def test_a_row_that_is_there_is_kept_when_absent_was_asked_for(self, filled: StateStore) -> None:
        assert filled.put_if_absent(b"a", b"new") == b"1"
        assert filled.put_if_absent(b"ab", b"new") == b""
        assert filled.put_if_absent(b"c", b"new") is None
        assert filled.put_if_absent(b"c", b"newer") == b"new"
        filled.delete(b"a")
        assert filled.put_if_absent(b"a", b"again") is None
        assert filled.get_many([b"a", b"ab", b"c"]) == [b"again", b"", b"new"]

    @pytest.mark.parametrize(("key", "value"), [("a", b"1"), (b"a", "1"), (bytearray(b"a"), b"1"), (b"a", 1)])
    def test_what_is_not_bytes_is_refused_before_it_is_staged(
        self, filled: StateStore, key: bytes, value: bytes
    ) -> None:
        with raises(Invalid, "row-not-bytes"):
            filled.put(key, value)
        assert filled.uncommitted_bytes == 0

    @pytest.mark.parametrize("key", ["a", bytearray(b"a"), memoryview(b"a"), 1])
    def test_what_is_not_bytes_is_refused_as_a_key_to_read(self, filled: StateStore, key: bytes) -> None:
        """And not called corruption, nor absent."""
        with filled.query_view() as view:
            for rows in (filled, view):
                for read in (
                    lambda rows=rows: rows.get(key),
                    lambda rows=rows: rows.get_many([b"a", key]),
                    lambda rows=rows: rows.range(key, None),
                    lambda rows=rows: rows.reverse_range(None, key),
                    lambda rows=rows: rows.prefix_scan(key),
                    lambda rows=rows: rows.reverse_prefix_scan(key),
                    lambda rows=rows: rows.scan(key, None),
                ):
                    with raises(Invalid, "row-not-bytes"):
                        read()
        with raises(Invalid, "row-not-bytes"):
            filled.put_if_absent(key, b"1")


class TestCommit:
    @pytest.mark.parametrize("offset", [-1, -5, 1 << 63, "5", 1.5])
    def test_what_is_no_offset_is_refused_and_nothing_is_committed(self, filled: StateStore, offset: int) -> None:
        filled.put(b"a", b"new")
        with pytest.raises(Invalid, match="offset"):
            filled.commit({OTHER: 5, CHANGELOG: offset})
        with filled.query_view() as view:
            assert (view.get(b"a"), view.committed_offset(OTHER)) == (b"1", None)
        filled.commit({CHANGELOG: (1 << 63) - 1})
        assert filled.committed_offset(CHANGELOG) == ((1 << 63) - 1 if filled.manages_offsets else None)

    @pytest.mark.parametrize(
        "wrong",
        [("in", 0, wrong) for wrong in (1 << 63, -1, "x", 1.0, True)]
        + [("in", wrong, 1) for wrong in ("0", 1 << 31, -1, False)]
        + [(wrong, 0, 1) for wrong in (5, "", "a topic")],
    )
    def test_what_is_no_position_is_refused_and_nothing_is_changed(
        self, filled: StateStore, wrong: tuple[str, int, int]
    ) -> None:
        filled.update_position("in", 0, 3)
        with pytest.raises(Invalid, match=r"Error code: (offset|partition)-invalid"):
            filled.update_position(*wrong)
        assert filled.position == {"in": {0: 3}}
        filled.commit({CHANGELOG: 8})
        with filled.query_view() as view:
            assert view.position == {"in": {0: 3}}

    def test_a_position_moves_forward_only_and_is_given_as_a_copy(self, filled: StateStore) -> None:
        filled.update_position("in", 0, 5)
        filled.update_position("in", 0, 3)
        filled.update_position("in", 1, 0)
        filled.position["in"][0] = 99
        filled.position["other"] = {}
        assert filled.position == {"in": {0: 5, 1: 0}}
        filled.commit({CHANGELOG: 8})
        filled.update_position("in", 0, 4)
        filled.update_position("in", 1, 7)
        assert filled.position == {"in": {0: 5, 1: 7}}
        filled.abort()
        assert filled.position == {"in": {0: 5, 1: 0}}
        filled.commit({})
        with filled.query_view() as view:
            assert view.position == {"in": {0: 5, 1: 0}}

    def test_offsets_are_added_kept_and_forgotten(self, store: StateStore) -> None:
        store.update_position("in", 0, 5)
        store.commit({CHANGELOG: 1, OTHER: -4})
        store.commit({CHANGELOG: 2})
        store.put(b"a", b"1")
        if not store.manages_offsets:
            assert store.committed_offset(CHANGELOG) is None
            store.forget_offsets()
        else:
            assert (store.committed_offset(CHANGELOG), store.committed_offset(OTHER)) == (2, -4)
            store.commit({OTHER: None})
            assert (store.committed_offset(CHANGELOG), store.committed_offset(OTHER)) == (2, None)
            assert store.position == {"in": {0: 5}}
            store.put(b"a", b"2")
            store.forget_offsets()
        with store.query_view() as view:
            assert (view.committed_offset(CHANGELOG), view.position) == (None, {})
            assert view.get(b"a") == store.get(b"a") is not None
        assert (store.committed_offset(CHANGELOG), store.position, store.uncommitted_bytes) == (None, {}, 0)

    def test_a_commit_that_names_no_offset_publishes_rows_and_position_and_keeps_the_offsets(
        self, filled: StateStore
    ) -> None:
        filled.put(b"a", b"new")
        filled.update_position("in", 0, 5)
        filled.commit({})
        with filled.query_view() as view:
            assert (view.get(b"a"), view.position) == (b"new", {"in": {0: 5}})
            assert view.committed_offset(CHANGELOG) == (7 if filled.manages_offsets else None)
        assert filled.committed_offset(CHANGELOG) == (7 if filled.manages_offsets else None)

    def test_nothing_is_left_uncommitted(self, filled: StateStore) -> None:
        assert filled.uncommitted_bytes == 0
        filled.abort()
        assert dict(filled.all()) == ROWS

    def test_a_failed_commit_publishes_nothing_and_can_be_repeated(
        self, filled: StateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filled.update_position("in", 0, 9)
        filled.put(b"a", b"new")
        with monkeypatch.context() as patch:
            patch.setattr(type(filled), "_publish", _fails)
            with pytest.raises(OSError, match="no disk"):
                filled.commit({CHANGELOG: 8})
        with filled.query_view() as view:
            assert (view.get(b"a"), view.position) == (b"1", {})
            assert view.committed_offset(CHANGELOG) in (7, None)
        assert filled.get(b"a") == b"new"
        filled.commit({CHANGELOG: 8})
        with filled.query_view() as view:
            assert (view.get(b"a"), view.position) == (b"new", {"in": {0: 9}})


def _fails(_: StateStore, prepared: object) -> None:
    raise OSError("no disk")


class TestTransactions:
    def test_only_the_writer_reads_its_staged_writes(self, filled: StateStore) -> None:
        with filled.transaction() as transaction:
            transaction.put(b"aa", b"new")
            transaction.delete(b"b")
            transaction.put(b"a", b"changed")
            staged = {**ROWS, b"aa": b"new", b"a": b"changed"}
            del staged[b"b"]
            assert transaction.get_many([b"aa", b"b"]) == [b"new", None]
            assert list(transaction.all()) == sorted(staged.items())
            assert list(transaction.reverse_prefix_scan(b"a")) == [(b"ab", b""), (b"aa", b"new"), (b"a", b"changed")]
            with filled.query_view() as view:
                assert dict(view.all()) == ROWS
            transaction.commit({CHANGELOG: 8})
        assert dict(filled.all()) == staged
        with filled.query_view() as view:
            assert dict(view.all()) == staged

    def test_leaving_without_commit_aborts(self, filled: StateStore) -> None:
        with filled.transaction() as transaction:
            transaction.put(b"a", b"changed")
            filled.update_position("in", 0, 1)
        assert transaction.ended
        assert dict(filled.all()) == ROWS
        assert filled.position == {}
        assert filled.uncommitted_bytes == 0

    def test_an_error_in_the_block_aborts(self, filled: StateStore) -> None:
        def failing() -> None:
            with filled.transaction() as transaction:
                transaction.put(b"a", b"changed")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert filled.get(b"a") == b"1"

    def test_one_that_has_ended_takes_nothing_more(self, filled: StateStore) -> None:
        transaction = filled.transaction()
        transaction.commit({CHANGELOG: 8})
        for call in (lambda: transaction.put(b"a", b"b"), lambda: transaction.commit({}), transaction.all):
            with raises(Invalid, "transaction-ended"):
                call()

    def test_a_store_has_one_at_a_time(self, filled: StateStore) -> None:
        transaction = filled.transaction()
        with raises(Invalid, "transaction-open"):
            filled.transaction()
        transaction.abort()
        filled.put(b"a", b"b")
        with raises(Invalid, "writes-not-committed"):
            filled.transaction()
        filled.abort()
        filled.transaction().abort()

    @pytest.mark.parametrize("end", ["commit", "abort", "forget_offsets"])
    def test_the_store_s_own_commit_and_abort_end_it(self, filled: StateStore, end: str) -> None:
        transaction = filled.transaction()
        transaction.put(b"a", b"new")
        filled.commit({CHANGELOG: 8}) if end == "commit" else getattr(filled, end)()
        assert transaction.ended
        assert filled.get(b"a") == (b"1" if end == "abort" else b"new")
        with raises(Invalid, "transaction-ended"):
            transaction.put(b"a", b"more")
        filled.put(b"b", b"own")
        transaction.abort()
        assert filled.get(b"b") == b"own", "it has nothing to abort any more"
        filled.abort()
        filled.transaction().abort()

    @pytest.mark.parametrize("next_call", ["get", "put", "commit", "transaction", "scan", "view", "bytes", "position"])
    def test_an_unreferenced_transaction_is_dropped_with_its_writes(self, filled: StateStore, next_call: str) -> None:
        filled.transaction().put(b"a", b"lost")
        if next_call == "get":
            assert filled.get(b"a") == b"1"
        elif next_call == "put":
            filled.put(b"c", b"kept")
        elif next_call == "commit":
            filled.commit({CHANGELOG: 8})
        elif next_call == "transaction":
            filled.transaction().commit({CHANGELOG: 8})
        elif next_call == "scan":
            assert dict(filled.all()) == ROWS
        elif next_call == "view":
            with filled.query_view(UNCOMMITTED) as view:
                assert view.get(b"a") == b"1"
        elif next_call == "bytes":
            assert filled.uncommitted_bytes == 0
        else:
            assert filled.position == {}
        filled.commit({CHANGELOG: 9})
        assert dict(filled.all()) == ({**ROWS, b"c": b"kept"} if next_call == "put" else ROWS)

    def test_one_in_a_circle_is_dropped_when_the_collector_finds_it(self, filled: StateStore) -> None:
        transaction = filled.transaction()
        transaction.put(b"a", b"lost")
        transaction.itself = transaction  # type: ignore[attr-defined]
        del transaction
        gc.collect()
        filled.put(b"c", b"kept")
        filled.commit({CHANGELOG: 8})
        assert dict(filled.all()) == {**ROWS, b"c": b"kept"}

    def test_writes_past_one_that_was_lost_are_not_dropped_unsaid(self, filled: StateStore) -> None:
        transaction = filled.transaction()
        transaction.put(b"a", b"lost")
        filled.put(b"c", b"beside it")
        del transaction
        for refused in (lambda: filled.put(b"d", b"1"), lambda: filled.commit({CHANGELOG: 8}), filled.forget_offsets):
            with raises(Invalid, "transaction-lost"):
                refused()
        with raises(Invalid, "transaction-open"):
            filled.transaction()
        filled.abort()
        assert dict(filled.all()) == ROWS
        filled.put(b"c", b"again")
        filled.commit({CHANGELOG: 8})
        assert dict(filled.all()) == {**ROWS, b"c": b"again"}

    def test_closing_the_store_ends_it(self, factory: Factory, tmp_path: Path) -> None:
        store = factory(tmp_path, QUICK)
        store.open()
        transaction = store.transaction()
        transaction.put(b"a", b"b")
        store.close()
        store = factory(tmp_path, QUICK) if store.persistent else store
        with store:
            assert store.get(b"a") is None
            with raises(Invalid, "transaction-ended"):
                transaction.put(b"a", b"b")

    def test_reaching_the_limit_asks_for_a_commit_and_takes_further_writes(
        self, factory: Factory, tmp_path: Path
    ) -> None:
        with factory(tmp_path, StoreSettings(uncommitted_max_bytes=10_000)) as store:
            count = 0
            while not store.commit_requested:
                store.put(b"%d" % count, bytes(100))
                count += 1
            assert 20 < count < 100
            store.put(b"more", bytes(100_000))
            with store.query_view() as view:  # it did not commit by itself
                assert list(view.all()) == []
            assert len(list(store.all())) == count + 1
            store.commit({CHANGELOG: count})
            assert not store.commit_requested

    def test_without_a_limit_nothing_is_asked_for(self, factory: Factory, tmp_path: Path) -> None:
        with factory(tmp_path, StoreSettings(uncommitted_max_bytes=-1)) as store:
            store.put(b"a", bytes(100_000_000))
            assert not store.commit_requested

    def test_the_limit_of_a_task_counts_all_its_stores(self, filled: StateStore) -> None:
        with IMPLEMENTATIONS["in-memory"](Path(), QUICK) as second:
            assert not commit_requested((filled, second), 0)
            filled.put(b"a", bytes(1000))
            second.put(b"a", bytes(1000))
            assert commit_requested((filled, second), 2000)
            assert not commit_requested((filled, second), 3000)
            assert not commit_requested((filled, second), -1)


class TestIterators:
    @pytest.mark.parametrize("reverse", [False, True])
    def test_they_show_the_moment_they_were_made_whatever_is_written_meanwhile(
        self, store: StateStore, reverse: bool
    ) -> None:
        keys = [b"%04d" % n for n in range(3000)]
        store.put_all((key, b"committed") for key in keys[::2])
        store.commit({CHANGELOG: 1})
        store.put_all((key, b"staged") for key in keys[::3])
        store.put_all((key, None) for key in keys[::5])
        before = list(store.scan(None, None, reverse=reverse))
        rows = store.scan(None, None, reverse=reverse)
        seen = [next(rows) for _ in range(100)]
        store.put_all((key, b"later") for key in keys[1::2])
        seen += [next(rows) for _ in range(100)]
        store.put_all((key, None) for key in keys[::7])
        seen += [next(rows) for _ in range(500)]
        store.commit({CHANGELOG: 2})
        seen += [next(rows) for _ in range(500)]
        store.put_all((key, b"latest") for key in keys)
        store.abort()
        assert seen + list(rows) == before

    def test_a_prefix_of_staged_rows_only(self, store: StateStore) -> None:
        store.put_all((b"%03d" % n, b"%d" % n) for n in range(1000))
        rows = store.prefix_scan(b"50")
        store.put(b"5005", b"later")
        store.delete(b"501")
        assert [key for key, _ in rows] == [b"%d" % n for n in range(500, 510)]

    def test_closing_the_store_ends_them_with_an_error(self, factory: Factory, tmp_path: Path) -> None:
        store = factory(tmp_path, QUICK)
        store.open()
        store.put_all((b"%04d" % n, b"") for n in range(3000))
        store.commit({CHANGELOG: 1})
        started, untouched, reverse = store.all(), store.all(), store.reverse_prefix_scan(b"0")
        next(started)
        next(reverse)
        store.close()
        for rows in (started, untouched, reverse):
            with raises(Invalid, "store-closed"):
                list(rows)


class TestQueries:
    def test_a_view_is_one_commit_rows_offset_and_position_together(self, filled: StateStore) -> None:
        view = filled.query_view()
        filled.update_position("in", 0, 3)
        filled.put(b"a", b"new")
        filled.put(b"aa", b"new")
        filled.delete(b"b")
        filled.commit({CHANGELOG: 8})
        filled.flush()
        assert dict(view.all()) == ROWS
        assert view.get_many([b"a", b"aa", b"b"]) == [b"1", None, b"3"]
        assert view.position == {}
        assert view.committed_offset(CHANGELOG) == (7 if filled.manages_offsets else None)
        view.close()
        with filled.query_view() as view:
            assert view.get_many([b"a", b"aa", b"b"]) == [b"new", b"new", None]
            assert view.position == {"in": {0: 3}}
            assert view.committed_offset(CHANGELOG) == (8 if filled.manages_offsets else None)

    def test_staged_writes_are_seen_on_request_with_the_committed_position(self, filled: StateStore) -> None:
        filled.put(b"a", b"staged")
        filled.delete(b"b")
        filled.update_position("in", 0, 3)
        with filled.query_view(UNCOMMITTED) as view:
            filled.put(b"a", b"later")
            filled.put(b"b", b"later")
            filled.put(b"c", b"later")
            assert view.get_many([b"a", b"ab", b"b", b"c"]) == [b"staged", b"", None, None]
            assert [key for key, _ in view.reverse_range(b"a", b"c")] == [b"ab", b"a"]
            assert view.position == {}
            assert view.committed_offset(CHANGELOG) == (7 if filled.manages_offsets else None)
            filled.abort()
            assert view.get(b"a") == b"staged"

    @pytest.mark.parametrize("isolation", ["read uncommitted", "text", "", None, 1, True])
    def test_what_is_no_isolation_level_is_refused(self, filled: StateStore, isolation: object) -> None:
        with pytest.raises(Invalid, match="isolation"):
            filled.query_view(isolation)  # type: ignore[arg-type]

    def test_an_isolation_level_may_be_given_by_its_text(self, filled: StateStore) -> None:
        filled.put(b"staged", b"1")
        for level in IsolationLevel:
            with filled.query_view(str(level)) as view:  # type: ignore[arg-type]
                assert view.get(b"staged") == (b"1" if level is IsolationLevel.READ_UNCOMMITTED else None)
        filled.abort()

    def test_a_view_s_position_is_a_copy(self, filled: StateStore) -> None:
        with filled.query_view() as view:
            view.position["in"] = {0: 1}
            assert view.position == {}
        assert filled.position == {}

    def test_a_closed_view_says_so_and_ends_its_iterators(self, filled: StateStore) -> None:
        view = filled.query_view()
        rows = view.all()
        view.close()
        view.close()
        for call in (lambda: view.get(b"a"), view.all, lambda: list(rows), lambda: view.position):
            with raises(Invalid, "store-closed"):
                call()

    def test_closing_the_store_closes_its_views(self, factory: Factory, tmp_path: Path) -> None:
        store = factory(tmp_path, QUICK)
        store.open()
        views = [store.query_view(), store.query_view(UNCOMMITTED)]
        store.close()
        for view in views:
            with raises(Invalid, "store-closed"):
                view.get(b"a")

    def test_rows_deleted_under_a_view_are_forgotten_after_it(self, filled: StateStore) -> None:
        with filled.query_view() as view:
            filled.put_all((key, None) for key in ROWS)
            filled.commit({CHANGELOG: 8})
            assert dict(view.all()) == ROWS
        filled.put(b"z", b"1")
        filled.commit({CHANGELOG: 9})
        assert list(filled.all()) == [(b"z", b"1")]
        filled.put(b"a", b"back")
        filled.commit({CHANGELOG: 10})
        assert list(filled.all()) == [(b"a", b"back"), (b"z", b"1")]
