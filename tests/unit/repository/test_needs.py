"""Features that this release does not know: what needs them is refused by name, and nothing is taken for damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.cli.main import main
from statecore.errors import Invalid
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME
from statecore.repository.head import HEAD, Retention
from statecore.repository.listing import list_application
from statecore.repository.maintenance.collection import Collector
from statecore.repository.maintenance.forget import forget, plan_forget
from statecore.repository.maintenance.head_repair import apply_repair, plan_repair
from statecore.repository.maintenance.pins import pin, unpin
from statecore.repository.maintenance.retention_record import RECORD, read_retention, record_pinned
from statecore.repository.maintenance.verification_record import Level
from statecore.repository.maintenance.verify import Verifier
from statecore.repository.needs import ENCRYPTION, Needs
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import create_replica, create_repository, open_repository
from tests.harness.raising import raises
from tests.unit.repository.encrypted import rewrite_sealed
from tests.unit.repository.published import Publishing
from tests.unit.repository.snapshots import BOTH, Snapshots

READ, WRITE = Needs(read=("aead-9",)), Needs(write=("leases",))

READERS: dict[str, Callable[[Snapshots], Any]] = {
    "head": lambda orders: orders.app_repository.head(),
    "repair": lambda orders: plan_repair(orders.app_repository),
}
WRITERS: dict[str, Callable[[Snapshots], Any]] = {
    "publish": lambda orders: orders.publish("second", BOTH),
    "pin": lambda orders: pin(orders.app_repository, "newest"),
    "unpin": lambda orders: unpin(orders.app_repository, "newest"),
    "plan of forget": lambda orders: plan_forget(orders.app_repository),
    "forget": lambda orders: forget(orders.app_repository, Retention(1, 0, 0, 0)),
    "prune": lambda orders: Collector(orders.app_repository).run(),
}


def change_head(orders: Snapshots, needs: Needs) -> None:
    name = orders.app_repository.names.head
    head = replace(HEAD.decode(orders.storage.pointers[name]), needs=needs)
    orders.storage.pointers[name] = HEAD.encode(head)


def check_not_recorded(app_repository: ApplicationRepository) -> None:
    """Verify: the answer counts, and its record is a document that another release may write by other rules."""
    report = Verifier(app_repository, Level.BYTES).run(list_application(app_repository))
    assert (report.exit_code, report.snapshots, report.record, "leases" in report.not_recorded) == (0, 1, None, True)


@pytest.mark.parametrize("what", [*READERS, *WRITERS])
def test_a_head_that_needs_an_unknown_reader_is_refused(orders: Snapshots, first: None, what: str) -> None:
    change_head(orders, READ)
    before = dict(orders.storage.pointers)
    with raises(Invalid, "format-unsupported", features=["aead-9"]):
        (READERS | WRITERS)[what](orders)
    assert before == orders.storage.pointers


@pytest.mark.parametrize("what", WRITERS)
def test_a_head_that_needs_an_unknown_writer_is_read_and_not_written(orders: Snapshots, first: None, what: str) -> None:
    change_head(orders, WRITE)
    before = dict(orders.storage.pointers)
    for read in READERS.values():
        read(orders)
    orders.fetched()
    check_not_recorded(orders.app_repository)
    with raises(Invalid, "format-unsupported", features=["leases"]):
        WRITERS[what](orders)
    assert before == orders.storage.pointers


@pytest.mark.parametrize("what", WRITERS)
def test_a_repository_that_needs_an_unknown_writer_is_not_written(orders: Snapshots, first: None, what: str) -> None:
    descriptor = replace(orders.app_repository.repository.descriptor, needs=WRITE)
    orders.storage.blobs[DESCRIPTOR_NAME] = (DESCRIPTOR.encode(descriptor), 0.0)
    repository = orders.app_repository.repository._replace(descriptor=descriptor)
    changed = replace(orders, app_repository=ApplicationRepository(repository, "orders"))
    before = dict(orders.storage.pointers)
    check_not_recorded(changed.app_repository)
    with raises(Invalid, "format-unsupported", features=["leases"]):
        WRITERS[what](changed)
    assert before == orders.storage.pointers


def test_nothing_is_copied_to_a_replica_that_needs_an_unknown_writer(tmp_path: Path) -> None:
    source = create_repository((tmp_path / "primary").as_uri()).repository
    target = object_store_of((tmp_path / "replica").as_uri())
    create_replica(target, source)
    rewrite_sealed(tmp_path / "replica" / DESCRIPTOR_NAME, DESCRIPTOR, needs={"read": [], "write": ["leases"]})
    with raises(Invalid, "format-unsupported", features=["leases"]):
        create_replica(target, source)


def test_a_replica_needs_what_its_source_needs_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statecore.repository.needs.WRITE_FEATURES", frozenset({"leases", "notes"}))
    primary, replica = (tmp_path / name for name in ("primary", "replica"))
    Publishing(primary.as_uri(), tmp_path).publish(10)
    copy = ["repo", "copy", "--repository", primary.as_uri(), "--to", replica.as_uri()]
    assert main(copy) == 0
    rewrite_sealed(replica / DESCRIPTOR_NAME, DESCRIPTOR, needs={"read": [], "write": ["notes"]})
    rewrite_sealed(primary / DESCRIPTOR_NAME, DESCRIPTOR, needs={"read": [], "write": ["leases"]})
    for _ in range(2):
        assert main(copy) == 0
        assert open_repository(replica.as_uri()).descriptor.needs == Needs(write=("notes", "leases"))
    assert open_repository(replica.as_uri()).is_replica


def test_what_is_needed_is_needed_of_the_next_head_too(
    orders: Snapshots, first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_head(orders, WRITE)
    monkeypatch.setattr("statecore.repository.needs.WRITE_FEATURES", frozenset({"leases"}))
    orders.publish("second", BOTH)
    forget(orders.app_repository, Retention(1, 0, 0, 0))
    assert orders.app_repository.head().needs == WRITE


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_rebuilt_head_needs_what_the_one_before_did(orders: Snapshots, first: None, *, is_damaged: bool) -> None:
    """Where it is missing by the retention record, where it is damaged by what can be read of it."""
    known = Needs(read=(ENCRYPTION,))
    change_head(orders, known)
    if not is_damaged:
        pin(orders.app_repository, "newest")
    lose(orders, is_damaged=is_damaged)
    apply_repair(orders.app_repository, plan_repair(orders.app_repository))
    assert orders.app_repository.head().needs == known


@pytest.mark.parametrize("needs", [READ, WRITE])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_head_is_not_rebuilt_that_this_release_may_not_write(
    orders: Snapshots, first: None, needs: Needs, *, is_damaged: bool
) -> None:
    if not is_damaged:
        pin(orders.app_repository, "newest")
        name = orders.app_repository.names.retention
        record = RECORD.decode(orders.storage.pointers[name])
        orders.storage.pointers[name] = RECORD.encode(replace(record, needs=needs))
    change_head(orders, needs)
    lose(orders, is_damaged=is_damaged)
    before = dict(orders.storage.pointers)
    with raises(Invalid, "format-unsupported", features=[*needs.read, *needs.write]):
        plan_repair(orders.app_repository)
    assert orders.storage.pointers == before


def lose(orders: Snapshots, *, is_damaged: bool) -> None:
    """The head is lost, or has a wrong bit."""
    name = orders.app_repository.names.head
    content = orders.storage.pointers.pop(name)
    if is_damaged:
        orders.storage.pointers[name] = content.replace(b'"first"', b'"fjrst"')
        assert orders.storage.pointers[name] != content


def test_a_pin_that_only_the_record_has_stays_for_a_head_that_needs_an_unknown_writer(
    orders: Snapshots, first: None
) -> None:
    gone = replace(orders.app_repository.head().snapshots[0], snapshot="gone")
    record_pinned(orders.app_repository, orders.app_repository.head(), gone)
    change_head(orders, WRITE)
    with raises(Invalid, "format-unsupported", features=["leases"]):
        unpin(orders.app_repository, "gone")
    assert read_retention(orders.app_repository).notes.keys() == {"gone"}
