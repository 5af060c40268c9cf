"""Pins: set by one swap of the head, beside whatever others do to it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statecore.documents import encode_json
from statecore.errors import Corrupted, Fenced, Invalid, NotFound, Retryable
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD, Head, Retention, SnapshotEntry
from statecore.repository.listing import list_application
from statecore.repository.maintenance import pins
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget
from statecore.repository.maintenance.found_manifests import readable_manifest
from statecore.repository.maintenance.garbage import names_of_snapshot
from statecore.repository.maintenance.pins import NOTE_CHARACTERS, pin, unpin
from statecore.repository.maintenance.retention_record import read_retention
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import Verifier
from statecore.repository.manifest import Manifest
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, Storage
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import NOW, fetched, publication, uploaded

NEWEST = Retention().last


def publish(app_repository: ApplicationRepository, directory: Path, end: int, **more: Any) -> str:
    """A snapshot up to an offset."""
    task_manifests = uploaded(app_repository, directory, {"0_0": {"left": end}})
    published = publication(app_repository, f"up to {end}", name=lambda: f"{end:08x}", **more).publish(
        task_manifests, drops_other_tasks=True
    )
    return published.snapshot


@pytest.fixture
def two(app_repository: ApplicationRepository, tmp_path: Path) -> tuple[str, str]:
    """Two snapshots, the older first."""
    return publish(app_repository, tmp_path, 10), publish(app_repository, tmp_path, 20)


def pinned(app_repository: ApplicationRepository) -> dict[str, str]:
    """The notes of what is pinned, by snapshot."""
    return {entry.snapshot: entry.note for entry in app_repository.head().snapshots if entry.pinned}


def meanwhile(network: Network, do: Callable[[], Any], times: int = 1) -> None:
    """Let somebody else be first with the next swaps."""
    left, is_theirs = times, False

    def fault(request: str, possible: tuple[str, ...]) -> str:
        nonlocal left, is_theirs
        if request == "swap" and left and not is_theirs:
            left, is_theirs = left - 1, True
            do()
            is_theirs = False
        return ""

    network.fault = fault  # type: ignore[method-assign]


def test_a_pin_is_set_and_taken_off_and_nothing_else_of_the_head_changes(
    app_repository: ApplicationRepository, two: tuple[str, str]
) -> None:
    older, newer = two
    before = app_repository.head()
    done = pin(app_repository, older, "before the migration")
    assert (done.changed, done.entry) == (True, app_repository.head().entry(older))
    assert pinned(app_repository) == {older: "before the migration"}
    assert app_repository.head().generation == before.generation + 1
    assert unpin(app_repository, older).changed
    after = app_repository.head()
    assert replace(after, generation=before.generation) == before
    assert after.newest is not None
    assert after.newest.snapshot == newer
    assert len(fetched(app_repository)) == 2


def test_what_is_so_already_is_no_swap(
    app_repository: ApplicationRepository, two: tuple[str, str], storage: Storage
) -> None:
    older, _ = two
    assert not unpin(app_repository, older).changed
    pin(app_repository, older, "why")
    before = dict(storage.pointers)
    for note in ("why", None):
        assert not pin(app_repository, older, note).changed
    assert storage.pointers == before
    assert pin(app_repository, older, "").changed
    assert pinned(app_repository) == {older: ""}


def test_the_newest_is_the_one_that_was_it_at_first(
    app_repository: ApplicationRepository, two: tuple[str, str], network: Network, tmp_path: Path
) -> None:
    _, newer = two
    meanwhile(network, lambda: publish(app_repository, tmp_path, 30))
    assert pin(app_repository, "newest").entry.snapshot == newer
    assert list(pinned(app_repository)) == [newer]
    assert len(app_repository.head().snapshots) == 3


def test_a_pin_that_lost_the_swap_reads_the_head_again(
    app_repository: ApplicationRepository, two: tuple[str, str], network: Network, tmp_path: Path
) -> None:
    older, newer = two
    meanwhile(network, lambda: pin(app_repository, newer, "by another"))
    assert pin(app_repository, older, "mine").changed
    assert pinned(app_repository) == {older: "mine", newer: "by another"}


def test_a_publication_that_began_before_keeps_the_pin(
    app_repository: ApplicationRepository, two: tuple[str, str], tmp_path: Path
) -> None:
    older, _ = two
    task_manifests = uploaded(app_repository, tmp_path, {"0_0": {"left": 30}})
    job = publication(app_repository, "third")
    pin(app_repository, older, "meanwhile")
    assert job.publish(task_manifests, drops_other_tasks=True).snapshot
    assert pinned(app_repository) == {older: "meanwhile"}
    assert len(app_repository.head().snapshots) == 3


def test_a_pinned_checkpoint_stays_and_one_whose_pin_was_taken_off_goes_with_the_next(
    app_repository: ApplicationRepository, tmp_path: Path
) -> None:
    def checkpoint(number: int) -> str:
        task_manifests = uploaded(app_repository, tmp_path, {"0_0": {"left": 10 * number}})
        job = publication(
            app_repository,
            f"r{number}",
            origin="checkpoint",
            name=lambda: f"{number:08x}",
            clock=lambda: NOW + 60 * number,
        )
        return job.publish(task_manifests, drops_other_tasks=True).snapshot

    first, second = checkpoint(1), checkpoint(2)
    pin(app_repository, first)
    *_, last = [checkpoint(number) for number in range(3, 3 + NEWEST)]
    there = [entry.snapshot for entry in app_repository.head().snapshots]
    assert (len(there), there[0], there[-1], second in there) == (NEWEST + 1, last, first, False)
    unpin(app_repository, first)
    assert app_repository.head().entry(first) is not None, "as long as nothing is published"
    checkpoint(3 + NEWEST)
    assert app_repository.head().entry(first) is None
    assert len(app_repository.head().snapshots) == NEWEST


def test_what_another_release_has_written_stays_also_beside_the_pin(
    app_repository: ApplicationRepository, two: tuple[str, str], storage: Storage
) -> None:
    older, _ = two
    raw: dict[str, Any] = HEAD.to_json(app_repository.head())
    raw |= {"retention": {"days": 30}}
    raw["snapshots"][1]["held_by"] = "somebody"
    storage.pointers[app_repository.names.head] = encode_json(HEAD.sealed(raw))
    pin(app_repository, older)
    found = app_repository.read_head()
    assert found is not None
    assert found.raw["retention"] == {"days": 30}
    assert [(one.get("held_by"), one["pinned"]) for one in found.raw["snapshots"]] == [
        (None, False),
        ("somebody", True),
    ]


@pytest.mark.parametrize("set_", [pin, unpin])
def test_what_is_not_there_is_refused_by_name(
    app_repository: ApplicationRepository, two: tuple[str, str], storage: Storage, set_: Callable[..., object]
) -> None:
    before = dict(storage.pointers)
    with raises(NotFound, "snapshot-not-found", application_id="orders", snapshot="other"):
        set_(app_repository, "other")
    assert storage.pointers == before
    with raises(NotFound, "snapshots-not-found", application_id="payments"):
        set_(ApplicationRepository(app_repository.repository, "payments"), "newest")


def test_a_note_that_is_no_note_is_refused(app_repository: ApplicationRepository, two: tuple[str, str]) -> None:
    with raises(Invalid, "note-invalid"):
        pin(app_repository, two[0], "x" * (NOTE_CHARACTERS + 1))
    assert pin(app_repository, two[0], "caf\udce9" + "x" * (NOTE_CHARACTERS - 4)).changed
    assert pinned(app_repository)[two[0]].startswith("caf\udce9x")


def test_a_pin_that_always_loses_the_swap_is_reported_and_changes_nothing(
    app_repository: ApplicationRepository, two: tuple[str, str], network: Network, storage: Storage
) -> None:
    def swapped() -> None:
        found = app_repository.read_head()
        assert found is not None
        storage.pointers[app_repository.names.head] = encode_json(
            HEAD.sealed({**found.raw, "generation": found.head.generation + 1})
        )

    meanwhile(network, swapped, times=1000)
    with raises(Retryable, "head-contended"):
        pin(app_repository, two[0])
    assert pinned(app_repository) == {}


def test_a_swap_without_a_reply_is_retryable_and_the_next_try_finds_what_became_of_it(
    app_repository: ApplicationRepository, two: tuple[str, str], network: Network
) -> None:
    network.chance = Random(2)  # by which the client does not find out itself that the swap was done
    swaps = iter(["", "timeout"])  # of the retention record, and of the head
    network.fault = lambda request, possible: next(swaps) if request == "swap" else ""  # type: ignore[method-assign]
    with pytest.raises(Retryable):
        pin(app_repository, two[0], "why")
    network.fault = lambda request, possible: ""  # type: ignore[method-assign]
    assert not pin(app_repository, two[0], "why").changed
    assert pinned(app_repository) == {two[0]: "why"}


def test_in_a_place_that_has_become_another_repository_nothing_is_pinned(
    app_repository: ApplicationRepository, two: tuple[str, str], storage: Storage
) -> None:
    another = replace(app_repository.repository.descriptor, id="another")
    storage.blobs[DESCRIPTOR_NAME] = (DESCRIPTOR.encode(another), NOW)
    with raises(Fenced, "repository-replaced", found_repository_id="another"):
        pin(app_repository, two[0])
    assert pinned(app_repository) == {}


def test_a_damaged_or_lost_head_is_not_pinned_over(
    app_repository: ApplicationRepository, two: tuple[str, str], storage: Storage
) -> None:
    content = storage.pointers.pop(app_repository.names.head)
    with raises(Corrupted, "head-missing"):
        pin(app_repository, two[0])
    assert app_repository.names.head not in storage.pointers
    storage.pointers[app_repository.names.head] = content[:-9]
    with raises(Corrupted, "head-damaged"):
        pin(app_repository, two[0])


def test_pins_and_publications_at_the_same_time_all_count(tmp_path: Path) -> None:
    """On a real disk, with threads: no pin is lost, and no snapshot."""
    (tmp_path / "scratch").mkdir()
    publishing = Publishing((tmp_path / "repository").as_uri(), tmp_path / "scratch")
    old = [publishing.publish(end).snapshot for end in range(1, 7)]
    failed: list[BaseException] = []

    def run(do: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                do()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    threads = [run(lambda one=one: pin(publishing.app_repository, one, f"of {one}")) for one in old]  # type: ignore[misc]
    threads.append(run(lambda: [publishing.publish(end) for end in range(10, 16)]))
    for thread in threads:
        thread.join(60)
    assert failed == []
    head: Head = publishing.app_repository.head()
    assert len(head.snapshots) == 12
    entries: list[SnapshotEntry] = [entry for entry in head.snapshots if entry.pinned]
    assert {entry.snapshot: entry.note for entry in entries} == {one: f"of {one}" for one in old}
    assert head.generation == 18


def test_a_pin_of_a_snapshot_that_is_forgotten_meanwhile_is_not_recorded(
    app_repository: ApplicationRepository, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_pinned = pins.record_pinned

    def beside(*recorded: Any) -> None:
        record_pinned(*recorded)
        forget(app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))

    monkeypatch.setattr(pins, "record_pinned", beside)
    with raises(NotFound, "snapshot-not-found"):
        pin(app_repository, two[0])
    assert read_retention(app_repository).notes == {}


@pytest.mark.parametrize("is_pinning", [False, True])
def test_what_a_killed_pin_or_unpin_leaves_keeps_a_snapshot_and_stops_nothing(
    app_repository: ApplicationRepository,
    storage: Storage,
    two: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_pinning: bool,
) -> None:
    killed = "record_pinned" if is_pinning else "record_unpinned"

    def die(*recorded: Any) -> None:
        if is_pinning:
            record_pinned(*recorded)
        raise KeyboardInterrupt

    if not is_pinning:
        pin(app_repository, two[0])
    record_pinned = pins.record_pinned
    with monkeypatch.context() as patch:
        patch.setattr(pins, killed, die)
        with pytest.raises(KeyboardInterrupt):
            (pin if is_pinning else unpin)(app_repository, two[0])
    forget(app_repository, Retention(last=1, hourly=0, daily=0, weekly=0))
    needed = set(names_of_snapshot(app_repository, readable(app_repository, two[0]), set()))
    for _ in range(4):
        Collector(app_repository, min_age_ms=0).run()
    assert {name for name in needed if "/contents/" not in name} <= storage.blobs.keys()
    assert verified(app_repository) == ["pin-lost"]
    done = unpin(app_repository, two[0])
    assert (done.snapshot, done.entry, done.changed) == (two[0], None, True)
    with raises(NotFound, "snapshot-not-found"):
        unpin(app_repository, two[0])
    assert verified(app_repository) == []
    publish(app_repository, tmp_path, 30)
    for _ in range(4):
        Collector(app_repository, min_age_ms=0).run()
    assert app_repository.names.manifest(two[0]) not in storage.blobs


def readable(app_repository: ApplicationRepository, snapshot: str) -> Manifest:
    found = readable_manifest(app_repository, app_repository.names.manifest(snapshot))
    assert found is not None
    return found


def verified(app_repository: ApplicationRepository) -> list[str]:
    report = Verifier(app_repository, Level.DOCUMENTS).run(list_application(app_repository))
    return [one.error.code for one in report.damaged]


def test_a_snapshot_whose_manifest_is_gone_is_not_pinned_and_can_be_unpinned(
    app_repository: ApplicationRepository, storage: Storage, two: tuple[str, str]
) -> None:
    pin(app_repository, two[0])
    for snapshot in two:
        del storage.blobs[app_repository.names.manifest(snapshot)]
        with raises(Corrupted, "blob-missing", snapshot=snapshot):
            pin(app_repository, snapshot)
    assert pinned(app_repository).keys() == read_retention(app_repository).notes.keys() == {two[0]}
    assert unpin(app_repository, two[0]).changed
