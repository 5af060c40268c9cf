"""Stores of every kind that an older release of Kafka Streams has, lost, rebuilt, converted to it, and opened by it.

``test_kinds`` has the newest release.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.formats.releases import RELEASES
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.fields.catalog import TargetRelease, VersionedStart
from statecore.jobs.migrate.request import MigrateRequest
from statecore.jobs.migrate.run import run_migrate
from statecore.jobs.restore.request import RestoreRequest
from statecore.jobs.restore.run import run_restore
from statecore.spec.model import ProcessingGuarantee
from tests.harness.fleet import NEWEST, VERSIONS, Fleet
from tests.harness.fleet_kinds import EVERY
from tests.harness.kinds import HEADERS, KindsApplication
from tests.harness.modes import MODES, Mode, group_type

pytestmark = [pytest.mark.integration, pytest.mark.full]


def runs() -> Iterator[tuple[str, Mode, KindsApplication]]:
    """What each release knows: groups of the streams protocol since 4.2, headers since 4.3."""
    for release in list(VERSIONS)[:-1]:
        for mode in MODES:
            if not mode.transactional and (mode.protocol == "classic" or release != "3.9"):
                yield release, mode, EVERY
                if RELEASES[release].offsets_inside:
                    yield release, mode, HEADERS


@pytest.mark.parametrize(
    ("release", "mode", "kinds"),
    [pytest.param(*run, id=f"{run[0]}-{run[1].name}-{run[2].name}") for run in runs()],
)
def test_a_release_opens_what_was_rebuilt_and_made_its_own_with_nothing_to_restore(
    fleet: Fleet, tmp_path: Path, release: str, mode: Mode, kinds: KindsApplication
) -> None:
    application_id = f"release-{release}-{mode.name}-{kinds.name}-{uuid.uuid4().hex[:8]}"
    world = fleet.application(application_id, tmp_path / "state", mode.guarantee, mode.of(kinds))
    with world.on(release) as running:
        world.feed_all()
        before = world.answers(running)
    assert all(any(rows for key, rows in before.items() if key[0] == store) for store, _ in before)
    assert group_type(fleet.jvm(NEWEST), world.servers, application_id) == mode.protocol
    world.lose()
    restore = RestoreRequest(
        spec=world.spec(), state_dir=str(world.state_dir), versioned=VersionedStart.LATEST, transaction_wait=5.0
    )
    run_restore(restore, InProcessEngine())
    if not RELEASES[release].offsets_inside:
        migrate = MigrateRequest(
            application_id=application_id,
            state_dir=str(world.state_dir),
            to=TargetRelease(release),
            apply=True,
            processing_guarantee=ProcessingGuarantee(mode.guarantee),
        )
        run_migrate(migrate, InProcessEngine())
    with world.on(release) as running:
        assert world.restored(running) == {}
        assert world.answers(running) == before
