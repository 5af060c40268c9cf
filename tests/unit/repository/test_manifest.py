"""Manifests and task manifests as documents: they are read as written, and unknown fields are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.documents import encode_json
from statecore.errors import Corrupted, Invalid
from statecore.formats.segments import Segmentation
from statecore.images.model import StoreDigest
from statecore.repository.manifest import (
    MANIFEST,
    TASK_MANIFEST,
    BaseFile,
    Extent,
    Manifest,
    StoredEnd,
    StoreSnapshot,
    TaskManifest,
    verified_content,
)
from tests.harness.raising import raises
from tests.harness.simulated_store import all_flips
from tests.unit.repository.snapshots import reference_of, store_of

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
JSON = st.recursive(
    st.none() | st.booleans() | LONGS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(autouse=True, scope="module")
def _longs() -> Any:
    """Numbers are those that Kafka has."""
    st.register_type_strategy(int, LONGS)
    yield
    st.register_type_strategy(int, st.integers())


def documents(type_: type) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: st.from_type(type_))


MANIFESTS = st.deferred(lambda: st.builds(Manifest, spec=st.dictionaries(st.text(max_size=5), JSON, max_size=3)))


@settings(deadline=None, max_examples=25)
@given(documents(TaskManifest))
def test_a_task_manifest_is_read_as_it_was_written(task_manifest: TaskManifest) -> None:
    assert TASK_MANIFEST.decode(TASK_MANIFEST.encode(task_manifest)) == task_manifest


@settings(deadline=None, max_examples=60)
@given(MANIFESTS)
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert MANIFEST.decode(MANIFEST.encode(manifest)) == manifest


@pytest.mark.parametrize("version", [0, 7, -1, "1", None, True])
@pytest.mark.parametrize("kind", ["task manifest", "manifest"])
def test_a_version_that_is_not_known_is_refused_by_name(kind: str, version: object) -> None:
    document = (
        TASK_MANIFEST.to_json(TaskManifest("0_0", ())) if kind == "task manifest" else MANIFEST.to_json(manifest_of())
    )
    with pytest.raises(Invalid, match=f"has version {version}, and this release supports 1") as caught:
        (TASK_MANIFEST if kind == "task manifest" else MANIFEST).read(
            json.dumps({**document, "version": version}).encode()
        )
    assert "release" in caught.value.action


def manifest_of() -> Manifest:
    document = {
        "snapshot": "s1",
        "repository_id": "r1",
        "application_id": "orders",
        "epoch": 0,
        "generation": 1,
        "previous": None,
        "created_at": "2026-11-23T00:00:00.000Z",
        "statecore_release": "tests",
        "origin": "restore",
        "request_id": "q",
        "processing_guarantee": "exactly_once_v2",
        "spec": {"application_id": "orders"},
        "spec_digest": "d",
        "task_manifests": [],
    }
    return msgspec.convert(document, type=Manifest)


def test_what_a_newer_release_adds_is_read_and_stays_beside_the_value() -> None:
    document = TASK_MANIFEST.to_json(TaskManifest("0_0", (store_of("0_0", "s", (), end=5),)))
    document["more"] = 1
    document["stores"][0]["more"] = {"a": 2}
    read = TASK_MANIFEST.read(encode_json(document))
    assert read.value == TaskManifest("0_0", (store_of("0_0", "s", (), end=5),))
    assert read.raw["more"] == 1
    assert read.raw["stores"][0]["more"] == {"a": 2}


def test_every_flipped_bit_of_a_document_whose_hash_is_known_is_found() -> None:
    for document in (
        TASK_MANIFEST.encode(TaskManifest("0_0", (store_of("0_0", "s", (), end=5),))),
        MANIFEST.encode(manifest_of()),
    ):
        digest = sha256(document).hexdigest()
        assert verified_content(document, digest, "It", "Look.") == document
        for damaged in all_flips(document):
            with raises(Corrupted, "manifest-damaged"):
                verified_content(damaged, digest, "It", "Look.")


def test_a_document_that_broke_off_is_found() -> None:
    document = TASK_MANIFEST.encode(TaskManifest("0_0", ()))
    for size in range(len(document)):
        with raises(Corrupted, "manifest-damaged"):
            verified_content(document[:size], sha256(document).hexdigest(), "It", "Look.")


@settings(deadline=None, max_examples=30)
@given(st.permutations([("a", "1"), ("b", "2"), ("c", "3")]))
def test_an_identity_is_of_what_there_is_and_not_of_its_order(pairs: list[tuple[str, str]]) -> None:
    def task_manifest(pairs: list[tuple[str, str]]) -> TaskManifest:
        return TaskManifest(
            "0_0", tuple(replace(store_of("0_0", name, (), end=1), identity=one) for name, one in pairs)
        )

    assert task_manifest(pairs).identity == task_manifest(sorted(pairs)).identity
    assert task_manifest([(pairs[0][0], "other"), *pairs[1:]]).identity != task_manifest(pairs).identity
    assert task_manifest(pairs[1:]).identity != task_manifest(pairs).identity


def test_the_identity_of_a_snapshot_depends_on_task_manifests_and_not_on_extents() -> None:
    one = replace(manifest_of(), task_manifests=(reference_of("0_0"), reference_of("0_1")))
    moved = replace(
        one, snapshot="s2", task_manifests=(reference_of("0_1", "b" * 64, "x"), reference_of("0_0", blob="y"))
    )
    assert one.identity == moved.identity
    assert replace(one, task_manifests=(reference_of("0_0"),)).identity != one.identity
    assert one.reference("0_1") == reference_of("0_1")
    assert one.reference("0_2") is None
    assert one.file_bytes == 200


def test_a_store_restored_by_kafka_streams_gives_a_task_no_read_position() -> None:
    left = replace(store_of("0_0", "a", (), end=0, restored_by_kafka_streams=True), read_at_ms=None)
    read = replace(store_of("0_0", "b", (), end=5), read_at_ms=7)
    assert TaskManifest("0_0", (left, read)).read_at_ms == 7
    assert left.offsets == {left.changelogs[0].topic_partition: -4}


def test_what_a_store_says_of_itself() -> None:
    store = store_of("0_0", "s", (), end=5, base=[BaseFile("000007.sst", "f" * 64, Extent("blob", 3, 9))])
    assert (list(store.extents), store.file_bytes) == ([("f" * 64, Extent("blob", 3, 9))], 9)
    assert store.content is None
    assert replace(store, rows=1, bytes=2).content is None
    assert replace(store, rows=0, bytes=0, digest="d").content == StoreDigest(0, 0, "d")
    assert store.segmentation is None
    assert replace(store, retention_ms=9, segment_interval_ms=3).segmentation == Segmentation(9, 3)
    assert isinstance(store, StoreSnapshot)
    assert isinstance(store.changelogs[0], StoredEnd)
