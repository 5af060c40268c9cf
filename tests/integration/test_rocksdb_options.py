"""RocksDB options that a real application sets (``rocksdb.config.setter``): carried through every verb, or refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import Severity
from statecore.doctor.findings import Finding
from statecore.errors import NOT_READABLE_HERE, Invalid
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.checkpoint.request import CheckpointRequest, WhenRefused
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fetch.request import FetchRequest
from statecore.jobs.fetch.run import run_fetch
from statecore.jobs.read_report import ReadReport
from statecore.jobs.restore.advance import run_advance
from statecore.jobs.restore.request import AdvanceRequest
from statecore.jobs.restore.run import run_restore
from statecore.repository.repository import create_repository
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from tests.harness import topics
from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.config_setter import CONFIG_SETTER, config_setter
from tests.harness.repairing import repair
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.tables import NOW, Answers, World
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

STORES = {(store, 0) for store in PLAIN_AND_STAMPED}


@dataclass(frozen=True)
class Options:
    """What an application sets.

    Attributes:
        body: statements over ``options``; ``ELSEWHERE`` is a directory outside of the state directory.
        members: what they need.
    """

    body: str
    members: str = ""


SMALL_BUFFERS = "options.setWriteBufferSize(16384);"
"""So that files are flushed, and merged."""

COMPACT = Options(
    SMALL_BUFFERS
    + """
    options.setCompressionType(CompressionType.ZSTD_COMPRESSION);
    options.setBottommostCompressionType(CompressionType.LZ4_COMPRESSION);
    options.useFixedLengthPrefixExtractor(4);
    BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
    table.setFormatVersion(4);
    table.setChecksumType(ChecksumType.kxxHash64);
    table.setIndexType(IndexType.kTwoLevelIndexSearch);
    table.setPartitionFilters(true);
    table.setDataBlockIndexType(DataBlockIndexType.kDataBlockBinaryAndHash);
    options.setTableFormatConfig(table);
    """
)
DEEP = Options(SMALL_BUFFERS + "options.setNumLevels(10);")
SHALLOW = Options(
    SMALL_BUFFERS
    + 'options.setNumLevels(3); options.setMergeOperatorName("stringappend"); options.setMaxOpenFiles(20);'
    "options.setMaxManifestFileSize(1); options.setUseDirectReads(true);"
)
BLOBS = Options(
    SMALL_BUFFERS
    + """
    options.setEnableBlobFiles(true);
    options.setMinBlobSize(64);
    options.setBlobCompressionType(CompressionType.LZ4_COMPRESSION);
    options.setEnableBlobGarbageCollection(true);
    options.setBlobGarbageCollectionAgeCutoff(0.5);
    """
)
ZLIB = Options("options.setCompressionType(CompressionType.ZLIB_COMPRESSION);")
REVERSE = Options(
    "options.setComparator(ORDER);",
    "static final AbstractComparator ORDER = new ReverseBytewiseComparator(new ComparatorOptions());",
)
PLAIN_TABLES = Options(
    "options.useFixedLengthPrefixExtractor(4); options.setTableFormatConfig(new PlainTableConfig());"
    "options.setAllowMmapReads(true);"
)
ELSEWHERE = Options(
    'List paths = new ArrayList(); paths.add(new DbPath(Paths.get("ELSEWHERE/" + storeName), 1L << 40));'
    "options.setDbPaths(paths);"
)

CARRIED = [
    pytest.param(options, id=name)
    for name, options in {"blobs": BLOBS, "compact": COMPACT, "deep": DEEP, "shallow": SHALLOW}.items()
]
NOT_READABLE = [
    pytest.param(ZLIB, True, id="zlib"),
    pytest.param(REVERSE, False, id="reverse"),
    pytest.param(PLAIN_TABLES, False, id="plain-tables"),
    pytest.param(ELSEWHERE, False, id="elsewhere"),
]


class SetWorld(World):
    """An application whose databases have options of its own; its input has one partition."""

    def __init__(self, broker: Broker, jvm: StreamsJvm, application_id: str, tmp_path: Path, options: Options) -> None:
        self.servers, self.jvm = broker.bootstrap_servers, jvm
        self.application_id, self.state_dir, self.guarantee = application_id, tmp_path / "one", "at_least_once"
        self.input, self.options = f"{application_id}-input", options
        topics.create(self.servers, self.input, 1)
        (tmp_path / "elsewhere").mkdir()
        self.setter = config_setter(
            jvm, options.body.replace("ELSEWHERE", str(tmp_path / "elsewhere")), options.members
        )
        self.url = f"file://{tmp_path / 'repository'}"
        create_repository(self.url)

    def application(self, jvm: StreamsJvm | None = None) -> StreamsApplication:
        return StreamsApplication(
            jvm or self.jvm,
            self.application_id,
            self.servers,
            self.state_dir,
            two_stores(self.input),
            guarantee=self.guarantee,
            stores=PLAIN_AND_STAMPED,
            properties={CONFIG_SETTER: self.setter},
        )

    def add(self, turn: int, count: int = 400) -> None:
        records = [
            Record(b"key-%03d" % (n % 150), None if n % 17 == 5 else b"%d of %d " % (turn, n) * 20, 0, NOW + turn)
            for n in range(count)
        ]
        topics.produce(self.servers, self.input, records)

    def took_in(self) -> Answers:
        """What the application answers from its files: closed after everything was consumed, and opened again."""
        self.live()
        answers, restored = self.reopen()
        assert restored == 0
        return answers

    def copy(self, state_dir: Path) -> SetWorld:
        shutil.copytree(self.state_dir, state_dir)
        made = self.at(state_dir)
        assert isinstance(made, SetWorld)
        return made

    @property
    def directory(self) -> StateDirectory:
        return StateDirectory(self.state_dir, self.application_id)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(diagnose_directory(self.directory, scan=True).findings)

    def backup(self) -> None:
        run_backup(BackupRequest(spec=self.request().spec, state_dir=str(self.state_dir), repository=self.url))

    def checkpoint(self) -> ReadReport:
        request = CheckpointRequest(spec=self.request().spec, repository=self.url, when_refused=WhenRefused.REFUSE)
        report = run_checkpoint(request, InProcessEngine())
        assert isinstance(report, ReadReport)
        return report

    def fetch(self) -> None:
        run_fetch(FetchRequest(repository=self.url, application_id=self.application_id, state_dir=str(self.state_dir)))

    def advance(self) -> None:
        run_advance(AdvanceRequest(spec=self.request().spec, state_dir=str(self.state_dir)), InProcessEngine())

    def rebuild(self) -> None:
        """Restore everything from the changelogs over what is there."""
        run_restore(self.request(replace=True, start_from="none"), InProcessEngine())

    def repair(self) -> Any:
        spec = self.state_dir.parent / "stores.yaml"
        spec.write_text(json.dumps(self.request().spec))
        return repair(self.application_id, self.state_dir, spec)

    def refuses(self, job: str, said: str = "") -> None:
        before = fingerprint(self.directory.task_path("0_0"))
        with pytest.raises(Invalid) as caught:
            getattr(self, job)()
        assert said in str(caught.value)
        assert fingerprint(self.directory.task_path("0_0")) == before


@pytest.fixture
def world(
    request: pytest.FixtureRequest, broker: Broker, streams_jvm: StreamsJvm, application_id: str, tmp_path: Path
) -> SetWorld:
    made = SetWorld(broker, streams_jvm, application_id, tmp_path, request.param)
    made.add(1)
    return made


@pytest.mark.parametrize("world", one_of(CARRIED), indirect=True)
def test_the_application_opens_what_was_fetched_and_what_was_advanced(world: SetWorld, tmp_path: Path) -> None:
    answers = world.took_in()
    assert bool(list(world.state_dir.rglob("*.blob"))) == (world.options is BLOBS)
    assert world.findings() == ()
    world.backup()
    older = world.copy(tmp_path / "older")
    fetched = world.at(tmp_path / "two")
    fetched.fetch()
    assert fetched.reopen() == (answers, 0)
    assert fetched.findings() == ()

    fetched.add(2)
    answers = fetched.took_in()
    older.advance()
    assert older.findings() == ()
    assert older.reopen() == (answers, 0)
    assert older.findings() == ()


@pytest.mark.full
@pytest.mark.parametrize("world", [BLOBS], indirect=True, ids=["blobs"])
def test_a_checkpoint_advances_a_snapshot_with_blob_files(world: SetWorld, tmp_path: Path) -> None:
    world.took_in()
    world.backup()
    world.add(2)
    answers = world.took_in()
    report = world.checkpoint()
    assert "" not in {store.base for store in report.stores}
    fetched = world.at(tmp_path / "two")
    fetched.fetch()
    assert list(fetched.state_dir.rglob("*.blob"))
    assert fetched.reopen() == (answers, 0)
    assert fetched.findings() == ()


@pytest.mark.parametrize(
    ("world", "opens_ours"),
    one_of(NOT_READABLE),
    indirect=["world"],
)
def test_what_cannot_be_read_here_is_neither_damaged_nor_changed(
    world: SetWorld, opens_ours: bool, tmp_path: Path
) -> None:
    answers = world.took_in()
    before = fingerprint(world.directory.task_path("0_0"))
    found = world.findings()
    assert {(one.code, one.severity, one.repair, one.store) for one in found} == {
        (NOT_READABLE_HERE, Severity.WARNING, None, store) for store, _ in STORES
    }
    world.repair()
    assert fingerprint(world.directory.task_path("0_0")) == before
    world.refuses("backup")
    world.refuses("advance")
    if opens_ours:
        world.rebuild()
        assert world.findings() == ()
    else:
        world.refuses("rebuild")
    assert world.reopen() == (answers, 0)


@pytest.mark.parametrize("world", [SHALLOW], indirect=True, ids=["shallow"])
def test_nothing_is_put_in_place_of_stores_with_few_levels(world: SetWorld) -> None:
    answers = world.took_in()
    world.refuses("rebuild", "3 levels")
    assert world.reopen() == (answers, 0)
