"""Pins and the retention survive the loss of the head, wherever a pin, an unpin or a forget was killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statecore.documents import encode_json, parse_json
from statecore.errors import Invalid, Retryable
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.head import ReadHead, Retention
from statecore.repository.maintenance import forget as forget_module
from statecore.repository.maintenance import retention_record
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from statecore.repository.maintenance.retention_record import RECORD, read_retention
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, Storage
from tests.unit.repository.snapshots import BOTH, Snapshots


@pytest.fixture
def two(orders: Snapshots) -> tuple[str, str]:
    """Ids of an older and a newer snapshot."""
    orders.publish("first", BOTH, drops_other_tasks=True)
    older = orders.app_repository.head().snapshots[0].snapshot
    orders.publish("second", {task: dict.fromkeys(stores, 50) for task, stores in BOTH.items()})
    return older, orders.app_repository.head().snapshots[0].snapshot


def rebuilt(app_repository: ApplicationRepository, storage: Storage) -> tuple[dict[str, str], Retention]:
    """Pins and retention of a head that was lost and rebuilt."""
    storage.pointers.pop(app_repository.names.head)
    apply_repair(app_repository, plan_repair(app_repository))
    head = app_repository.head()
    return {one.snapshot: one.note for one in head.snapshots if one.pinned}, head.keep


def test_pins_and_the_retention_of_a_lost_head_are_those_of_the_rebuilt_one(
    app_repository: ApplicationRepository, storage: Storage, two: tuple[str, str]
) -> None:
    older, newer = two
    pin(app_repository, older, "audit")
    pin(app_repository, newer)
    unpin(app_repository, newer)
    forget(app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    assert rebuilt(app_repository, storage) == ({older: "audit"}, Retention(last=1, hourly=0, daily=0, weekly=0))
    assert unpin(app_repository, older).changed
    assert rebuilt(app_repository, storage)[0] == {}


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_pin_that_the_head_has_is_recorded_wherever_its_process_ends(
    app_repository: ApplicationRepository,
    storage: Storage,
    network: Network,
    two: tuple[str, str],
    failing: int,
    *,
    is_pinned: bool,
) -> None:
    older, newer = two
    pin(app_repository, newer)
    if is_pinned:
        pin(app_repository, older, "audit")
    swaps = iter(range(100))
    network.fault = (  # type: ignore[method-assign]
        lambda request, possible: "refused" if request == "swap" and next(swaps) == failing else ""
    )
    with pytest.raises(Retryable):
        (unpin if is_pinned else pin)(app_repository, older)
    network.fault = lambda request, possible: ""  # type: ignore[method-assign]
    pinned = {one.snapshot for one in app_repository.head().snapshots if one.pinned}
    assert pinned <= read_retention(app_repository).notes.keys()
    assert pinned <= rebuilt(app_repository, storage)[0].keys()


def test_what_the_head_had_before_there_was_a_record_is_recorded_by_the_next_pin(
    app_repository: ApplicationRepository, storage: Storage, two: tuple[str, str]
) -> None:
    older, newer = two
    pin(app_repository, older, "audit")
    del storage.pointers[app_repository.names.retention]
    pin(app_repository, newer, "too")
    assert rebuilt(app_repository, storage)[0] == {older: "audit", newer: "too"}


def test_a_damaged_record_counts_as_none_and_none_is_garbage(
    orders: Snapshots, storage: Storage, two: tuple[str, str]
) -> None:
    app_repository = orders.app_repository
    pin(app_repository, two[0])
    for _ in range(4):
        assert Collector(app_repository, min_age_ms=0, unused_ms=0).run().unknown == []
    assert read_retention(app_repository).notes == {two[0]: ""}
    storage.pointers[app_repository.names.retention] = b"{"
    assert read_retention(app_repository).notes == {}
    assert rebuilt(app_repository, storage) == ({}, Retention())


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_collection_writes_a_record_that_is_damaged_or_missing(
    orders: Snapshots, storage: Storage, two: tuple[str, str], content: bytes | None
) -> None:
    app_repository, keep = orders.app_repository, Retention(last=7, monthly=24)
    pin(app_repository, two[0], "audit")
    forget(app_repository, keep)
    del storage.pointers[app_repository.names.retention]
    if content is not None:
        storage.pointers[app_repository.names.retention] = content
    Collector(app_repository, min_age_ms=0).run()
    assert rebuilt(app_repository, storage) == ({two[0]: "audit"}, keep)


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100])
def test_of_a_damaged_head_pins_and_the_retention_are_those_of_the_record(
    app_repository: ApplicationRepository, storage: Storage, two: tuple[str, str], content: bytes
) -> None:
    keep = Retention(last=2, hourly=0, daily=0, weekly=0, monthly=24)
    pin(app_repository, two[0], "audit")
    forget(app_repository, keep)
    storage.pointers[app_repository.names.head] = content
    apply_repair(app_repository, plan_repair(app_repository))
    head = app_repository.head()
    assert ({one.snapshot: one.note for one in head.snapshots if one.pinned}, head.keep) == ({two[0]: "audit"}, keep)


def test_a_record_of_a_newer_release_is_refused_before_anything_changes(
    app_repository: ApplicationRepository, storage: Storage, two: tuple[str, str]
) -> None:
    pin(app_repository, two[0])
    document = parse_json(storage.pointers[app_repository.names.retention])
    storage.pointers[app_repository.names.retention] = encode_json(RECORD.sealed({**document, "version": 2}))
    before = dict(storage.pointers)
    for change in (
        lambda: forget(app_repository, Retention(last=1, hourly=0, daily=0, weekly=0)),
        lambda: pin(app_repository, two[1]),
        lambda: unpin(app_repository, two[0]),
        lambda: rebuilt(app_repository, storage),
    ):
        with raises(Invalid, "format-unsupported"):
            change()
    before.pop(app_repository.names.head)
    assert storage.pointers == before, "but for the head, which was lost"


def test_whoever_writes_a_record_anew_writes_all_that_the_head_has(
    app_repository: ApplicationRepository, storage: Storage, two: tuple[str, str]
) -> None:
    keep = Retention(last=7, monthly=24)
    forget(app_repository, keep)
    pin(app_repository, two[0], "audit")
    storage.pointers[app_repository.names.retention] = b"{"
    pin(app_repository, two[1])
    assert read_retention(app_repository).keep == keep
    storage.pointers[app_repository.names.retention] = b"{"
    forget(app_repository, keep)
    assert rebuilt(app_repository, storage) == ({two[0]: "audit", two[1]: ""}, keep)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_forget_whose_record_is_refused_changes_nothing(
    app_repository: ApplicationRepository,
    two: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_recorded: bool,
) -> None:
    if is_recorded:
        retention_record.record_head(app_repository)
    before, swap = app_repository.head(), app_repository.pointers.swap

    def refused(name: str, *rest: Any) -> str | None:
        if name == app_repository.names.retention:
            raise Invalid("No.", code="object-store-access-denied", action="Grant it.")
        return swap(name, *rest)

    monkeypatch.setattr(app_repository.pointers, "swap", refused)
    with raises(Invalid, "object-store-access-denied"):
        forget(app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    assert app_repository.head() == before


@pytest.mark.parametrize("change", [unpin, forget])
def test_an_error_of_the_record_after_the_swap_says_that_the_head_has_changed(
    app_repository: ApplicationRepository,
    storage: Storage,
    network: Network,
    two: tuple[str, str],
    change: Callable[..., Any],
) -> None:
    keep = Retention(last=1, hourly=0, daily=0, weekly=0)
    arguments = (two[0],) if change is unpin else (keep,)
    pin(app_repository, two[0])

    def fail_after_the_head(name: str, _: bytes) -> None:
        if name == app_repository.names.head:
            network.fault = lambda request, possible: "refused"  # type: ignore[method-assign]

    storage.swapped = fail_after_the_head
    with raises(Retryable, "object-store-unreachable", head_changed=True):
        change(app_repository, *arguments)
    storage.swapped = lambda name, content: None
    network.fault = lambda request, possible: ""  # type: ignore[method-assign]
    change(app_repository, *arguments)
    record, head = read_retention(app_repository), app_repository.head()
    assert (record.keep, record.notes) == (head.keep, head.pins), "the same again completes the record"


def test_a_forget_that_was_killed_before_the_head_is_undone_in_the_record_by_the_next_collection(
    app_repository: ApplicationRepository, network: Network, two: tuple[str, str]
) -> None:
    keep, swaps = Retention(last=7, monthly=24), iter(range(100))
    pin(app_repository, two[0])
    network.fault = lambda request, possible: "refused" if request == "swap" and next(swaps) else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        forget(app_repository, keep)
    network.fault = lambda request, possible: ""  # type: ignore[method-assign]
    assert read_retention(app_repository).keep == keep
    Collector(app_repository, min_age_ms=0).run()
    assert read_retention(app_repository).keep == app_repository.head().keep == Retention()


def test_a_record_that_a_killed_forget_writes_anew_has_the_pins_of_the_head(
    app_repository: ApplicationRepository, storage: Storage, network: Network, two: tuple[str, str]
) -> None:
    pin(app_repository, two[0], "audit")
    storage.pointers[app_repository.names.retention] = b"{"
    swaps = iter(range(100))
    network.fault = lambda request, possible: "refused" if request == "swap" and next(swaps) else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        forget(app_repository, Retention(last=7))
    network.fault = lambda request, possible: ""  # type: ignore[method-assign]
    assert read_retention(app_repository).notes == app_repository.head().pins == {two[0]: "audit"}


def test_of_two_forgets_at_once_the_record_has_what_the_head_has(
    app_repository: ApplicationRepository, monkeypatch: pytest.MonkeyPatch, two: tuple[str, str]
) -> None:
    one, other = Retention(last=7), Retention(last=9)
    record_head = retention_record.record_head

    def beside(recorded: ApplicationRepository) -> None:
        monkeypatch.setattr(forget_module, "record_head", record_head)
        forget(app_repository, other)
        record_head(recorded)

    monkeypatch.setattr(forget_module, "record_head", beside)
    forget(app_repository, one)
    assert read_retention(app_repository).keep == app_repository.head().keep == other


def test_a_pin_that_is_removed_while_a_collection_records_the_head_stays_removed(
    app_repository: ApplicationRepository, monkeypatch: pytest.MonkeyPatch, two: tuple[str, str]
) -> None:
    pin(app_repository, two[0])
    reread, heads = ApplicationRepository.reread_head, iter(range(100))

    def unpinned_meanwhile(self: ApplicationRepository) -> ReadHead:
        read = reread(self)
        if next(heads) == 0:
            unpin(app_repository, two[0])
        return read

    monkeypatch.setattr(ApplicationRepository, "reread_head", unpinned_meanwhile)
    retention_record.record_head(app_repository)
    assert read_retention(app_repository).notes == app_repository.head().pins == {}
