"""Applications with a store of every kind that lived once: snapshots of them, what is fetched of these, and diffs."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.jobs.backup.report import BackupOutcome, BackupReport
from statecore.jobs.backup.request import BackupRequest
from statecore.jobs.backup.run import run_backup
from statecore.jobs.diff.report import DiffVerdict
from statecore.jobs.diff.request import DiffRequest
from statecore.jobs.diff.run import run_diff
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import VersionedStart
from statecore.repository.repository import create_repository
from tests.harness import directory
from tests.harness.broker import Broker
from tests.harness.case_selection import those_of
from tests.harness.kinds import GLOBALS, HEADERS, PLAIN, SOURCES, KindsApplication
from tests.harness.modes import COVERING, MODES, Mode
from tests.harness.rebuilding import PARTITIONS, Answers, KindsWorld, Rows, restored
from tests.harness.snapshot_requests import fetch, publish
from tests.harness.streams import StreamsJvm

pytestmark = pytest.mark.integration

SHOWN = {(COVERING[0], PLAIN.name), (COVERING[1], GLOBALS.name)}
"""What ``make test`` shows: stores of tasks, and global ones."""


def of(*applications: KindsApplication) -> list[Any]:
    """Parameters of a test: each application in each mode; those that are not in ``SHOWN`` have the mark ``full``."""
    return those_of(itertools.product(MODES, applications), lambda mode, kinds: (mode, kinds.name) in SHOWN)


@dataclass(frozen=True)
class Lived:
    """A closed application whose directory is not changed.

    Attributes:
        world: the application.
        answers: what its stores answered before it was closed.
        rows: of its databases.
    """

    world: KindsWorld
    answers: Answers
    rows: Rows

    def at(self, state_dir: Path) -> KindsWorld:
        """The same application with another state directory."""
        return self.world.at(state_dir)

    def stores(self, prefix: str = "") -> set[str]:
        """Its stores that are on disk, of kinds that begin so."""
        cases = [case for case in self.world.kinds.cases if case.kind != "in-memory"]
        return {case.store for case in cases if case.kind.startswith(prefix)}


@pytest.fixture(scope="module")
def there() -> dict[tuple[Mode, str], Lived]:
    """What has happened already: every application lives once, whatever the order of the tests is."""
    return {}


@pytest.fixture
def lived(
    mode: Mode,
    kinds: KindsApplication,
    there: dict[tuple[Mode, str], Lived],
    broker: Broker,
    streams_jvm: StreamsJvm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Lived:
    if (mode, kinds.name) not in there:
        application_id = f"every-{kinds.name}-{mode.name}-{uuid.uuid4().hex[:8]}"
        state_dir = tmp_path_factory.mktemp("lived")
        world = KindsWorld(broker, streams_jvm, application_id, state_dir, mode.guarantee, mode.of(kinds))
        with world.application() as running:
            world.feed(kinds.feed(world.base, PARTITIONS))
            world.wait_for_globals(running)
            answers = world.answers(running)
        mode.assert_used(streams_jvm, world)
        there[mode, kinds.name] = Lived(world, answers, world.rows())
    return there[mode, kinds.name]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A repository of its own."""
    made = (tmp_path / "repository").as_uri()
    create_repository(made)
    return made


def snapshot(lived: Lived, url: str) -> BackupReport:
    return run_backup(BackupRequest(spec=lived.world.spec(), state_dir=str(lived.world.state_dir), repository=url))


def some(rows: Rows) -> Rows:
    """Without databases that have no row."""
    return {key: found for key, found in rows.items() if any(found.values())}


def of_stores(rows: Rows, stores: set[str]) -> Rows:
    return {key: found for key, found in rows.items() if key[1].partition("/")[0] in stores}


def valid_now(kinds: KindsApplication, answers: Answers) -> Answers:
    """Answers without the older versions: Kafka Streams does not find them after a restart of its own either."""
    versioned = {case.store for case in kinds.cases if case.kind.startswith("versioned")}
    return {
        key: [row for row in rows if b"@" not in row[0]] if key[0] in versioned else rows
        for key, rows in answers.items()
    }


@pytest.mark.parametrize(("mode", "kinds"), of(PLAIN, HEADERS, GLOBALS))
def test_an_instance_started_from_a_backup_restores_nothing_and_answers_as_before(
    lived: Lived, kinds: KindsApplication, tmp_path: Path, url: str
) -> None:
    files = directory.files(lived.world.directory)
    report = snapshot(lived, url)
    assert report.outcome is BackupOutcome.PUBLISHED
    assert not report.running
    assert all(store.tail <= 1 for store in report.stores), "a commit marker at most"
    assert directory.files(lived.world.directory) == files
    assert {store.store for store in report.stores} == lived.stores()
    assert snapshot(lived, url).outcome is BackupOutcome.UNCHANGED

    other = lived.at(tmp_path / "other")
    fetch(other, url, versioned=VersionedStart.LATEST)
    assert some(other.rows()) == some(lived.rows)
    with other.application() as running:
        assert set(restored(running)) <= {"in-memory"}
        assert valid_now(kinds, other.answers(running)) == valid_now(kinds, lived.answers)


@pytest.mark.parametrize(("mode", "kinds"), of(PLAIN, HEADERS, SOURCES))
def test_what_is_fetched_of_changelogs_has_the_rows_of_the_application_which_restores_nothing(
    lived: Lived, tmp_path: Path, url: str
) -> None:
    publish(lived.world.spec(), url, versioned=VersionedStart.LATEST)
    fetched = lived.at(tmp_path / "fetched")
    report = fetch(fetched, url, versioned=VersionedStart.LATEST)
    assert {store.store for store in report.stores} == lived.stores()
    assert of_stores(fetched.rows(), lived.stores()) == of_stores(lived.rows, lived.stores())
    versioned = lived.stores("versioned")
    with fetched.application() as running:
        assert set(restored(running)) <= {"in-memory"}
        after = fetched.answers(running)
    assert {key: rows for key, rows in after.items() if key[0] not in versioned} == {
        key: rows for key, rows in lived.answers.items() if key[0] not in versioned
    }


@pytest.mark.full
@pytest.mark.parametrize(("mode", "kinds"), of(PLAIN, HEADERS, SOURCES))
def test_of_what_is_fetched_kafka_streams_restores_versioned_stores_so_that_their_history_is_found(
    lived: Lived, tmp_path: Path, url: str
) -> None:
    publish(lived.world.spec(), url)
    fetched = lived.at(tmp_path / "fetched")
    fetch(fetched, url)
    with fetched.application() as running:
        assert set(restored(running)) - {"in-memory"} == lived.stores("versioned")
        assert fetched.answers(running) == lived.answers


@pytest.mark.parametrize(("mode", "kinds"), of(PLAIN, HEADERS))
def test_every_store_is_what_its_changelog_says(lived: Lived) -> None:
    state_dir = lived.world.state_dir
    before = directory.inodes(state_dir)
    request = DiffRequest(spec=lived.world.spec(), state_dir=str(state_dir), with_changelog=True, transaction_wait=5.0)
    report = run_diff(request, InProcessEngine())
    assert directory.inodes(state_dir) == before
    assert report.verdict is DiffVerdict.EQUAL
    assert {(one.task, one.store): one.counts for one in report.stores if not one.counts.are_equal} == {}
    assert {store.store for store in report.stores} == lived.stores()
    for store in report.stores:
        assert (store.compared.rows, store.compared.digest) == (
            store.compared.reference_rows,
            store.compared.reference_digest,
        )
        assert not store.offsets or store.offsets == store.reference_offsets
    assert report.counts.equal > 300
    assert not report.left_out
