"""Task directories of real Kafka Streams 3.9.1, 4.2.0, 4.3.1 and 4.4.0, converted, opened by another of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from statecore.conversion import TaskConversion, plan_conversion
from statecore.conversion.execute import convert, verify_conversion
from statecore.conversion.rows import COUNTERPARTS
from statecore.formats.offsets import STATUS_CLOSED
from statecore.formats.releases import CHECKPOINT_FILE, GLOBAL, RELEASES
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec
from statecore.statedir.file_trees import fingerprint, link_tree
from tests.harness.case_selection import one_of
from tests.harness.fed_application import Answers
from tests.harness.feeds import PUTS, Portion
from tests.harness.fleet import GUARANTEES, NEWEST, Fleet, VersionedApplication
from tests.harness.fleet_kinds import EVERY, SMALL
from tests.harness.flushing import flush
from tests.harness.kinds import HEADERS, KindsApplication
from tests.harness.modes import statuses

pytestmark = [pytest.mark.integration]


def converted(
    world: VersionedApplication, release: str, spec: ApplicationSpec | None, *, lose_headers: bool = False
) -> list[TaskConversion]:
    """Convert every task, as the job does it: the live directory is only read, and its copy takes its place."""
    plans = []
    for live in sorted(path for path in world.directory.iterdir() if path.is_dir()):
        before = fingerprint(live)
        plan = plan_conversion(
            live.name,
            live,
            RELEASES[release],
            application_id=world.application_id,
            spec=spec,
            exactly_once=world.guarantee == "exactly_once_v2",
            lose_headers=lose_headers,
        )
        assert not plan.refused
        copy = world.state_dir.parent / "copies" / uuid4().hex / live.name
        link_tree(live, copy)
        convert(plan, copy)
        verify_conversion(plan, copy)
        assert fingerprint(live) == before
        shutil.rmtree(live)
        copy.rename(live)
        plans.append(plan)
    assert plans
    return plans


def said(answers: Answers) -> Answers:
    """Answers without the empty headers that stores which keep headers add to each value."""
    return {key: [(one, value.removesuffix(b"[]"), time) for one, value, time in rows] for key, rows in answers.items()}


@pytest.mark.parametrize(
    ("newer", "older", "guarantee", "kinds"),
    one_of(
        [
            (NEWEST, "4.2", "exactly_once_v2", EVERY),
            (NEWEST, "3.9", "at_least_once", EVERY),
            (NEWEST, "3.9", "exactly_once_v2", SMALL),
            (NEWEST, "4.2", "at_least_once", SMALL),
            ("4.3", "4.2", "exactly_once_v2", EVERY),
            ("4.3", "3.9", "at_least_once", EVERY),
        ],
    ),
    ids=lambda given: given.name if isinstance(given, KindsApplication) else None,
)
def test_stores_of_every_kind_go_up_and_down_and_nothing_is_restored(
    fleet: Fleet, application_id: str, state_dir: Path, newer: str, older: str, guarantee: str, kinds: KindsApplication
) -> None:
    world = fleet.application(application_id, state_dir, guarantee, kinds)
    with world.on(older) as running:
        world.feed_all()
        before = world.answers(running)
    spec = parse_spec(world.spec()) if kinds is EVERY else None
    said_of_globals = (world.directory / GLOBAL / CHECKPOINT_FILE).exists()
    plans = converted(world, newer, spec)
    made = [one.directory for plan in plans for store in plan.stores for one in store.databases if one.create]
    assert made or kinds is SMALL, "sparse-window has no segment in the last partition: its offset would be lost"
    if spec is not None:  # else Kafka Streams takes over what only its topology tells: the source table's offset
        assert {plan.task for plan in plans if plan.left} == (set() if said_of_globals else {GLOBAL})
    with world.on(newer) as running:
        restored = world.restored(running)
        assert restored.keys() == (set() if said_of_globals else {"global-table"}), restored
        assert world.answers(running) == before
    other = "3.9" if older == "4.2" else "4.2"
    converted(world, other, spec)
    with world.on(other) as running:
        assert world.restored(running) == {}
        assert world.answers(running) == before


def _feed(base: int, partitions: int) -> list[Portion]:
    return [one for one in HEADERS.feed(base, partitions) if one[0] != PUTS]


@pytest.mark.full
@pytest.mark.parametrize("releases", [["4.2"], ["4.2", "3.9"]], ids="-".join)
def test_stores_with_headers_go_down_to_releases_that_know_none(
    fleet: Fleet, application_id: str, state_dir: Path, releases: list[str]
) -> None:
    cases = tuple(case for case in HEADERS.cases if not case.store.startswith("put-"))
    with_headers = KindsApplication("headers", cases, _feed, HEADERS.properties)
    plainly = tuple(replace(case, query=case.query and replace(case.query, headers=False)) for case in cases)
    without = KindsApplication("plainly", plainly, _feed)
    world = fleet.application(application_id, state_dir, "exactly_once_v2", with_headers)
    with world.on(NEWEST) as running:
        world.feed_all()
        before = said(world.answers(running))
    plans = converted(world, "4.2", parse_spec(world.spec()), lose_headers=True)
    moves = [move for plan in plans for store in plan.stores for one in store.databases for move in one.moves]
    assert {move.target_kind for move in moves} == {target for targets in COUNTERPARTS.values() for target in targets}
    assert {move.source_kind.value for move in moves if move.headers} == {"headers-window"}, "the windows of joins"
    world.kinds = without
    for release in releases:
        converted(world, release, None)
        with world.on(release) as running:
            assert world.restored(running) == {}
            assert said(world.answers(running)) == before


@pytest.mark.full
@pytest.mark.parametrize("transactional", ["false", "true"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_4_3_and_4_4_open_what_the_other_closed_as_it_is(
    fleet: Fleet, application_id: str, state_dir: Path, guarantee: str, transactional: str
) -> None:
    world = fleet.application(application_id, state_dir, guarantee, SMALL)
    before: Answers = {}
    first, second, third = world.portions()
    written = None if transactional == "true" else STATUS_CLOSED
    for release, portions, status in (
        ("4.4", first, written),
        ("4.3", second, STATUS_CLOSED),
        ("4.4", third, STATUS_CLOSED),
    ):
        properties = {"enable_transactional_statestores": transactional} if release == "4.4" else {}
        with world.on(release, **properties) as running:
            if before:
                assert world.restored(running) == {}
                assert world.answers(running) == before
            world.feed(portions)
            before = world.answers(running)
        assert statuses(world) == {status}, release
    with world.on("4.3") as running:
        assert world.restored(running) == {}
        assert world.answers(running) == before


@pytest.mark.full
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_transactional_stores_go_down(fleet: Fleet, application_id: str, state_dir: Path, guarantee: str) -> None:
    world = fleet.application(application_id, state_dir, guarantee, SMALL)
    with world.on("4.4", enable_transactional_statestores="true") as running:
        world.feed_all()
        before = world.answers(running)
    assert statuses(world) == {None}
    assert all(plan.is_empty for plan in converted(world, "4.3", None))
    for release in ("4.2", "3.9"):
        converted(world, release, None)
        with world.on(release) as running:
            assert world.restored(running) == {}
            assert world.answers(running) == before


@pytest.mark.full
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_of_transactional_stores_that_a_kill_left_the_tail_is_restored(
    fleet: Fleet, application_id: str, state_dir: Path, tmp_path: Path, guarantee: str
) -> None:
    """No database says that it is open. So under exactly-once the tail is all that is restored, but for the task of a
    grace buffer: the buffer has no offset, and without transactional stores the task is wiped."""
    world = fleet.application(application_id, state_dir, guarantee, SMALL)
    first, second, third = world.portions()
    transactional = {"enable_transactional_statestores": "true"}
    with world.on("4.4", **transactional):
        world.feed(first)
    running = world.start("4.4", **transactional)
    world.feed(second)
    flush(running)
    world.feed(third)
    before = world.answers(running)
    fleet.kill("4.4")
    assert statuses(world) == {None}
    exactly_once = guarantee == "exactly_once_v2"
    tail = {case.store: 8 for case in SMALL.cases if case.kind != "in-memory"}  # behind what was flushed
    # Global stores are committed after 10,000 records or at a close, and the buffer's file is of the last close.
    expected = {**tail, "global-table": 16, "grace-Buffer": 36 if exactly_once else 28}
    wiped = {**expected, "grace-table": 24} if exactly_once else expected  # it is in a task with the buffer
    for release, properties, records in (("4.3", {}, wiped), ("4.4", {}, wiped), ("4.4", transactional, expected)):
        world.state_dir = shutil.copytree(state_dir, tmp_path / f"{release}-{len(properties)}")
        with world.on(release, **properties) as running:
            assert world.restored(running) == records
            assert world.answers(running) == before
