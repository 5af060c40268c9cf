"""A task manifest that contradicts itself is not published, and a published one makes its snapshot damaged."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.errors import Corrupted, Invalid, StatecoreError
from statecore.formats.kinds import StoreKind
from statecore.images.model import RunFormat
from statecore.repository.application_repository import ApplicationRepository
from statecore.repository.layout import Layout
from statecore.repository.manifest import (
    OTHER_RELEASE,
    BaseFile,
    Extent,
    StoredDatabase,
    StoredEnd,
    StoreSnapshot,
    TaskManifest,
)
from statecore.repository.task_manifest_documents import encode_task_manifests
from statecore.repository.task_manifest_validation import (
    check_consistent,
    check_names,
    check_structure,
    contradictions_in,
)
from tests.harness.raising import raises
from tests.harness.simulated_store import Network, SimulatedBlobs, SimulatedPointers, Storage
from tests.unit.repository.snapshots import APPLICATION, publication, repository, store_of, uploaded

TOPIC = f"{APPLICATION}-left-changelog"
BASE = BaseFile("CURRENT", "a" * 64, Extent(f"apps/{APPLICATION}/files/x", 0, 1))
Change = Callable[[TaskManifest], TaskManifest]


def store(**changes: Any) -> Change:
    return lambda task_manifest: replace(
        task_manifest, stores=(replace(task_manifest.stores[0], **changes), *task_manifest.stores[1:])
    )


def end(**changes: Any) -> Change:
    return lambda task_manifest: store(changelogs=(replace(task_manifest.stores[0].changelogs[0], **changes),))(
        task_manifest
    )


def database(**changes: Any) -> Change:
    return lambda task_manifest: store(databases=(replace(task_manifest.stores[0].databases[0], **changes),))(
        task_manifest
    )


def second_run(extent_bytes: int = 40, **changes: Any) -> Change:
    def changed(task_manifest: TaskManifest) -> TaskManifest:
        first, second = task_manifest.stores[0].databases[0].runs
        new = replace(second, run=replace(second.run, **changes), extent=replace(second.extent, bytes=extent_bytes))
        return database(runs=(first, new))(task_manifest)

    return changed


def of_first_database(change: Callable[[StoredDatabase], tuple[StoredDatabase, ...]]) -> Change:
    return lambda task_manifest: store(databases=change(task_manifest.stores[0].databases[0]))(task_manifest)


WRONG: dict[str, tuple[Change, str]] = {
    "a store twice": (
        lambda task_manifest: replace(task_manifest, stores=task_manifest.stores * 2),
        "has store 'left' twice",
    ),
    "runs turned round": (
        of_first_database(lambda one: (replace(one, runs=one.runs[::-1]),)),
        "ends at 100 and one that begins at 0 cannot follow",
    ),
    "a run twice": (of_first_database(lambda one: (replace(one, runs=one.runs[:1] * 2),)), "cannot follow"),
    "runs that overlap": (second_run(start=49), "ends at 50 and one that begins at 49 cannot follow"),
    "a run that ends before it begins": (second_run(start=101), "begins at 101 and ends at 100"),
    "a run before all offsets": (second_run(start=-1), "begins at -1"),
    "a run behind the end": (second_run(end=101), "ends at 101, beyond the store's end 100"),
    "a run of another store": (second_run(store="right"), "is of store 'right'"),
    "a run of another kind": (second_run(kind=StoreKind.LIST), "is of a list store, and not of a key-value store"),
    "a run of another segment": (second_run(segment=4), "is of database of segment 4"),
    "a run of another partition": (second_run(partition=1), f"is of {TOPIC}-1"),
    "a run of another topic": (second_run(topic="other"), "is of other-0"),
    "a run of records": (second_run(format=RunFormat.RECORDS), "has records, and no rows"),
    "a run of other bytes": (second_run(file_bytes=41), "has 41 bytes, and its extent 40"),
    "an extent of other bytes": (second_run(extent_bytes=39), "has 40 bytes, and its extent 39"),
    "a database twice": (of_first_database(lambda one: (one, one)), "has database without a segment twice"),
    "a segment that the kind has not": (database(segment=3), "a key-value store has no database of segment 3"),
    "no segment where the kind has some": (
        store(kind=StoreKind.WINDOW),
        "a window store has no database without a segment",
    ),
    "no partition": (store(changelogs=()), "has the ends of 0 partitions"),
    "two partitions": (
        lambda task_manifest: store(changelogs=tuple(StoredEnd(TOPIC, n, "", 99, 100) for n in (0, 1)))(task_manifest),
        "has the ends of 2 partitions",
    ),
    "an end that is the offset": (end(end=99), "has offset 99 .*, and that its data end before 99"),
    "an offset that is none": (end(offset=-1, end=0), "has offset -1 .*, which is not an offset"),
    "runs without an offset": (end(offset=-4, end=0), "has offset -4 .*, and has runs"),
    "an end without an offset": (
        lambda task_manifest: database(runs=(), base=(BASE,))(end(offset=-4)(task_manifest)),
        "has offset -4 .*, and that its data end before 100",
    ),
    "left, and not empty": (store(restored_by_kafka_streams=True), "is restored by Kafka Streams, and has databases"),
    "left, and with an offset": (
        store(restored_by_kafka_streams=True, databases=()),
        "has offset 99 .*, and is left to restore",
    ),
}


@pytest.fixture
def task_manifest(app_repository: ApplicationRepository, tmp_path: Path) -> TaskManifest:
    """A task of one store of two runs, each of 40 bytes."""
    (found,) = uploaded(app_repository, tmp_path, {"0_0": {"left": 100}})
    return found


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_contradicts_itself_is_not_published_and_nothing_is_put(
    name: str, task_manifest: TaskManifest, app_repository: ApplicationRepository, storage: Storage
) -> None:
    change, why = WRONG[name]
    job = publication(app_repository)
    before = sorted(storage.blobs)
    with pytest.raises(StatecoreError, match=why) as caught:
        job.publish([change(task_manifest)], drops_other_tasks=True)
    assert type(caught.value) is StatecoreError
    assert (sorted(storage.blobs), storage.pointers) == (before, {})


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_contradicts_itself_is_corrupted_where_it_is_read(
    name: str, task_manifest: TaskManifest, app_repository: ApplicationRepository, storage: Storage
) -> None:
    change, why = WRONG[name]
    document, (reference,) = encode_task_manifests([(change(task_manifest), None)])
    storage.put("document", document)
    with pytest.raises(Corrupted, match=why) as caught:
        app_repository.task_manifests([replace(reference, extent=replace(reference.extent, blob="document"))])
    assert caught.value.action == app_repository.document_advice
    assert caught.value.context["task"] == "0_0"


def test_an_unknown_layout_is_not_published_and_is_of_another_release_where_it_is_read(
    task_manifest: TaskManifest, app_repository: ApplicationRepository
) -> None:
    other = store(layout="9.9")(task_manifest)
    with raises(StatecoreError, "defect") as caught:
        publication(app_repository).publish([other], drops_other_tasks=True)
    assert type(caught.value) is StatecoreError
    with raises(Invalid, "format-unsupported", task="0_0", store="left", expected="4.3", found="9.9") as read:
        check_structure(other, "")
    assert read.value.action == OTHER_RELEASE


def test_the_first_contradictions_are_named_and_the_others_counted(task_manifest: TaskManifest) -> None:
    change = second_run(store="x", kind=StoreKind.LIST, segment=1, file_bytes=3, partition=7)
    with raises(StatecoreError, "defect") as caught:
        check_consistent([change(task_manifest)])
    assert caught.value.what.count("store 'left' of task 0_0") == 3
    assert re.search(r"; and \d more\.$", caught.value.what)


def test_a_global_store_ends_at_its_offsets_and_has_its_runs_in_order_partition_by_partition(
    task_manifest: TaskManifest,
) -> None:
    (one,) = task_manifest.stores
    first, second = one.databases[0].runs
    third = replace(first, run=replace(first.run, partition=1))
    ends = (StoredEnd(TOPIC, 0, "", 100, 100), StoredEnd(TOPIC, 1, "", 60, 60))
    names = replace(one, changelogs=ends, databases=(StoredDatabase(None, (first, second, third)),))

    def wrong(found: StoreSnapshot) -> str:
        return "; ".join(contradictions_in(TaskManifest("global", (found,))))

    assert wrong(names) == ""
    assert "cannot follow" in wrong(replace(names, databases=(StoredDatabase(None, (second, third, first)),)))
    assert "two ends of" in wrong(replace(names, changelogs=(*ends, ends[0])))
    assert "data end before 100" in wrong(replace(names, changelogs=(replace(ends[0], offset=99), ends[1])))
    assert "beyond the store's end 40" in wrong(
        replace(names, changelogs=(ends[0], replace(ends[1], offset=40, end=40)))
    )
    assert "has offset -4" in wrong(replace(names, changelogs=(ends[0], replace(ends[1], offset=-4, end=0))))


def test_what_is_empty_in_a_way_that_is_published_contradicts_nothing() -> None:
    left = store_of("0_0", "left", (), end=0, restored_by_kafka_streams=True)
    unknown = (replace(left.changelogs[0], offset=-4, end=0),)
    empty = replace(left, restored_by_kafka_streams=False, databases=())
    placed = replace(empty, databases=(StoredDatabase(None, (), (BASE,)),))
    nothing = replace(empty, changelogs=(replace(unknown[0], offset=9, end=10),))
    of_global = replace(empty, changelogs=(replace(unknown[0], offset=0, end=0),))
    for task, found in (("0_0", left), ("0_0", empty), ("0_0", placed), ("0_0", nothing), ("global", of_global)):
        assert contradictions_in(TaskManifest(task, (found,))) == []


def test_runs_of_a_versioned_store_have_no_offsets(task_manifest: TaskManifest) -> None:
    versioned = store(kind=StoreKind.VERSIONED_KEY_VALUE)(task_manifest)
    runs = tuple(
        replace(one, run=replace(one.run, kind=None, store="", topic="", partition=-1, start=0, end=0))
        for one in versioned.stores[0].databases[0].runs
    )
    assert contradictions_in(database(runs=runs)(versioned)) == []


ENDS = st.dictionaries(
    st.sampled_from(["0_0", "0_1", "1_0"]),
    st.dictionaries(st.sampled_from(["left", "right"]), st.integers(1, 300), min_size=1),
    min_size=1,
)


@settings(deadline=None, max_examples=50)
@given(ENDS, st.integers(1, 120))
def test_what_is_published_whole_contradicts_nothing(ends: dict[str, dict[str, int]], every: int) -> None:
    network = Network(Storage(), Random(0))
    app_repository = ApplicationRepository(repository(SimulatedBlobs(network), SimulatedPointers(network)), APPLICATION)
    with tempfile.TemporaryDirectory() as directory:
        task_manifests = uploaded(app_repository, Path(directory), ends, every=every)
    assert [contradictions_in(task_manifest) for task_manifest in task_manifests] == [[]] * len(task_manifests)
    publication(app_repository).publish(task_manifests, drops_other_tasks=True)
    read = app_repository.task_manifests(
        app_repository.manifest(app_repository.head().snapshots[0]).value.task_manifests
    )
    assert {task: found.manifest for task, found in read.items()} == {
        task_manifest.task: task_manifest for task_manifest in task_manifests
    }


WRONG_NAMES = {
    "task": lambda task_manifest: replace(task_manifest, task="../../0_0"),
    "task of another name": lambda task_manifest: replace(task_manifest, task="00_0"),
    "task of a named topology": lambda task_manifest: replace(task_manifest, task="__north__/0_0"),
    "store": lambda task_manifest: replace(task_manifest, stores=(replace(task_manifest.stores[0], store=".."),)),
    "hash": lambda task_manifest: with_base(task_manifest, BaseFile("000001.sst", "/etc/passwd", PLACE)),
    "file": lambda task_manifest: with_base(task_manifest, BaseFile("/tmp/planted", "a" * 64, PLACE)),
    "blob of another": lambda task_manifest: with_base(
        task_manifest, BaseFile("CURRENT", "a" * 64, replace(PLACE, blob="apps/b/x"))
    ),
    "blob above": lambda task_manifest: with_base(
        task_manifest, BaseFile("CURRENT", "a" * 64, replace(PLACE, blob="apps/a/../x"))
    ),
    "extent": lambda task_manifest: with_base(task_manifest, BaseFile("CURRENT", "a" * 64, replace(PLACE, start=-1))),
}
PLACE = Extent("apps/a/files/aa", 0, 1)


def with_base(task_manifest: TaskManifest, file: BaseFile) -> TaskManifest:
    database = StoredDatabase(None, (), (file,))
    return replace(task_manifest, stores=(replace(task_manifest.stores[0], databases=(database,)),))


@pytest.mark.parametrize("wrong", sorted(WRONG_NAMES))
def test_names_by_which_other_files_could_be_reached_are_refused(wrong: str) -> None:
    task_manifest = TaskManifest("0_0", (store_of("0_0", "left", (), end=1),))
    check_names(with_base(task_manifest, BaseFile("MANIFEST-000005", "a" * 64, PLACE)), "apps/a/")
    with raises(Corrupted, "manifest-names-invalid"):
        check_names(WRONG_NAMES[wrong](task_manifest), "apps/a/")


@pytest.mark.parametrize("application_id", ["my..app", "...", "a.."])
def test_an_application_with_dots_in_its_id_can_be_fetched(application_id: str) -> None:
    names = Layout(application_id)
    task_manifest = TaskManifest("0_0", (store_of("0_0", "left", (), end=1),))
    extent = replace(PLACE, blob=names.file("a" * 64))
    check_names(with_base(task_manifest, BaseFile("CURRENT", "a" * 64, extent)), names.root)
