"""The verification record: whose turn it is, since when everything is verified, and how it is replaced."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from statecore.documents import encode_json, parse_json
from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.verification_record import (
    RECORD,
    Level,
    VerificationRecord,
    VerifiedPart,
    read_record,
    record_verified,
    verified_before,
)
from statecore.repository.maintenance.verify import Subset
from tests.harness.raising import raises
from tests.harness.simulated_store import Storage
from tests.unit.repository.snapshots import BOTH, Snapshots

DAY_MS = 24 * 3_600_000


def part(number: int, parts: int, at_ms: int, damaged: int = 0, level: Level = Level.BYTES) -> VerifiedPart:
    return VerifiedPart(level.value, number, parts, at_ms, "S", damaged)


def record(*verified: VerifiedPart) -> VerificationRecord:
    return VerificationRecord("r", "orders", 1, verified)


@pytest.mark.parametrize(
    ("verified", "turn"),
    [
        ((), 3),  # by the day
        ((part(1, 3, 5), part(2, 3, 4), part(3, 3, 6)), 2),
        ((part(1, 3, 5), part(3, 3, 6)), 2),
        ((part(3, 3, 5),), 1),
        ((part(1, 3, 5), part(2, 3, 3 * DAY_MS), part(3, 3, 4)), 2),  # of a wrong clock
        ((part(1, 2, 5), part(2, 2, 6), part(3, 3, 7)), 1),  # of another division
    ],
)
def test_the_part_whose_verification_is_the_oldest_has_its_turn(verified: tuple[VerifiedPart, ...], turn: int) -> None:
    assert record(*verified).next_part(3, 2 * DAY_MS) == turn


def test_a_level_is_verified_since_its_oldest_part() -> None:
    parts = (part(1, 2, 50, 1), part(2, 2, 70, 2), part(1, 3, 80), part(2, 3, 90))
    assert record(*parts).known(100) == {Level.BYTES: (50, 3)}
    assert record(*parts, part(3, 3, 75)).known(100) == {Level.BYTES: (75, 0)}
    assert record(*parts[1:]).known(100) == {Level.BYTES: (None, 2)}
    assert record(*parts, part(1, 1, 2 * DAY_MS)).known(100) == {Level.BYTES: (50, 3)}, "of a wrong clock"
    assert record(part(1, 1, 7, level=Level.FILES)).known(100) == {Level.FILES: (7, 0)}


@pytest.mark.parametrize(
    ("verified", "damaged"),
    [
        ((part(3, 7, 10, 1),), 1),  # before the first division is complete
        ((part(3, 7, 10, 1), part(2, 7, 20, 2)), 3),
        ((*(part(one, 7, one) for one in range(1, 8)), part(1, 1, 8), part(1, 7, 9, 1)), 1),  # after a whole one
        ((part(3, 7, 10, 1), part(1, 1, 20)), 0),  # cured
        ((part(3, 7, 10, 1), part(1, 1, 5)), 1),
        ((part(1, 1, 10, 1), part(3, 7, 20)), 1),  # the other parts may still have it
        ((part(1, 1, 10, 1), part(3, 7, 20, 1)), 1),  # it is the same
        ((part(1, 1, 10, 1), *(part(one, 2, 20) for one in (1, 2))), 0),
        ((part(2, 6, 10, 1), part(2, 2, 20)), 0),  # 2 of 6 lies within 2 of 2, and within 2 of 3
        ((part(2, 6, 10, 1), part(2, 3, 20)), 0),
        ((part(2, 6, 10, 1), part(1, 2, 20)), 1),
        ((part(2, 2, 10, 1), part(2, 6, 20), part(4, 6, 20)), 1),
        ((part(2, 2, 10, 1), part(2, 6, 20), part(4, 6, 20), part(6, 6, 20)), 0),
        ((part(1, 4, 10, 1), part(1, 6, 20), part(3, 6, 20), part(5, 6, 20)), 0),
        ((part(1, 4, 10, 1), part(1, 6, 20), part(3, 6, 20), part(5, 6, 5)), 1),
    ],
)
def test_damage_of_a_part_is_known_until_a_later_verification_covers_it(
    verified: tuple[VerifiedPart, ...], damaged: int
) -> None:
    assert record(*verified).known(100)[Level.BYTES][1] == damaged
    shown = {one.level: one.damaged for one in record(*verified).levels(100)}
    assert shown.get("bytes", 0) == damaged


def test_what_covers_a_part_has_all_its_blobs() -> None:
    """By the blobs themselves: each is in one part of each division."""
    blobs = [f"b{number}" for number in range(4_000)]
    for parts, others in permutations((1, 2, 4, 6, 7), 2):
        damaged = {one for one in blobs if Subset(1, parts).has(one)}
        for last in range(1, others + 1):
            damaged -= {one for one in damaged if Subset(last, others).has(one)}
            read = (part(one, others, 20) for one in range(1, last + 1))
            assert bool(record(part(1, parts, 10, 1), *read).damage(Level.BYTES, 100)) is bool(damaged), (parts, others)


def test_a_lower_level_is_shown_only_if_it_was_verified_later() -> None:
    parts = [part(1, 1, at_ms, level=level) for level, at_ms in zip(Level, (90, 70, 70), strict=True)]
    assert [(one.level, one.since_ms) for one in record(*parts).levels(100)] == [("bytes", 70), ("documents", 90)]


def test_a_level_of_which_a_part_was_never_verified_is_shown_with_damage_alone() -> None:
    files = part(1, 1, 70, level=Level.FILES)
    assert [(one.level, one.since_ms) for one in record(files, part(3, 7, 70)).levels(100)] == [("files", 70)]
    shown = [(one.level, one.since_ms, one.damaged) for one in record(files, part(3, 7, 70, 1)).levels(100)]
    assert shown == [("bytes", None, 1), ("files", 70, 0)]


def test_it_is_updated_by_part(app_repository: ApplicationRepository, storage: Storage) -> None:
    assert read_record(app_repository).generation == 0
    record_verified(app_repository, [part(1, 2, 5), part(1, 1, 5, level=Level.FILES)])
    found = record_verified(app_repository, [part(2, 2, 6), part(1, 1, 6, 3, level=Level.FILES)])
    assert found.verified == (part(1, 2, 5), part(2, 2, 6), part(1, 1, 6, 3, level=Level.FILES))
    assert read_record(app_repository) == found == verified_before(app_repository)
    name = app_repository.names.verified
    document = RECORD.sealed({**parse_json(storage.pointers[name]), "later": 1})
    storage.pointers[name] = encode_json(document)
    record_verified(app_repository, [part(2, 2, 7)])
    assert json.loads(storage.pointers[name])["later"] == 1, "unknown fields survive"
    assert RECORD.seal_holds(storage.pointers[name])


@pytest.mark.parametrize("wrong", [{"seal": "x"}, {"repository_id": "r2"}, {"application_id": "payments"}])
def test_a_damaged_or_foreign_one_is_replaced(
    app_repository: ApplicationRepository, storage: Storage, wrong: dict[str, Any]
) -> None:
    record_verified(app_repository, [part(1, 2, 5)])
    name = app_repository.names.verified
    document = {**parse_json(storage.pointers[name]), **wrong}
    storage.pointers[name] = encode_json(document if "seal" in wrong else RECORD.sealed(document))
    assert verified_before(app_repository).verified == ()
    assert record_verified(app_repository, [part(2, 2, 6)]).verified == (part(2, 2, 6),)


def test_one_of_another_release_is_left_alone(app_repository: ApplicationRepository, storage: Storage) -> None:
    name = app_repository.names.verified
    record_verified(app_repository, [part(1, 2, 5)])
    storage.pointers[name] = later = encode_json(RECORD.sealed({**parse_json(storage.pointers[name]), "version": 9}))
    assert verified_before(app_repository).verified == ()
    with raises(Invalid, "format-unsupported"):
        record_verified(app_repository, [part(2, 2, 6)])
    assert storage.pointers[name] == later


def test_two_at_once_lose_nothing(app_repository: ApplicationRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    pointers = app_repository.pointers
    swap, turns = pointers.swap, iter([True])

    def overtaken(name: str, content: bytes, expected: str | None) -> str | None:
        if next(turns, False):
            record_verified(app_repository, [part(1, 2, 5)])
        return swap(name, content, expected)

    monkeypatch.setattr(pointers, "swap", overtaken)
    assert len(record_verified(app_repository, [part(2, 2, 6)]).verified) == 2


def test_it_is_no_garbage(orders: Snapshots, storage: Storage) -> None:
    orders.publish("first", BOTH, drops_other_tasks=True)
    record_verified(orders.app_repository, [part(1, 2, 5)])
    for _ in range(4):
        report = Collector(orders.app_repository, min_age_ms=0, unused_ms=0).run()
        assert report.unknown == []
    assert orders.app_repository.names.verified in storage.pointers


def test_what_a_wrong_clock_has_recorded_hides_no_later_damage(app_repository: ApplicationRepository) -> None:
    record_verified(app_repository, [part(1, 1, 5 * DAY_MS), part(2, 2, 5 * DAY_MS, 1)])
    found = record_verified(app_repository, [part(2, 7, 2 * DAY_MS, 1)])
    assert found.verified == (part(2, 2, 5 * DAY_MS, 1), part(2, 7, 2 * DAY_MS, 1)), "damage stays"
    assert found.damage(Level.BYTES, 6 * DAY_MS) == 1
