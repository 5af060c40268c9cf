"""What a fetch does with the tasks of a snapshot: placed, kept, placed empty, or refused for what the spec says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.jobs.fields.catalog import VersionedStart
from statecore.repository.manifest import StoreSnapshot
from statecore.repository.publish.publication import Publication
from statecore.spec.model import ProcessingGuarantee
from statecore.statedir.database_state import read_database_state
from statecore.words import WARNING
from tests.harness.raising import raises
from tests.unit.jobs.fetch.fetching import Topics, fetch, refused, tree
from tests.unit.jobs.published import CUT, RETENTION, Shop, expected, rows_in, spec


def test_an_existing_task_is_kept_unchanged_and_reported(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir, tasks=("0_0",))
    before = tree(state_dir / "orders" / "0_0")
    said: list[str] = []
    report = fetch(shop, state_dir, said.append)
    assert tree(state_dir / "orders" / "0_0") == before
    assert report.kept == ("0_0",)
    assert any("--replace" in line for line in said)
    assert rows_in(state_dir) == expected(300)
    before = tree(state_dir / "orders" / "0_1")
    again = fetch(shop, state_dir, said.append)
    assert tree(state_dir / "orders" / "0_1") == before
    assert (again.placed, again.kept, again.stores) == (False, ("0_0", "0_1", "global"), ())


def test_an_older_snapshot_is_not_put_over_newer_state(shop: Shop, state_dir: Path) -> None:
    older = shop.app_repository.head().snapshots[1].snapshot
    fetch(shop, state_dir)
    report = fetch(shop, state_dir, snapshot=older)
    assert not report.placed
    assert rows_in(state_dir) == expected(300)


def test_a_task_that_is_kept_and_lacks_a_store_is_named(shop: Shop, state_dir: Path) -> None:
    fetch(shop, state_dir)
    shutil.rmtree(state_dir / "orders" / "0_1" / "rocksdb" / "plain")
    report = fetch(shop, state_dir)
    assert any("0_1" in note and "plain" in note for note in report.notes)


@pytest.mark.parametrize("lost", ["CURRENT", "*.sst"])
def test_a_kept_store_that_lost_files_is_named_in_a_warning(shop: Shop, state_dir: Path, lost: str) -> None:
    fetch(shop, state_dir)
    for store in ("0_1/rocksdb/plain", "0_0/rocksdb/plain"):
        next((state_dir / "orders" / store).glob(lost)).unlink()
    before = tree(state_dir)
    said: list[str] = []
    for report in (fetch(shop, state_dir, said.append), fetch(shop, state_dir, plan_only=True)):
        found = [note for note in report.notes if note.startswith(WARNING)]
        assert [[task for task in ("0_0", "0_1", "global") if task in note] for note in found] == [["0_0"], ["0_1"]]
        assert all("plain" in note and "doctor" in note and "--replace" in note for note in found)
        assert (report.placed, report.kept) == (False, ("0_0", "0_1", "global"))
    assert {name: one for name, one in tree(state_dir).items() if name in before} == before
    assert len([line for line in said if line.startswith(WARNING)]) == 2
    assert not any(note.startswith(WARNING) for note in fetch(shop, state_dir, replace=True).notes)
    assert rows_in(state_dir) == expected(300)


def of_kind(store: StoreSnapshot, kind: StoreKind) -> StoreSnapshot:
    """A store, as if it were of another kind."""
    databases = tuple(
        replace(one, runs=tuple(replace(stored, run=replace(stored.run, kind=kind)) for stored in one.runs))
        for one in store.databases
    )
    return replace(store, kind=kind, databases=databases)


def versioned(shop: Shop, *, left: bool) -> StoreSnapshot:
    """A versioned store, as rows: what they say is of no matter here."""
    shop.app_repository  # noqa: B018  (made)
    store = shop.store("0_0", "history", StoreKind.KEY_VALUE, [0], [200])
    (end,) = store.changelogs
    more: dict[str, Any] = {"retention_ms": RETENTION, "segment_interval_ms": 60_000}
    store = of_kind(store, StoreKind.VERSIONED_KEY_VALUE)
    if left:
        end = replace(end, offset=OFFSET_UNKNOWN, end=0)
        return replace(
            store, changelogs=(end,), databases=(), restored_by_kafka_streams=True, rows=None, digest=None, **more
        )
    return replace(store, **more)


@pytest.mark.parametrize(
    ("left", "start", "empty"),
    [
        (False, VersionedStart.HISTORY, True),
        (False, VersionedStart.LATEST, False),
        (True, VersionedStart.HISTORY, True),
        (True, VersionedStart.LATEST, True),
    ],
)
def test_versioned_stores_are_placed_empty_unless_their_latest_values_are_enough(
    tmp_path: Path, state_dir: Path, left: bool, start: VersionedStart, empty: bool
) -> None:
    shop = Shop(tmp_path / "shop", spec(history={"kind": "versioned-key-value", "retention": "10m"}))
    shop.root.mkdir()
    shop.publish([200], task_0_0={"history": versioned(shop, left=left)})
    report = fetch(shop, state_dir, versioned=start)
    (store,) = [store for store in report.stores if store.store == "history"]
    assert store.restored_by_kafka_streams is empty
    database = state_dir / "orders" / "0_0" / "rocksdb" / "history"
    assert set(read_database_state(database).offsets.values()) == ({OFFSET_UNKNOWN} if empty else {199})
    assert bool(list(database.glob("*.sst"))) is True, "its offset, at least"
    rows = rows_in(state_dir)["0_0/history"]
    assert bool(rows) is not empty


def test_under_exactly_once_a_store_that_is_not_in_the_snapshot_is_made_without_data(
    tmp_path: Path, state_dir: Path
) -> None:
    shop = Shop(tmp_path / "shop", spec("exactly_once_v2", other={"kind": "timestamped-key-value"}))
    shop.root.mkdir()
    shop.publish([200])
    fetch(shop, state_dir)
    for task in ("0_0", "0_1"):
        state = read_database_state(state_dir / "orders" / task / "rocksdb" / "other")
        assert set(state.offsets.values()) == {OFFSET_UNKNOWN}


# What the spec says


PLAIN, CLICKS = {"kind": "key-value"}, {"kind": "window", "retention": "10m"}
NAMES = {"kind": "key-value", "topic": "names"}


def stores_yaml(
    path: Path, stores: Mapping[str, Any] | None = None, *, number: str = "0", application: str = "orders", **more: Any
) -> str:
    """A spec in a file, with these stores in a subtopology of this number."""
    document = {
        "application_id": application,
        "bootstrap_servers": "localhost:9",
        "processing_guarantee": "at_least_once",
        "subtopologies": {number: {"stores": {"plain": PLAIN, "clicks": CLICKS} if stores is None else stores}},
        "global_stores": {"names": NAMES},
        **more,
    }
    (path / "stores.yaml").write_text(json.dumps(document))
    return str(path / "stores.yaml")


BROKERS = Topics(lambda _: 300)
"""Those of the spec."""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"stores": {"plain": {"kind": "timestamped-key-value"}}},
            ("plain", ["0_0", "0_1"], "kind", "key-value", "timestamped-key-value"),
        ),
        (
            {"stores": {"clicks": {"kind": "window", "retention": "10m", "segment_interval": "1m"}}},
            ("clicks", ["0_0", "0_1"], "segment interval", "5m", "1m"),
        ),
        (
            {"stores": {"clicks": {"kind": "window", "retention": "1h", "segment_interval": "5m"}}},
            ("clicks", ["0_0", "0_1"], "retention", "10m", "1h"),
        ),
        (
            {"stores": {"plain": {"kind": "key-value", "changelog": "accounts"}}},
            ("plain", ["0_0", "0_1"], "changelog", "orders-plain-changelog", "accounts"),
        ),
        ({"number": "1"}, ("plain", ["0_1"], "task", "0_1", "1_1")),
        (
            {"global_stores": {"names": {"kind": "key-value", "topic": "people"}}},
            ("names", ["global"], "changelog", "names", "people"),
        ),
        (
            {"processing_guarantee": "exactly_once_v2"},
            ("plain", ["0_0", "0_1"], "processing guarantee", "at_least_once (read_uncommitted)", "exactly_once_v2"),
        ),
    ],
)
def test_what_the_application_could_not_use_is_refused_with_what_is_there_and_what_is_declared(
    shop: Shop, state_dir: Path, tmp_path: Path, changes: dict[str, Any], problem: tuple[Any, ...]
) -> None:
    spec_path = stores_yaml(tmp_path, **changes)
    error = refused(Invalid, "snapshot-spec-mismatch", shop, state_dir, cluster=BROKERS, spec_path=spec_path)
    assert "Correct the spec" in error.action
    assert spec_path in error.what
    named = dict(zip(("store", "tasks", "property", "found", "declared"), problem, strict=True))
    assert named in error.context["problems"]
    with raises(Invalid, "snapshot-spec-mismatch", problems=error.context["problems"]):
        fetch(shop, state_dir, cluster=BROKERS, spec_path=spec_path, plan_only=True)


def test_the_same_spec_is_fetched_and_harmless_differences_are_noted(
    shop: Shop, state_dir: Path, tmp_path: Path
) -> None:
    same = fetch(shop, state_dir, cluster=BROKERS, spec_path=stores_yaml(tmp_path))
    assert (same.placed, same.notes) == (True, ())
    shorter = {"clicks": {"kind": "window", "retention": "7m", "segment_interval": "5m"}}
    report = fetch(shop, tmp_path / "another", cluster=BROKERS, spec_path=stores_yaml(tmp_path, shorter))
    assert report.placed
    absent, shorter_kept = report.notes
    assert "plain" in absent
    assert all(value in shorter_kept for value in ("clicks", "10m", "7m"))
    assert rows_in(tmp_path / "another") == expected(300)


def test_only_what_is_placed_has_to_be_as_it_is_declared(shop: Shop, state_dir: Path, tmp_path: Path) -> None:
    spec_path = stores_yaml(tmp_path, {"plain": {"kind": "timestamped-key-value"}})
    fetch(shop, state_dir, tasks=("global",), cluster=BROKERS, spec_path=spec_path)
    fetch(shop, state_dir)
    assert fetch(shop, state_dir, cluster=BROKERS, spec_path=spec_path).kept == ("0_0", "0_1", "global")
    error = refused(
        Invalid, "snapshot-spec-mismatch", shop, state_dir, cluster=BROKERS, spec_path=spec_path, replace=True
    )
    assert [(one["store"], one["property"]) for one in error.context["problems"]] == [("plain", "kind")]


def test_an_application_that_went_back_gets_the_snapshot_of_what_it_was(
    own_shop: Shop, state_dir: Path, tmp_path: Path
) -> None:
    app_repository = own_shop.app_repository
    before, kind = app_repository.head().snapshots[0], StoreKind.TIMESTAMPED_KEY_VALUE
    task_manifests = [
        read.manifest
        for read in app_repository.task_manifests(app_repository.manifest(before).value.task_manifests).values()
    ]
    stamped = [
        replace(
            task_manifest,
            stores=tuple(of_kind(one, kind) if one.store == "plain" else one for one in task_manifest.stores),
        )
        for task_manifest in task_manifests
    ]
    publication = Publication(
        app_repository, own_shop.declared, request="new release", origin="restore", clock=lambda: CUT + 3600
    )
    newer = publication.publish(stamped, drops_other_tasks=True).snapshot
    said: list[str] = []
    report = fetch(own_shop, state_dir, said.append, cluster=BROKERS, spec_path=stores_yaml(tmp_path))
    assert (report.snapshot, [one.snapshot for one in report.skipped_snapshots]) == (before.snapshot, [newer])
    assert any(f"{newer} is skipped" in line for line in said)
    assert rows_in(state_dir) == expected(300)


def test_a_spec_of_another_application_is_refused(shop: Shop, state_dir: Path, tmp_path: Path) -> None:
    spec_path = stores_yaml(tmp_path, application="others")
    error = refused(Invalid, "spec-application-mismatch", shop, state_dir, spec_path=spec_path)
    assert error.context["found"] == "others"


def test_a_spec_that_is_not_there_does_not_say_that_there_is_no_snapshot(
    shop: Shop, state_dir: Path, tmp_path: Path
) -> None:
    refused(Invalid, "spec-missing", shop, state_dir, spec_path=str(tmp_path / "absent.yaml"))
    refused(Invalid, "system-refused", shop, state_dir, spec_path=str(tmp_path))


def test_tasks_from_before_the_application_was_made_exactly_once_are_not_placed_without_a_word(
    own_shop: Shop, state_dir: Path
) -> None:
    app_repository = own_shop.app_repository
    older = app_repository.head().snapshots[0]
    task_manifest = next(
        read.manifest
        for task, read in app_repository.task_manifests(app_repository.manifest(older).value.task_manifests).items()
        if task == "0_0"
    )
    stores = tuple(replace(store, isolation="read_committed") for store in task_manifest.stores)
    exactly_once = replace(own_shop.declared, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE_V2)
    publication = Publication(app_repository, exactly_once, request="later", origin="restore", clock=lambda: CUT + 60)
    newer = publication.publish([replace(task_manifest, stores=stores)], drops_other_tasks=False)
    refused(Invalid, "snapshot-before-exactly-once", own_shop, state_dir)
    alone = fetch(own_shop, state_dir.with_name("alone"), tasks=("0_0",))
    assert alone.snapshot == newer.snapshot
