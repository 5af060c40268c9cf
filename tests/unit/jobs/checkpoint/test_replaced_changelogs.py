"""The last snapshot before the changelogs were replaced stays, and not too many of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Reason
from statecore.jobs.bases.base import Refused
from statecore.jobs.checkpoint.replaced_changelogs import MOST_PINS, PIN_NOTE, pin_last_before, replaced_stores
from statecore.repository.maintenance.pins import pin
from tests.unit.repository.published import Publishing


@pytest.mark.parametrize(
    ("code", "expected"), [("topic-recreated", ["s"]), ("log-ends-before-base", ["s"]), ("records-deleted", [])]
)
def test_a_store_counts_if_no_base_is_left_because_of_another_log(code: str, expected: list[str]) -> None:
    refused = [Refused(task, "s", "snapshot", Reason("why", code)) for task in ("0_0", "0_1")]
    assert replaced_stores(refused, [("0_0", "s")], "snapshot") == expected
    assert replaced_stores(refused, [], "snapshot") == []
    assert replaced_stores(refused, [("0_0", "s")], "newer") == [], "it was replaced before the newest one"


def test_the_last_ones_before_are_pinned_and_what_a_person_has_pinned_stays(tmp_path: Path) -> None:
    orders = Publishing((tmp_path / "repository").as_uri(), tmp_path)
    head = orders.app_repository.head
    unnamed = orders.publish(9).snapshot
    pin(orders.app_repository, unnamed)
    pin_last_before(orders.app_repository, head().snapshots, ["s"])
    kept = orders.publish(10).snapshot
    pin(orders.app_repository, kept, "before the audit")
    for number in range(MOST_PINS + 2):
        orders.publish(11 + number)
        pin_last_before(orders.app_repository, head().snapshots, ["s"])
    pinned = {one.snapshot: one.note for one in head().snapshots if one.pinned}
    snapshots = [one.snapshot for one in head().snapshots if one.snapshot not in (kept, unnamed)]
    newest = [*snapshots[: MOST_PINS - 1], snapshots[-1]]
    assert pinned == {unnamed: "", kept: "before the audit", **dict.fromkeys(newest, f"{PIN_NOTE}s")}
    pin(orders.app_repository, newest[0], "mine now")
    pin_last_before(orders.app_repository, head().snapshots, ["s"])
    assert head().snapshots[0].note == "mine now"


def test_one_that_cannot_be_read_is_not_pinned(tmp_path: Path) -> None:
    orders = Publishing((tmp_path / "repository").as_uri(), tmp_path)
    snapshot = orders.publish(10).snapshot
    (tmp_path / "repository" / orders.app_repository.names.manifest(snapshot)).write_bytes(b"damaged")
    pin_last_before(orders.app_repository, orders.app_repository.head().snapshots, ["s"])
    assert not orders.app_repository.head().snapshots[0].pinned
