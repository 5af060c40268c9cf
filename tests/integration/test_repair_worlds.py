"""The damages of ``test_repair`` with Kafka Streams 4.3, and with transactional stores of 4.4: right after a repair.

All damages of a guarantee are in one directory at once, with some more; one repair fixes them, and the release that has
written the directory opens it.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statecore.jobs.repair.report import RepairOutcome
from tests.harness import damage_functions
from tests.harness.damage_cases import miskeyed
from tests.harness.fleet import NEWEST, Fleet
from tests.harness.modes import transactional
from tests.integration.test_repair import (
    ALOS,
    CASES,
    EOS,
    KINDS,
    LIES,
    PARTITIONS,
    PLAIN,
    RESTORES,
    STAMPED,
    WINDOWS,
    WIPED,
    Case,
    Copies,
    World,
    _no_manifest_end,
    _rows,
    _to_database,
)

pytestmark = [pytest.mark.integration, pytest.mark.full]


@dataclass(frozen=True)
class Setting:
    """A release, and how the application is configured.

    Attributes:
        transactional: whether its stores are.
    """

    release: str
    guarantee: str
    transactional: bool = False

    def cases(self) -> list[Case]:
        """The damages. A start wipes no task with transactional stores, so none restores the buffer."""
        found = [case for case in (*CASES, *MORE) if case.guarantee == self.guarantee]
        if not self.transactional:
            return found
        return [
            replace(case, inflict=_to_database(miskeyed), also=())
            if case.code == "grace-buffer-miskeyed"
            else replace(case, also=tuple(code for code in case.also if code != "grace-buffer-miskeyed"))
            for case in found
            if case.code != "segment-missing"  # a note
        ]

    def __str__(self) -> str:
        return f"{self.release}-{self.guarantee}{'-transactional' if self.transactional else ''}"


SETTINGS = (
    Setting("4.3", ALOS),
    Setting("4.3", EOS),
    Setting(NEWEST, ALOS, transactional=True),
    Setting(NEWEST, EOS, transactional=True),
)


def _segments_gone(copies: Copies, case: Case) -> None:
    for segment in damage_functions.segments_of(copies.application, case.store, case.task):
        shutil.rmtree(segment)


_ahead = _to_database(lambda database: damage_functions.change_offsets(database, lambda offset: offset + 5))

MORE = (
    Case("offset-past-end", ALOS, "0_4", PLAIN, _ahead, RESTORES),
    Case("segment-missing", EOS, "0_3", WINDOWS, _segments_gone, WIPED, left_to_restore=12),
    Case("offset-past-end", EOS, "0_4", STAMPED, _ahead, RESTORES),
    Case("log-foreign", EOS, "0_0", PLAIN, _to_database(damage_functions.put_foreign_log), LIES),
    Case("block-corrupt", EOS, "0_6", PLAIN, _rows(damage_functions.flip_in_data_block), LIES),
    Case("manifest-truncated", EOS, "0_2", STAMPED, _no_manifest_end, RESTORES),
)  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_after_a_repair_all_is_right(fleet: Fleet, tmp_path: Path, setting: Setting) -> None:
    (tmp_path / "state").mkdir()
    kinds = transactional(KINDS) if setting.transactional else KINDS
    name = f"repair-world-{time.time_ns():x}"
    application = fleet.application(name, tmp_path / "state", setting.guarantee, kinds, PARTITIONS)
    world = World(application, tmp_path, release=setting.release)
    world.live()
    cases = setting.cases()
    state_dir = world.damaged("repaired", *cases)
    expected = set().union(*(case.found for case in cases))
    assert world.doctor(state_dir) == (22, expected)
    plan = world.repair(state_dir)
    report = world.repair(state_dir, apply=True, approved=plan.plan_id)
    assert (report.outcome, report.remaining) == (RepairOutcome.REPAIRED, ())
    assert world.doctor(state_dir) == (0, set())
    run = world.open(state_dir)
    assert run.answers == world.truth
    left = {(case.store, case.partition): case.left_to_restore for case in cases if case.left_to_restore}
    assert {place: records for place, records in run.restored.items() if records} == left
    assert world.doctor(state_dir) == (0, set())
