import multiprocessing
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict, SstFileWriter

from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.topic_partition import TopicPartition
from statecore.stores.rocksdb.options import data_options
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES, Durability, StoreSettings
from tests.harness.raising import raises

PLAIN, TIMESTAMPED = StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE
CHANGELOG = TopicPartition("app-store-changelog", 0)
ROWS = {b"a": b"1", b"ab": b"", b"b": b"3", b"\xff\xff": b"4", b"": b"5"}


def fresh(path: Path, rows: dict[bytes, bytes] = ROWS, kind: StoreKind = PLAIN, offset: int | None = 7) -> Path:
    with RocksDBStore(path, kind, create=True) as store:
        for key, value in rows.items():
            store.put(key, value)
        store.commit({CHANGELOG: offset})
    return path


def sst(path: Path, rows: dict[bytes, bytes | None]) -> Path:
    writer = SstFileWriter(data_options())
    writer.open(str(path))
    for key in sorted(rows):
        value = rows[key]
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()
    return path


def raw(path: Path, families: dict[str, dict[bytes, bytes]]) -> None:
    """A database with any column families, as somebody else might have made it."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    names = {"default", *families}
    database = Rdict(str(path), options, column_families={name: Options(raw_mode=True) for name in names})
    for name, rows in families.items():
        family = database.get_column_family(name)
        for key, value in rows.items():
            family[key] = value
        family.close()
    del family
    database.close()


@pytest.mark.parametrize("kind", [PLAIN, TIMESTAMPED])
def test_committed_rows_and_offsets_are_there_after_reopening(tmp_path: Path, kind: StoreKind) -> None:
    fresh(tmp_path / "db", kind=kind)
    with RocksDBStore(tmp_path / "db", kind) as store:
        assert list(store.all()) == sorted(ROWS.items())
        assert store.committed_offset(CHANGELOG) == 7
        assert store.get(b"ab") == b""
        assert store.get(b"absent") is None


def test_what_was_not_committed_is_seen_by_its_writer_and_gone_after_close(tmp_path: Path) -> None:
    fresh(tmp_path / "db")
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        store.put(b"aa", b"new")
        store.delete(b"b")
        store.put(b"a", b"changed")
        assert store.get(b"aa") == b"new"
        assert store.get(b"b") is None
        assert dict(store.all()) == {**{k: v for k, v in ROWS.items() if k != b"b"}, b"aa": b"new", b"a": b"changed"}
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        assert dict(store.all()) == ROWS
        assert store.committed_offset(CHANGELOG) == 7


KEYS = st.binary(max_size=3)
ENDS = st.one_of(st.none(), KEYS)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), max_size=15)


@settings(max_examples=40, deadline=None)
@given(
    committed=CHANGES, pending=CHANGES, first=st.one_of(st.none(), KEYS), last=st.one_of(st.none(), KEYS), prefix=KEYS
)
def test_reads_are_those_of_a_sorted_dict(
    tmp_path_factory: pytest.TempPathFactory,
    committed: list[tuple[bytes, bytes | None]],
    pending: list[tuple[bytes, bytes | None]],
    first: bytes | None,
    last: bytes | None,
    prefix: bytes,
) -> None:
    model: dict[bytes, bytes] = {}
    with RocksDBStore(tmp_path_factory.mktemp("store") / "db", PLAIN, create=True) as store:
        for changes in (committed, pending):
            if changes is pending:
                store.commit({CHANGELOG: 1})
            for key, value in changes:
                store.put(key, value)
                model.pop(key, None)
                if value is not None:
                    model[key] = value
        rows = sorted(model.items())
        assert list(store.all()) == rows
        assert list(store.range(first, last)) == [
            (key, value) for key, value in rows if (first is None or key >= first) and (last is None or key <= last)
        ]
        assert list(store.reverse_all()) == rows[::-1]
        assert list(store.reverse_range(first, last)) == list(store.range(first, last))[::-1]
        assert list(store.prefix_scan(prefix)) == [(key, value) for key, value in rows if key.startswith(prefix)]
        assert list(store.reverse_prefix_scan(prefix)) == list(store.prefix_scan(prefix))[::-1]
        keys = [key for key, _ in committed + pending]
        assert [store.get(key) for key in keys] == store.get_many(keys) == [model.get(key) for key in keys]


def test_offsets_are_added_kept_forgotten_and_wiped(tmp_path: Path) -> None:
    other = TopicPartition("other-topic", 12)
    with RocksDBStore(tmp_path / "db", PLAIN, create=True) as store:
        store.update_position("in", 0, 5)
        store.commit({CHANGELOG: 1, other: -4})
        store.commit({CHANGELOG: 2})
        assert (store.committed_offset(CHANGELOG), store.committed_offset(other)) == (2, -4)
        store.commit({other: None})
        assert (store.committed_offset(CHANGELOG), store.committed_offset(other)) == (2, None)
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        assert store.position == {"in": {0: 5}}
        store.commit({})
        assert store.committed_offset(CHANGELOG) == 2
        store.forget_offsets()
        assert store.committed_offset(CHANGELOG) is None
    with RocksDBStore(tmp_path / "db", PLAIN, read_only=True) as store:
        assert store.position == {}
        assert store.status == 0


def test_ingested_files_apply_in_order_over_what_is_there(tmp_path: Path) -> None:
    fresh(tmp_path / "db", {b"a": b"old", b"b": b"old", b"c": b"old"})
    first = sst(tmp_path / "1.sst", {b"a": b"1", b"b": b"1", b"d": b"1"})
    second = sst(tmp_path / "2.sst", {b"b": b"2", b"d": None})
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        names = store.ingest([first, second])
        assert len(names) == 2
        assert all(name.parent == tmp_path / "db" for name in names)
        store.commit({CHANGELOG: 9})
    with RocksDBStore(tmp_path / "db", PLAIN, exactly_once=True) as store:
        assert dict(store.all()) == {b"a": b"1", b"b": b"2", b"c": b"old"}
        assert store.committed_offset(CHANGELOG) == 9


def test_opening_and_closing_does_not_rewrite_a_base_of_many_files_that_is_to_keep_them(tmp_path: Path) -> None:
    with RocksDBStore(tmp_path / "db", PLAIN, create=True, settings=KEEP_FILES) as store:
        files = [sst(tmp_path / f"{n}.sst", {b"k%03d" % m: b"%d" % n for m in range(100)}) for n in range(30)]
        names = store.ingest(files)
        store.commit({CHANGELOG: 1})
    before = {name: name.read_bytes() for name in names}
    with RocksDBStore(tmp_path / "db", PLAIN, settings=KEEP_FILES) as store:
        store.commit({CHANGELOG: 2})
    assert {name: name.read_bytes() for name in names} == before


def test_compaction_makes_one_file_of_many_and_keeps_the_rows(tmp_path: Path) -> None:
    with RocksDBStore(tmp_path / "db", PLAIN, create=True) as store:
        files = [sst(tmp_path / f"{n}.sst", {b"k%03d" % m: b"%d" % n for m in range(n, 100)}) for n in range(9)]
        names = store.ingest(files)
        rows = list(store.all())
        store.compact()
        assert list(store.all()) == rows
        store.commit({CHANGELOG: 1})
    assert not any(name.exists() for name in names)


@pytest.mark.parametrize("automatic", [True, False])
def test_files_are_merged_in_the_background_if_configured(tmp_path: Path, automatic: bool) -> None:
    settings = StoreSettings(Durability.PROCESS, automatic_compaction=automatic)
    with RocksDBStore(tmp_path / "db", TIMESTAMPED, create=True, settings=settings) as store:
        for number in range(40):
            store.put_all((b"k%03d" % key, b"%d" % number) for key in range(100))
            store.commit({CHANGELOG: number})
            store._families[TIMESTAMPED.data_column_family].flush()
        count = len(list((tmp_path / "db").glob("*.sst")))
        assert count < 30 if automatic else count >= 40
        assert dict(store.all()) == {b"k%03d" % key: b"39" for key in range(100)}


def test_a_store_closed_between_ingest_and_commit_does_not_count_as_clean(tmp_path: Path) -> None:
    fresh(tmp_path / "db")
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        store.ingest([sst(tmp_path / "1.sst", {b"a": b"ahead"})])
    with raises(Corrupted, "not-closed-cleanly"):
        RocksDBStore(tmp_path / "db", PLAIN, exactly_once=True).open()
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        store.commit({CHANGELOG: 8})
    RocksDBStore(tmp_path / "db", PLAIN, exactly_once=True).open()


def test_status_is_open_while_it_is_and_closed_after(tmp_path: Path) -> None:
    fresh(tmp_path / "db")
    with RocksDBStore(tmp_path / "db", PLAIN) as store:
        assert store.status == 1
    with RocksDBStore(tmp_path / "db", PLAIN, read_only=True) as store:
        assert store.status == 0


def test_the_directory_has_no_notes_no_log_content_and_its_modes(tmp_path: Path) -> None:
    path = fresh(tmp_path / "state" / "db")
    with RocksDBStore(path, PLAIN) as store:
        store.put(b"x", b"y")
        store.commit({CHANGELOG: 8})
    names = {file.name for file in path.iterdir()}
    assert not {name for name in names if name.startswith("LOG") or "rocksdict" in name}
    assert all(file.stat().st_size == 0 for file in path.glob("*.log"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o640}
    assert set(Rdict.list_cf(str(path))) == {"default", "offsets"}


def test_read_only_sees_committed_rows_and_changes_nothing(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    # What others leave in a directory, and what rocksdict and RocksDB would write to.
    (path / "LOG").write_text("of Kafka Streams")
    (path / "rocksdict-config.json").write_text("{}")
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    touched = path.stat().st_mtime_ns
    with RocksDBStore(path, PLAIN, read_only=True) as store:
        assert dict(store.all()) == ROWS
        for forbidden in (lambda: store.put(b"a", b"b"), lambda: store.commit({CHANGELOG: 1}), store.flush):
            with raises(Invalid, "store-read-only"):
                forbidden()
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()} == before
    assert path.stat().st_mtime_ns == touched


def test_an_iterator_that_is_left_open_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    store = RocksDBStore(path, PLAIN)
    store.open()
    rows, lists = store.all(), store.scan_lists()
    next(rows)
    next(lists)
    store.close()
    with RocksDBStore(path, PLAIN):
        for cut in (rows, lists):
            with raises(Invalid, "store-closed"):
                list(cut)


def _open_in_another_process(path: str) -> str:
    try:
        RocksDBStore(Path(path), PLAIN).open()
    except Fenced as error:
        return str(error)
    return "opened"


def test_a_store_that_is_open_elsewhere_is_fenced(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    with RocksDBStore(path, PLAIN):
        with pytest.raises(Fenced, match="Stop the process"):
            RocksDBStore(path, PLAIN).open()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert "LOCK" in pool.apply(_open_in_another_process, (str(path),))
    with RocksDBStore(path, PLAIN) as store:
        assert store.committed_offset(CHANGELOG) == 7


def test_an_absent_database_is_not_found_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        RocksDBStore(tmp_path / "db", PLAIN).open()
    assert not (tmp_path / "db").exists()


def test_an_existing_directory_is_not_recreated(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    with raises(Invalid, "store-exists"):
        RocksDBStore(tmp_path / "db", PLAIN, create=True).open()


@pytest.mark.parametrize("read_only", [True, False])
def test_other_column_families_are_refused(tmp_path: Path, read_only: bool) -> None:
    raw(tmp_path / "db", {"foo": {}, "offsets": {}})
    with raises(Invalid, "kind-mismatch", kind="key-value", column_families=["foo"]):
        RocksDBStore(tmp_path / "db", PLAIN, read_only=read_only).open()


def test_a_timestamped_store_is_not_opened_as_a_plain_one(tmp_path: Path) -> None:
    fresh(tmp_path / "db", kind=TIMESTAMPED)
    with raises(Invalid, "kind-mismatch", kind="key-value", column_families=["keyValueWithTimestamp"]):
        RocksDBStore(tmp_path / "db", PLAIN).open()


def test_a_missing_data_family_is_refused_because_kafka_streams_would_open_it_empty(tmp_path: Path) -> None:
    raw(tmp_path / "db", {"offsets": {b"status": bytes(8)}})
    with raises(Invalid, "kind-mismatch", kind="timestamped-key-value", missing="keyValueWithTimestamp"):
        RocksDBStore(tmp_path / "db", TIMESTAMPED).open()


@pytest.mark.parametrize("read_only", [True, False])
def test_rows_of_an_older_format_are_not_overlooked(tmp_path: Path, read_only: bool) -> None:
    raw(tmp_path / "db", {"default": {b"old": b"row"}, "keyValueWithTimestamp": {b"k": bytes(8)}, "offsets": {}})
    with raises(Invalid, "older-row-format", column_family="default"):
        RocksDBStore(tmp_path / "db", TIMESTAMPED, read_only=read_only).open()
    (tmp_path / "db" / "rocksdict-config.json").unlink(missing_ok=True)


def test_a_store_of_an_older_version_gets_its_offsets_family_when_its_upgrade_is_asked_for(tmp_path: Path) -> None:
    raw(tmp_path / "db", {"default": {b"a": b"1"}})
    with RocksDBStore(tmp_path / "db", PLAIN, read_only=True) as store:
        assert store.committed_offset(CHANGELOG) is None
        assert list(store.all()) == [(b"a", b"1")]
    with RocksDBStore(tmp_path / "db", PLAIN, upgrade=True) as store:
        store.commit({CHANGELOG: 3})
    with RocksDBStore(tmp_path / "db", PLAIN, read_only=True) as store:
        assert store.committed_offset(CHANGELOG) == 3


def test_another_comparator_is_refused(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=False))
    database["key"] = "value"
    database.close()
    with pytest.raises(Invalid, match="comparator"):
        RocksDBStore(tmp_path / "db", PLAIN).open()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_scan_over_a_corrupt_block_raises_instead_of_ending(tmp_path: Path, share: float) -> None:
    path = tmp_path / "db"
    with RocksDBStore(path, PLAIN, create=True) as store:
        (file,) = store.ingest([sst(tmp_path / "1.sst", {b"k%06d" % n: b"v" * 100 for n in range(20_000)})])
        store.commit({CHANGELOG: 1})
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 1
    file.write_bytes(data)
    with RocksDBStore(path, PLAIN, read_only=True) as store:
        with pytest.raises(Corrupted):
            list(store.all())
        with pytest.raises(Corrupted):
            list(store.scan_lists())


def test_a_missing_file_is_corrupt(tmp_path: Path) -> None:
    path = fresh(tmp_path / "db")
    for file in path.glob("*.sst"):
        file.unlink()
    with pytest.raises(Corrupted):
        RocksDBStore(path, PLAIN, read_only=True).open()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = RocksDBStore(fresh(tmp_path / "db"), PLAIN)
    assert not store.is_open
    store.close()
    with raises(Invalid, "store-not-open"):
        store.get(b"a")
    store.open()
    store.open()
    assert store.is_open
    store.close()


def test_ingest_over_uncommitted_writes_is_refused(tmp_path: Path) -> None:
    with RocksDBStore(fresh(tmp_path / "db"), PLAIN) as store:
        store.put(b"a", b"b")
        with raises(Invalid, "writes-not-committed"):
            store.ingest([sst(tmp_path / "1.sst", {b"a": b"1"})])


def test_a_kind_that_cannot_be_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="in-memory"):
        RocksDBStore(tmp_path / "db", StoreKind.IN_MEMORY)
