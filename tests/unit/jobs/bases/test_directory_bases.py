from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Reason
from statecore.formats.checkpoint import encode_checkpoint
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.topic_partition import TopicPartition
from statecore.jobs.bases.base import DIRECTORY, Base, Refused
from statecore.jobs.bases.directory_bases import DirectoryBases
from statecore.spec.reader import parse_spec
from statecore.statedir.database_state import create_database
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from tests.golden.directories import unpacked
from tests.harness.damage_cases import EXACTLY_ONCE, STAMPED
from tests.harness.damage_functions import TASK, change_offsets, cut_manifest, database_of

PLAIN = TopicPartition("orders-plain-changelog", 0)
CLICKS = TopicPartition("orders-clicks-changelog", 0)
MINUTE = 60_000


class Application:
    """The directory of an application with a store of one database, one with segments, and a global store."""

    def __init__(self, root: Path) -> None:
        self.spec = parse_spec(
            {
                "application_id": "orders",
                "bootstrap_servers": "localhost:9",
                "processing_guarantee": "at_least_once",
                "subtopologies": {
                    "0": {"stores": {"plain": {"kind": "key-value"}, "clicks": {"kind": "window", "retention": "10m"}}}
                },
                "global_stores": {"names": {"kind": "key-value", "topic": "names"}},
            }
        )
        self.path = root / "orders"
        self.directory = StateDirectory(root, "orders")

    def plain(self, offset: int = 99, kind: StoreKind = StoreKind.KEY_VALUE) -> None:
        self.make("0_0/rocksdb/plain", kind, {PLAIN: offset})

    def segment(self, number: int, offset: int = 99, interval: int = 5 * MINUTE) -> None:
        self.make(f"0_0/clicks/clicks.{number * interval}", StoreKind.WINDOW, {CLICKS: offset})

    def make(self, name: str, kind: StoreKind, offsets: Mapping[TopicPartition, int]) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        create_database(self.path / name, kind, offsets)

    def found(self, task: str = "0_0", store: str = "plain", refused: Any = None) -> list[Base | Refused]:
        return list(DirectoryBases(self.directory, self.spec, refused or {}).of((task, store)))

    def base(self, task: str = "0_0", store: str = "plain") -> Base:
        (found,) = self.found(task, store)
        assert isinstance(found, Base), found
        return found

    def why(self, task: str = "0_0", store: str = "plain") -> Reason:
        (found,) = self.found(task, store)
        assert isinstance(found, Refused), found
        assert found.base == DIRECTORY
        assert isinstance(found.why, Reason)
        return found.why


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(tmp_path)


def test_a_closed_store_is_a_base_of_unknown_age_and_topic_id(application: Application) -> None:
    application.plain()
    base = application.base()
    end = base.ends[PLAIN]
    assert (end.end, end.topic_id, end.leader_epoch, end.read_at_ms) == (100, "", -1, None)
    assert base.is_directory
    (database,) = base.bases
    assert (database.segment, Path(database.path)) == (None, application.path / "0_0" / "rocksdb" / "plain")
    assert database.starts == {PLAIN: 100}


def test_the_start_of_the_newest_segment_is_the_least_stream_time(application: Application) -> None:
    for number in (6, 7, 8):
        application.segment(number)
    base = application.base(store="clicks")
    assert base.segments == {6, 7, 8}
    assert base.stream_time == 8 * 5 * MINUTE


def test_a_global_store_records_the_next_offset_of_every_partition(application: Application) -> None:
    names = [TopicPartition("names", number) for number in (0, 1)]
    application.make("global/rocksdb/names", StoreKind.KEY_VALUE, {names[0]: 7, names[1]: 0})
    base = application.base("global", "names")
    assert {part: end.end for part, end in base.ends.items()} == {names[0]: 7, names[1]: 0}


@pytest.mark.parametrize("offset", [OFFSET_UNKNOWN, -1, -7])
def test_a_store_whose_offset_is_negative_is_a_base_without_databases(application: Application, offset: int) -> None:
    """-4 says that the changelog was empty; what rows have another one, nobody knows."""
    application.plain(5)
    change_offsets(application.path / "0_0/rocksdb/plain", lambda _: offset)
    base = application.base()
    assert base.ends[PLAIN].end == 0
    assert not base.bases
    assert not base.below.may_have_rows(None)


def test_segments_at_different_offsets_are_refused(application: Application) -> None:
    application.segment(6, 50)
    application.segment(7, 99)
    assert application.why(store="clicks").code == "segment-offsets-differ"


def test_segments_of_another_length_are_refused(application: Application) -> None:
    application.segment(7, interval=MINUTE)
    why = application.why(store="clicks")
    assert (why.code, why.context) == ("segment-start-misaligned", {"segment": "clicks.420000", "expected": 300_000})


def test_a_store_of_another_kind_is_refused(application: Application) -> None:
    application.plain(kind=StoreKind.TIMESTAMPED_KEY_VALUE)
    assert application.why().code == "kind-mismatch"


def test_a_store_that_was_not_closed_is_refused(application: Application) -> None:
    application.plain()
    with RocksDBStore(application.path / "0_0" / "rocksdb" / "plain", StoreKind.KEY_VALUE):
        assert application.why().code == "base-unfit"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({PLAIN: 5}, "checkpoint-file-mismatch"),
        ({PLAIN: 120}, "checkpoint-file-mismatch"),
        ({PLAIN: 99}, ""),  # as Python processors and standbys write it beside the store
        ({PLAIN: OFFSET_UNKNOWN}, ""),  # which a start skips
        ({TopicPartition(PLAIN.topic, 1): 5}, ""),  # of another task
    ],
)
def test_a_store_is_no_base_if_its_checkpoint_file_would_change_its_offset(
    application: Application, entries: Mapping[TopicPartition, int], code: str
) -> None:
    application.plain()
    (application.path / "0_0" / ".checkpoint").write_bytes(encode_checkpoint(entries))
    if code:
        assert application.why().code == code
    else:
        assert application.base().ends[PLAIN].end == 100


def test_a_store_of_an_older_release_is_no_base_because_its_offset_is_in_the_file(application: Application) -> None:
    application.make("0_0/rocksdb/plain", StoreKind.KEY_VALUE, {})
    file = application.path / "0_0" / ".checkpoint"
    file.write_bytes(encode_checkpoint({PLAIN: 5}))
    assert application.why().code == "offset-in-checkpoint-file"
    file.write_bytes(encode_checkpoint({PLAIN: OFFSET_UNKNOWN}))
    assert application.why().code == "store-offset-missing"


def test_a_base_that_was_refused_before_is_refused_again_without_a_read(application: Application) -> None:
    application.plain()
    (found,) = application.found(refused={(("0_0", "plain"), DIRECTORY): "it was too old"})
    assert found == Refused("0_0", "plain", DIRECTORY, "it was too old")


def test_a_missing_store_is_no_candidate(application: Application) -> None:
    application.plain()
    assert not application.found(store="clicks")
    assert not application.found("0_1")
    bases = DirectoryBases(application.directory, application.spec, {})
    assert bases.has(("0_0", "plain"))
    assert not bases.has(("0_1", "plain"))


@pytest.mark.parametrize("file", ["000001.log", "000002.sst"])
def test_a_store_that_lost_its_current_is_a_candidate_that_is_refused(file: str, application: Application) -> None:
    application.plain()
    path = application.path / "0_0" / "rocksdb" / "plain"
    (path / "CURRENT").unlink()
    (path / file).write_bytes(b"rows")
    assert DirectoryBases(application.directory, application.spec, {}).has(("0_0", "plain"))
    assert application.why().code == "store-incomplete"


def test_a_store_of_which_one_segment_lost_its_current_is_refused(application: Application) -> None:
    for number in (7, 8):
        application.segment(number)
    segment = application.path / f"0_0/clicks/clicks.{7 * 5 * MINUTE}"
    (segment / "CURRENT").unlink()
    (segment / "000009.sst").write_bytes(b"rows")
    assert application.why(store="clicks").code == "store-incomplete"


def test_a_store_whose_manifest_lost_its_end_is_refused(tmp_path: Path) -> None:
    golden = unpacked(EXACTLY_ONCE, tmp_path)
    stores = {STAMPED: {"kind": "timestamped-key-value"}}
    spec = parse_spec(
        {
            "application_id": golden.name,
            "bootstrap_servers": "localhost:9",
            "processing_guarantee": "exactly_once_v2",
            "subtopologies": {"0": {"stores": stores}},
        }
    )
    bases = DirectoryBases(StateDirectory(tmp_path, golden.name), spec, {})
    assert [type(one) for one in bases.of((TASK, STAMPED))] == [Base]
    cut_manifest(database_of(golden, STAMPED), between=True)
    (refused,) = bases.of((TASK, STAMPED))
    assert isinstance(refused, Refused)
    assert refused.why.code == "database-damaged"
