"""Damaged directories: what real Kafka Streams makes of each, and that it is right after a repair.

Two applications, one at-least-once and one under exactly-once, have lived and were closed. The damages of ``CASES``
are in tasks of their own, so that one start shows what becomes of many; damages that let no start succeed get one each.
Then all damages of an application are in one directory at once, and one repair fixes them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.repair.report import RepairOutcome, RepairReport
from statecore.jobs.repair.request import RepairRequest
from statecore.jobs.repair.run import run_repair
from statecore.statedir.file_trees import fingerprint
from tests.harness import damage_cases, damage_functions
from tests.harness.command import examined, worse_than_notes
from tests.harness.directory import read_database
from tests.harness.feeds import EVENTS, LEFT, REFERENCE, SPARSE, TABLE
from tests.harness.fleet import NEWEST, Fleet, VersionedApplication
from tests.harness.fleet_kinds import SMALL, SPARSE_WINDOWS
from tests.harness.kinds import KindsApplication
from tests.harness.queries import Row
from tests.harness.streams import StreamsApplication, StreamsFailed

pytestmark = pytest.mark.integration

PARTITIONS = 8
ALOS, EOS = "at_least_once", "exactly_once_v2"
PLAIN, STAMPED, WINDOWS, VERSIONS = "key-value", "timestamped-key-value", "timestamped-window", "versioned-key-value"
IDLE = "2_7"
TABLE_STORE, BUFFER, SPARSE_STORE, GLOBAL = "grace-table", "grace-Buffer", "sparse-window", "global-table"

_CHOSEN = (PLAIN, STAMPED, WINDOWS, VERSIONS, GLOBAL)
KINDS = KindsApplication(
    "repaired",
    (*(case for case in SMALL.cases if case.store in _CHOSEN), *SPARSE_WINDOWS.cases),
    lambda base, partitions: [
        one for one in SMALL.feed(base, partitions) if one[0] in (EVENTS, TABLE, LEFT, SPARSE, REFERENCE)
    ],
    SMALL.properties,
)
"""Tables, windows and versions in the tasks 0_*; a versioned table, a buffer and windows in 2_*; a global table.

The last partition of the windows in 2_* never had a record.
"""


class Wrong(Enum):
    """What becomes of a damage when Kafka Streams opens the directory."""

    LIES = "it is RUNNING and answers wrongly, and has restored nothing of the store"
    RESTORES = "it answers rightly, and has restored records that were there"
    WIPED = "it answers rightly, and has restored all stores of the task"
    MIXES = "it answers wrongly, and has restored the store over rows that are not its own"
    DROPS = "it answers rightly, has restored nothing, and has deleted the file that is evidence"
    FAILS = "it does not start"


@dataclass(frozen=True)
class Copies:
    """The directory of an application that is damaged, and the same one some time before."""

    application: Path
    earlier: Path

    def take_earlier(self, task: str, store: str) -> Path:
        """Put a store's database, or its oldest segment, as it was before; returns it."""
        now, before = (damage_functions.database_of(one, store, task) for one in (self.application, self.earlier))
        assert now.name == before.name
        shutil.rmtree(now)
        shutil.copytree(before, now)
        return now


@dataclass(frozen=True)
class Case:
    """One damage in one store of one task.

    Attributes:
        code: what the doctor calls it.
        guarantee: of the application that it is done to.
        task: where.
        store: where; what is found may be of the whole task.
        inflict: does it.
        wrong: what Kafka Streams makes of it.
        left_to_restore: records of the store that Kafka Streams restores after the repair: those that the older
            segment, or the store, lacks; of a versioned store that is rebuilt, all.
        of_task: whether the finding is of the task and names no store.
        also: what is found of the store beside it.
    """

    code: str
    guarantee: str
    task: str
    store: str
    inflict: Callable[[Copies, Case], object]
    wrong: Wrong
    left_to_restore: int = 0
    of_task: bool = False
    also: tuple[str, ...] = ()

    @property
    def partition(self) -> int | None:
        return None if self.task == "global" else int(self.task.rpartition("_")[2])

    @property
    def found(self) -> set[tuple[str, str, str]]:
        """Task, store and code of all that is found of it."""
        of_it = self.task, "" if self.of_task else self.store, self.code
        return {of_it, *((self.task, self.store, code) for code in self.also)}

    def database(self, copies: Copies) -> Path:
        return damage_functions.database_of(copies.application, self.store, self.task)

    def checkpoint(self, copies: Copies) -> Path:
        return copies.application / self.task / ".checkpoint"

    def __str__(self) -> str:
        return f"{self.code}-{self.store}-{self.guarantee}"


def _to_database(inflict: Callable[[Path], object]) -> Callable[[Copies, Case], object]:
    return lambda copies, case: inflict(case.database(copies))


def _offset(said: int | None) -> Callable[[Copies, Case], object]:
    return _to_database(lambda database: damage_functions.change_offsets(database, lambda _: said))


def _older_database(copies: Copies, case: Case) -> None:
    copies.take_earlier(case.task, case.store)


def _newer_checkpoint(copies: Copies, case: Case) -> None:
    said = damage_functions.offsets_of(case.database(copies))
    copies.take_earlier(case.task, case.store)
    damage_functions.write_checkpoint(case.checkpoint(copies), said)


def _older_checkpoint(copies: Copies, case: Case) -> None:
    said = damage_functions.offsets_of(damage_functions.database_of(copies.earlier, case.store, case.task))
    damage_functions.write_checkpoint(case.checkpoint(copies), said)


def _stray_checkpoint(copies: Copies, case: Case) -> None:
    gone = f"{copies.application.name}-gone-changelog-{case.partition}"
    damage_functions.write_checkpoint(case.checkpoint(copies), {gone: 30, f"nobody-changelog-{case.partition}": 3})


def _gone_and_believed(copies: Copies, case: Case) -> None:
    """The store's directory is lost, and a file of offsets was left by a downgrade."""
    database = case.database(copies)
    damage_functions.write_checkpoint(case.checkpoint(copies), damage_functions.offsets_of(database))
    shutil.rmtree(database)


def _another_tasks(copies: Copies, case: Case) -> None:
    """The store's database is that of the last task, as it was some time before."""
    shutil.rmtree(case.database(copies))
    other = damage_functions.database_of(copies.earlier, case.store, f"0_{PARTITIONS - 1}")
    shutil.copytree(other, copies.application / case.task / "rocksdb" / case.store)


def _segment_copied(copies: Copies, case: Case) -> None:
    """The newest segment is in the place of the oldest, too."""
    oldest, *_, newest = damage_functions.segments_of(copies.application, case.store, case.task)
    shutil.rmtree(oldest)
    shutil.copytree(newest, oldest)


def _segment_padded(copies: Copies, case: Case) -> None:
    """The oldest segment has a zero before its time, as of a script that pads numbers."""
    oldest = damage_functions.segments_of(copies.application, case.store, case.task)[0]
    oldest.rename(oldest.with_name(oldest.name.replace(".", ".0")))


def _short_value(database: Path) -> None:
    key, _ = read_database(database)["keyValueWithTimestamp"][0]
    damage_functions.put(database, "keyValueWithTimestamp", key, b"short")


def _rows_set_aside(copies: Copies, case: Case) -> None:
    """The newest rows are in ``lost/`` alone, and the offset says that the store has them."""
    database = case.database(copies)
    (said,) = damage_functions.offsets_of(database).values()
    newest = damage_functions.tables_of(database)[-1].read_bytes()
    lost = copies.take_earlier(case.task, case.store) / "lost"
    damage_functions.change_offsets(database, lambda _: said)
    lost.mkdir()
    (lost / "000099.sst").write_bytes(newest)


def _copied_while_it_ran(copies: Copies, case: Case) -> None:
    """The MANIFEST is of before a compaction, and the SST files are those of after it."""
    database, earlier = (
        damage_functions.database_of(one, case.store, case.task) for one in (copies.application, copies.earlier)
    )
    damage_functions.manifest_of(database).unlink()
    for file in (damage_functions.manifest_of(earlier), earlier / "CURRENT"):
        shutil.copy(file, database / file.name)
    for offsets in (True, False):
        for file in damage_functions.tables_of(database, offsets=offsets):
            file.unlink(missing_ok=True)
    assert list(database.glob("*.sst"))


def _half_migrated(copies: Copies, case: Case) -> None:
    damage_functions.make_older(copies.application, case.store, case.task, with_checkpoint=False)


def _other_kind(copies: Copies, case: Case) -> None:
    damage_cases.stamped_as_plain(copies.application, case.task)


def _garbage(copies: Copies, case: Case) -> None:
    case.checkpoint(copies).write_text("0\n2\nonly-one 0 3\n")


def _without_segment(copies: Copies, case: Case) -> None:
    assert not damage_functions.segments_of(copies.application, case.store, case.task), "nothing has to be damaged"


def _restored_by_kafka_streams(copies: Copies, case: Case) -> None:
    """Its own restore of a grace buffer, which the lack of a segment made it do, gives rows keys that none has."""
    keys = [key for key, _ in read_database(case.database(copies))["default"]]
    assert any(key[:3] != b"\0\0\0" for key in keys), "of a time that is not of this millennium"


def _store_checkpoint_gone(copies: Copies, case: Case) -> None:
    (copies.application / case.task / f".checkpoint_{case.store}").unlink()


def _rows(inflict: Callable[[Path], object]) -> Callable[[Copies, Case], object]:
    """To the newest SST file with rows."""
    return _to_database(lambda database: inflict(damage_functions.tables_of(database)[-1]))


_stray = _to_database(lambda database: damage_functions.add_family(database, "other-tool"))
_stray_rows = _to_database(lambda database: damage_functions.add_family(database, "other-tool", (b"k", b"v")))
_no_family = _to_database(lambda database: damage_functions.drop_family(database, "keyValueWithTimestamp"))
_no_manifest_end = _to_database(damage_functions.cut_manifest)
_no_current = _to_database(lambda database: (database / "CURRENT").unlink())
_no_current_and_log = _to_database(
    lambda database: [path.unlink() for path in (database / "CURRENT", *database.glob("*.log"))]
)
_no_tables = _to_database(lambda database: [path.unlink() for path in database.glob("*.sst")])
_open = _to_database(lambda database: damage_functions.set_status(database, 1))

FAILS, LIES, RESTORES, WIPED = Wrong.FAILS, Wrong.LIES, Wrong.RESTORES, Wrong.WIPED
CASES = (
    Case("segments-disagree", ALOS, "0_0", WINDOWS, _older_database, LIES, left_to_restore=4),
    Case("segment-misplaced", ALOS, "0_1", WINDOWS, _segment_copied, LIES, also=("rows-differ",)),
    Case("segment-misplaced", ALOS, "0_3", WINDOWS, _segment_padded, LIES, also=("rows-differ",)),
    Case("rows-malformed", ALOS, "0_2", WINDOWS, _to_database(_short_value), LIES),
    Case("log-foreign", ALOS, "0_0", PLAIN, _to_database(damage_functions.put_foreign_log), LIES),
    Case("files-set-aside", ALOS, "0_0", STAMPED, _rows_set_aside, LIES, also=("rows-differ",)),
    Case("offset-foreign", ALOS, "0_2", STAMPED, _another_tasks, Wrong.MIXES),
    Case("checkpoint-ahead", ALOS, "0_1", PLAIN, _newer_checkpoint, LIES, left_to_restore=4),
    Case("checkpoint-behind", ALOS, "0_2", PLAIN, _older_checkpoint, RESTORES),
    Case("column-family-missing", ALOS, "0_3", STAMPED, _no_family, LIES, also=("rows-differ",)),
    Case("offset-missing", ALOS, "0_3", PLAIN, _offset(None), RESTORES),
    Case("manifest-truncated", ALOS, "0_4", STAMPED, _no_manifest_end, RESTORES),
    Case("offset-unknown", ALOS, "0_4", VERSIONS, _offset(-4), RESTORES, left_to_restore=12),
    Case("half-migrated", ALOS, "0_5", PLAIN, _half_migrated, RESTORES, 0, True, ("older-release",)),
    Case("current-missing", ALOS, "0_6", STAMPED, _no_current_and_log, RESTORES),
    Case("current-missing", ALOS, "2_5", TABLE_STORE, _no_current, FAILS, left_to_restore=12),
    Case("block-corrupt", ALOS, "0_6", PLAIN, _rows(damage_functions.flip_in_data_block), LIES),
    Case("kind-mismatch", ALOS, "0_7", PLAIN, _other_kind, FAILS),
    Case("checkpoint-stray", ALOS, "0_7", STAMPED, _gone_and_believed, LIES, also=("store-absent",)),
    Case("checkpoint-unreadable", ALOS, "2_0", TABLE_STORE, _garbage, FAILS, of_task=True),
    Case("column-family-unknown", ALOS, "2_1", TABLE_STORE, _stray, FAILS),
    Case("column-family-unknown", ALOS, "2_2", SPARSE_STORE, _stray_rows, FAILS),
    Case("file-missing", ALOS, "2_3", TABLE_STORE, _rows(Path.unlink), FAILS, left_to_restore=12),
    Case("file-missing", ALOS, "2_6", TABLE_STORE, _no_tables, FAILS, left_to_restore=12),
    Case(
        "database-unreadable",
        ALOS,
        "2_4",
        TABLE_STORE,
        _rows(damage_functions.flip_in_footer),
        FAILS,
        left_to_restore=12,
    ),
    Case("global-offset-unknown", ALOS, "global", GLOBAL, _offset(-4), FAILS),
    Case("segments-disagree", EOS, "0_0", WINDOWS, _older_database, LIES),
    Case("store-not-closed", EOS, "0_1", STAMPED, _open, WIPED),
    Case("offset-missing", EOS, "0_2", PLAIN, _offset(None), WIPED),
    Case("current-missing", EOS, "0_3", STAMPED, _no_current_and_log, WIPED),
    Case("half-migrated", EOS, "0_4", PLAIN, _half_migrated, WIPED, 0, True, ("older-release",)),
    Case("column-family-missing", EOS, "0_5", STAMPED, _no_family, LIES, also=("rows-differ",)),
    Case("offset-invalid", EOS, "0_5", PLAIN, _offset(-7), FAILS),
    Case("store-absent", EOS, "0_6", STAMPED, _to_database(shutil.rmtree), WIPED),
    Case("offset-missing", EOS, "2_0", BUFFER, _store_checkpoint_gone, WIPED, also=("grace-buffer-miskeyed",)),
    Case("segment-missing", EOS, IDLE, SPARSE_STORE, _without_segment, WIPED),
    Case("grace-buffer-miskeyed", EOS, IDLE, BUFFER, _restored_by_kafka_streams, WIPED),
    Case("checkpoint-stray", EOS, "0_7", PLAIN, _stray_checkpoint, Wrong.DROPS, of_task=True),
    Case("global-store-not-closed", EOS, "global", GLOBAL, _open, FAILS),
    Case("file-missing", EOS, "0_7", STAMPED, _copied_while_it_ran, FAILS),
)  # fmt: skip
_STARTS_ONCE = ("kind-mismatch", "global-store-not-closed")
"""What ``make test`` shows of the damages that let no start succeed: one of each application; each costs a start."""

every_case = pytest.mark.parametrize("case", CASES, ids=str)

Place = tuple[str, int | None]
"""A store of a task."""


@dataclass(frozen=True)
class Run:
    """What a start came to: records that were restored and answers (or errors), by store and partition."""

    restored: Mapping[Place, int]
    answers: Mapping[Place, list[Row] | str]


@dataclass
class World:
    """An application that has lived, as it was closed in the end and some time before."""

    application: VersionedApplication
    base: Path
    truth: Mapping[Place, list[Row]] = field(default_factory=dict)
    release: str = NEWEST

    @property
    def id(self) -> str:
        return self.application.application_id

    @property
    def cases(self) -> list[Case]:
        return [case for case in CASES if case.guarantee == self.application.guarantee]

    @property
    def spec(self) -> Path:
        return self.base / "stores.yaml"

    def live(self) -> None:
        first, second, third = self.application.portions()
        with self.application.on(self.release):
            self.application.feed([*first, *second])
        shutil.copytree(self.application.state_dir, self.base / "earlier")
        with self.application.on(self.release) as running:
            self.application.feed(third)
            self.truth = self.application.answers(running)
        shutil.copytree(self.application.state_dir, self.base / "closed")
        self.spec.write_text(yaml.safe_dump(self.application.spec()))

    def damaged(self, name: str, *cases: Case) -> Path:
        """A ``state.dir`` with these damages."""
        state_dir = self.base / name
        shutil.copytree(self.base / "closed", state_dir)
        for case in cases:
            case.inflict(Copies(state_dir / self.id, self.base / "earlier" / self.id), case)
        return state_dir

    def open(self, state_dir: Path, **properties: str) -> Run:
        """What real Kafka Streams makes of it; it is closed cleanly.

        Raises:
            StreamsFailed: it does not start.
        """
        self.application.state_dir = state_dir
        with self.application.on(self.release, **properties) as running:
            self.application.prepare(running)
            return Run(running.restored_records(), {place: _ask(running, *place) for place in self.truth})

    def doctor(self, state_dir: Path) -> tuple[int, set[tuple[str, str, str]]]:
        """The exit code of the command, and what is worse than a note: task, store, code."""
        code, findings = examined(state_dir, self.spec, "--scan", "--to", self.release)
        worse = worse_than_notes(findings)
        return code, {(one["task"] or "", one["store"] or "", one["code"]) for one in worse}

    def repair(self, state_dir: Path, **asked: Any) -> RepairReport:
        given = {"scan": True, "spec_path": str(self.spec), **asked}
        request = RepairRequest(application_id=self.id, state_dir=str(state_dir), **given)
        return run_repair(request, InProcessEngine())


def _ask(running: StreamsApplication, store: str, partition: int | None) -> list[Row] | str:
    try:
        return running.query_rows(store, partition)
    except Exception as error:  # py4j's; a store with a block that cannot be read
        return str(error)


@pytest.fixture(scope="module")
def worlds(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, World]:
    made = {}
    for guarantee in (ALOS, EOS):
        base = tmp_path_factory.mktemp("repair")
        (base / "state").mkdir()
        name = f"repair-{guarantee.replace('_', '-')}-{time.time_ns():x}"
        application = fleet.application(name, base / "state", guarantee, KINDS, PARTITIONS)
        made[guarantee] = World(application, base)
        made[guarantee].live()
    return made


@pytest.fixture(scope="module")
def opened(worlds: Mapping[str, World]) -> Mapping[str, Run]:
    """What becomes of all damages of an application that let it start."""
    found = {}
    for guarantee, world in worlds.items():
        harmless = [case for case in world.cases if case.wrong is not FAILS]
        found[guarantee] = world.open(world.damaged("opened", *harmless))
    return found


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.full if case.wrong is FAILS and case.code not in _STARTS_ONCE else ())
        for case in CASES
    ],
    ids=str,
)
def test_what_kafka_streams_makes_of_a_damage(
    worlds: Mapping[str, World], opened: Mapping[str, Run], case: Case
) -> None:
    world, place = worlds[case.guarantee], (case.store, case.partition)
    if case.wrong is FAILS:
        state_dir = world.damaged(f"failing-{case}-{case.task}", case)
        with pytest.raises(StreamsFailed):
            world.open(state_dir)
        return
    run = opened[case.guarantee]
    restored = run.restored.get(place, 0)
    if case.code == "block-corrupt":
        assert run.answers[place] == [], "a scan ends at the block, and nobody is told"
    if case.wrong is LIES:
        assert run.answers[place] != world.truth[place]
        assert restored == 0
        return
    if case.wrong is Wrong.MIXES:
        assert set(run.answers[place]) > set(world.truth[place])
        assert restored > 0
        return
    assert run.answers.get(place) == world.truth.get(place)
    stores = {store for store, partition in world.truth if partition == case.partition} - {GLOBAL}
    of_task = {WINDOWS, PLAIN, STAMPED, VERSIONS} if case.task.startswith("0") else {TABLE_STORE, BUFFER, SPARSE_STORE}
    siblings = [store for store in stores & of_task if store != case.store and world.truth[store, case.partition]]
    if case.wrong is Wrong.DROPS:
        assert restored == 0
        assert not (world.base / "opened" / world.id / case.task / ".checkpoint").exists()
    elif case.wrong is WIPED:
        assert all(run.restored.get((store, case.partition), 0) > 0 for store in siblings)
    else:
        assert restored > 0


@dataclass(frozen=True)
class Repaired:
    """All damages of an application, repaired."""

    state_dir: Path
    found: set[tuple[str, str, str]]
    plan: RepairReport
    report: RepairReport
    before: Mapping[str, str]
    after: Mapping[str, str]
    run: Run


@pytest.fixture(scope="module")
def repaired(worlds: Mapping[str, World]) -> Mapping[str, Repaired]:
    """All damages of an application at once: found, planned, repaired and opened."""
    made = {}
    for guarantee, world in worlds.items():
        state_dir = world.damaged("repaired", *world.cases)
        _, found = world.doctor(state_dir)
        before = _tasks(state_dir / world.id)
        plan = world.repair(state_dir)
        assert _tasks(state_dir / world.id) == before
        report = world.repair(state_dir, apply=True, approved=plan.plan_id)
        after = _tasks(state_dir / world.id)
        made[guarantee] = Repaired(state_dir, found, plan, report, before, after, world.open(state_dir))
    return made


def _tasks(application: Path) -> dict[str, str]:
    return {path.name: fingerprint(path) for path in application.iterdir() if path.is_dir() and path.name[0] != "."}


@every_case
def test_the_doctor_names_it_and_after_a_repair_kafka_streams_is_right(
    worlds: Mapping[str, World], repaired: Mapping[str, Repaired], case: Case
) -> None:
    world, done, place = worlds[case.guarantee], repaired[case.guarantee], (case.store, case.partition)
    assert case.found <= done.found
    assert done.run.answers.get(place) == world.truth.get(place)
    assert done.run.restored.get(place, 0) == case.left_to_restore


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_nothing_else_is_found_changed_or_restored(
    worlds: Mapping[str, World], repaired: Mapping[str, Repaired], guarantee: str
) -> None:
    world, done = worlds[guarantee], repaired[guarantee]
    assert done.found == set().union(*(case.found for case in world.cases))
    damaged = {case.task for case in world.cases} | {IDLE}  # which gets a segment also where it costs nothing without
    assert {task for task in done.after if done.after[task] == done.before[task]} == set(done.after) - damaged
    assert done.run.answers == world.truth
    expected = {(case.store, case.partition): case.left_to_restore for case in world.cases if case.left_to_restore}
    assert {place: records for place, records in done.run.restored.items() if records} == expected
    assert (done.plan.outcome, done.report.outcome, done.report.remaining) == (
        RepairOutcome.PLANNED,
        RepairOutcome.REPAIRED,
        (),
    )
    assert world.doctor(done.state_dir) == (0, set())


def test_what_is_not_in_the_place_of_its_kind_is_ignored(worlds: Mapping[str, World]) -> None:
    """A database in ``rocksdb/<store>`` of windows, and segments in ``<store>`` of another kind: as in a former one."""
    world = worlds[ALOS]
    state_dir = world.damaged("leftovers")
    task = state_dir / world.id / "0_0"
    shutil.copytree(task / "rocksdb" / STAMPED, task / "rocksdb" / WINDOWS)
    shutil.copytree(task / WINDOWS, task / PLAIN)
    for segment in (task / PLAIN).iterdir():
        segment.rename(segment.with_name(segment.name.replace(WINDOWS, PLAIN)))
    assert world.doctor(state_dir) == (0, set())
    run = world.open(state_dir)
    assert (run.answers, {place: count for place, count in run.restored.items() if count}) == (world.truth, {})
    assert world.doctor(state_dir) == (0, set())


@pytest.mark.full
def test_a_directory_that_cleaning_would_delete(worlds: Mapping[str, World]) -> None:
    """``cleaning-deletes``: a copy that kept its times vanishes at the start, and is used when its time is now."""
    world, old = worlds[EOS], time.time() - 30 * 86_400
    limit = {"state_cleanup_dir_max_age_ms": "86400000"}
    opened, repaired = (world.damaged(f"old-{name}") for name in ("opened", "repaired"))
    for state_dir in (opened, repaired):
        os.utime(state_dir / world.id / "0_3", (old, old))
    run = world.open(opened, **limit)
    assert run.answers == world.truth
    deleted = {place for place, records in run.restored.items() if records and place[1] == 3 and place[0] in _CHOSEN}
    assert deleted == {(store, 3) for store in _CHOSEN if store != GLOBAL}
    report = world.repair(repaired, apply=True, cleanup_max_age_ms=86_400_000)
    assert {task.task: task.codes for task in report.repaired}["0_3"] == ("cleaning-deletes",)
    run = world.open(repaired, **limit)
    assert (run.answers, {place for place, records in run.restored.items() if records}) == (world.truth, set())
