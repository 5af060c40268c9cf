"""An application of 3.9 or 4.2 is upgraded by a command before its start, as an init container runs it.

Nothing is restored and nothing is lost. Where Kafka Streams' own import of an older directory costs something, both
ways are gone on copies of one directory, and what each restores and answers is compared with what the application
answered before, which is what its changelogs say. The figures are those of docs/migrate.md.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.case_selection import one_of
from tests.harness.command import examined, statecore, statecore_here
from tests.harness.fed_application import Answers
from tests.harness.fleet import GUARANTEES, NEWEST, Fleet, Moment, VersionedApplication
from tests.harness.fleet_kinds import SMALL, SPARSE_WINDOWS
from tests.harness.flushing import flush
from tests.harness.kinds import KindsApplication
from tests.harness.raising import code_said

pytestmark = [pytest.mark.integration]

WINDOWS, BUFFER = "timestamped-window", "grace-Buffer"
VERSIONED = ("versioned-key-value", "grace-table")
ON_DISK = tuple(case.store for case in SMALL.cases if case.kind != "in-memory")
ON_TASKS = frozenset(case.store for case in SMALL.cases if case.kind != "in-memory" and not case.is_global)
TWO_THIRDS = {store: 28 if store == BUFFER else 16 for store in ON_DISK}
"""Records by store of the second and the third part of the feed; a buffer's changelog says also what has left it."""
ALL = {**dict.fromkeys(ON_DISK, 24), BUFFER: 36, "global-table": TWO_THIRDS["global-table"]}
"""Of the whole feed; a global store is in no task, and keeps its offset."""
THIRD = {store: 20 if store == BUFFER else 8 for store in ON_DISK}
"""Of the third part."""

MakeWorld = Callable[..., VersionedApplication]


class Way(NamedTuple):
    """What came of one way to open a directory.

    Attributes:
        restored: records that Kafka Streams restored, by store.
        answers: what it answered then.
        said: the report of the command, where that was the way.
    """

    restored: Mapping[str, int]
    answers: Answers
    said: Mapping[str, Any]

    def differs(self, truth: Answers) -> set[str]:
        """The stores that do not answer as they should."""
        return {store for store, partition in truth if self.answers[store, partition] != truth[store, partition]}


@pytest.fixture
def make_world(fleet: Fleet, application_id: str, state_dir: Path) -> MakeWorld:
    def made(guarantee: str, kinds: KindsApplication = SMALL, name: str = "a") -> VersionedApplication:
        return fleet.application(f"{application_id}-{name}", state_dir / name, guarantee, kinds)

    return made


def migrate(world: VersionedApplication, to: str, *words: object, state_dir: Path | None = None) -> dict[str, Any]:
    """The command before every start; its report."""
    where = ("--application-id", world.application_id, "--state-dir", state_dir or world.state_dir)
    done = statecore_here("migrate", *where, "--to", to, "--apply", "--if-there", "--json", *words)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def start(world: VersionedApplication, state_dir: Path, release: str, said: Mapping[str, Any] | None = None) -> Way:
    """Open a directory with real Kafka Streams."""
    world.state_dir = state_dir
    with world.on(release) as running:
        return Way(world.restored(running), world.answers(running), said or {})


def ways(
    world: VersionedApplication,
    state_dir: Path,
    to: str = NEWEST,
    words: Mapping[str, tuple[object, ...]] | None = None,
    *,
    own: bool = True,
) -> dict[str, Way]:
    """What becomes of copies of a directory: ``import``: the release opens it itself; others: after the command.

    Args:
        world: the application.
        state_dir: its directory, which stays.
        to: the release.
        words: by name, what the command is told besides.
        own: whether the release opens one itself.
    """
    found = {}
    wanted: dict[str, tuple[object, ...] | None] = {"import": None} if own else {}
    for name, more in {**wanted, **(words or {"migrate": ()})}.items():
        copy = state_dir.with_name(f"{state_dir.name}-{name}")
        shutil.copytree(state_dir, copy)
        said = None if more is None else migrate(world, to, *more, state_dir=copy)
        found[name] = start(world, copy, to, said)
    return found


def left(way: Way) -> list[str]:
    """What the command left as it is, and why."""
    return [why for task in way.said["tasks"] for why in task["left"]]


def checkpoints(state_dir: Path) -> dict[str, bytes]:
    """Every ``.checkpoint``, by its path in the state directory."""
    return {str(file.relative_to(state_dir)): file.read_bytes() for file in state_dir.glob("*/*/.checkpoint")}


@pytest.mark.parametrize(("release", "guarantee"), one_of([("4.2", "exactly_once_v2"), ("3.9", "at_least_once")]))
def test_an_upgrade_behind_an_init_container_restores_nothing(
    make_world: MakeWorld, release: str, guarantee: str, tmp_path: Path
) -> None:
    world = make_world(guarantee)
    where = ("--application-id", world.application_id, "--state-dir", world.state_dir)
    done = statecore("migrate", *where, "--to", NEWEST, "--apply", "--if-there", "--json")  # a fresh volume
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["outcome"], said["tasks"]) == ("nothing to do", [])
    first, second, third = world.portions()
    with world.on(release) as running:
        world.feed([*first, *second])
        before = world.answers(running)
    spec = world.write_spec(tmp_path / "stores.yaml")
    found = ways(world, world.state_dir, words={"without-spec": (), "with-spec": ("--spec", spec)})
    # 3.9 keeps the offsets of global stores only after 10,000 records: it restores them itself at every start.
    expected = {"global-table": 16} if release == "3.9" else {}
    for name, way in found.items():
        assert not way.differs(before), name
        assert way.restored == expected, name
    # The name of a source topic does not tell whose it is: without a spec Kafka Streams is left to take it over.
    assert any("-source-0 at" in why for why in left(found["without-spec"]))
    assert not any("-source-" in why for why in left(found["with-spec"]))
    assert migrate(world, NEWEST)["outcome"] == "nothing to do"
    with world.on(NEWEST) as running:  # the last of the copies lives on
        assert world.restored(running) == {}
        world.feed(third)
        assert world.answers(running) != before


@pytest.mark.full
def test_a_window_store_without_a_segment_keeps_its_offset(make_world: MakeWorld) -> None:
    world = make_world("exactly_once_v2", SPARSE_WINDOWS)
    before = world.live("4.2", Moment.CLEAN)
    found = ways(world, world.state_dir)
    assert found["migrate"].restored == {}
    # Kafka Streams drops the offset of the store, and wipes its task, with the other stores in it.
    assert found["import"].restored == {"grace-table": 12, "grace-Buffer": 18}
    assert not found["migrate"].differs(before)
    assert not found["import"].differs(before)


@pytest.mark.full
def test_an_instance_that_died_on_4_2_restores_what_its_checkpoint_cannot_vouch_for(
    fleet: Fleet, make_world: MakeWorld, tmp_path: Path
) -> None:
    worlds = {guarantee: make_world(guarantee, name=guarantee) for guarantee in GUARANTEES}
    before = {guarantee: world.live("4.2", Moment.FLUSHED) for guarantee, world in worlds.items()}
    fleet.kill("4.2")
    for guarantee, world in worlds.items():
        # Also under exactly-once 4.2 leaves the file of its last start, and goes by it itself.
        died = world.state_dir
        assert checkpoints(died)
        where = ("--application-id", world.application_id, "--state-dir", world.state_dir)
        asked = statecore("migrate", *where, "--to", NEWEST, "--apply")
        assert asked.returncode == 13, "nobody has said the guarantee"
        assert code_said(asked.stderr) == "migration-refused"
        found = ways(world, died, words={"migrate": ("--processing-guarantee", guarantee)})
        for way in found.values():
            assert not way.differs(before[guarantee]), guarantee
        # What was flushed here was committed, which nothing on disk says.
        assert found["import"].restored == TWO_THIRDS, guarantee
        everything = guarantee == "exactly_once_v2"
        assert found["migrate"].restored == (ALL if everything else TWO_THIRDS), guarantee
        assert any("no offset is read" in why for why in left(found["migrate"])) is everything
        spec = world.write_spec(tmp_path / f"{guarantee}.yaml")
        found_by_doctor = examined(died, spec, "--offline")[1]
        late = {one["store"] for one in found_by_doctor if one["code"] == "rows-after-checkpoint"}
        assert late == ON_TASKS
        severities = {one["severity"] for one in found_by_doctor if one["code"] == "rows-after-checkpoint"}
        assert severities == {"loss" if everything else "warning"}
        if everything:
            repaired = died.with_name("repaired")
            shutil.copytree(died, repaired)
            done = statecore_here("repair", "--state-dir", repaired, "--spec", spec, "--apply", "--json", "--offline")
            assert done.returncode == 0, done.stdout + done.stderr
            mended = start(world, repaired, NEWEST)
            assert not mended.differs(before[guarantee])
            # The history of versions is restored after every rebuild; the global store is as it was.
            assert mended.restored == {store: ALL[store] for store in ("global-table", *VERSIONED)}


@pytest.mark.full
def test_a_leftover_checkpoint_file_does_not_override_the_stores(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world("at_least_once")
    first, second, third = world.portions()
    with world.on(NEWEST, upgrade_from="4.2"):  # which writes the file when it is closed
        world.feed([*first, *second])
    earlier = tmp_path / "earlier"
    shutil.copytree(world.state_dir, earlier)
    with world.on(NEWEST, upgrade_from="4.2") as running:
        world.feed(third)
        before = world.answers(running)
    older, newer = checkpoints(earlier), checkpoints(world.state_dir)
    assert older.keys() == newer.keys()
    for state_dir, contents in ((world.state_dir, older), (earlier, newer)):
        for name, content in contents.items():
            (state_dir / name).write_bytes(content)
    # The file is older than the data, as after a botched downgrade: what lies between is restored again.
    found = ways(world, world.state_dir)
    assert found["migrate"].restored == {}
    assert found["import"].restored == THIRD
    assert not found["migrate"].differs(before)
    assert not found["import"].differs(before)
    # The file is newer than the data, as of a backup of which parts are of different days: what lies between is lost.
    found = ways(world, earlier)
    assert found["migrate"].restored == THIRD
    assert found["import"].restored == {}
    assert not found["migrate"].differs(before)
    assert found["import"].differs(before) == THIRD.keys() - {BUFFER}  # which nobody can ask


@pytest.mark.full
def test_windows_of_a_crash_on_4_4_go_back_to_4_2_without_a_loss(fleet: Fleet, make_world: MakeWorld) -> None:
    world = make_world("at_least_once")
    first, second, third = world.portions()
    with world.on(NEWEST):
        world.feed([*first, *second])
    running = world.start(NEWEST)
    world.feed(third)
    newest = max((world.directory / "0_0" / WINDOWS).iterdir()).name
    assert flush(running, lambda *one: one == (WINDOWS, 0, newest)) == [newest]
    before = world.answers(running)
    fleet.kill(NEWEST)
    crashed = world.state_dir
    found = ways(world, crashed)
    assert found["import"].differs(before) == {WINDOWS}, "4.4.0 goes by the newest segment"
    assert found["import"].restored[WINDOWS] == 4  # of the other partition
    assert found["migrate"].said["outcome"] == "nothing to do"
    back = ways(world, crashed, "4.2", {"back": ("--processing-guarantee", "at_least_once")}, own=False)["back"]
    assert not back.differs(before)
    assert back.restored == THIRD
