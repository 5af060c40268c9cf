"""Parts as they lie in a repository: small, found again, and never more than fits into memory."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecore.documents import encode_json
from statecore.errors import Corrupted, Invalid
from statecore.repository.manifest import TASK_MANIFEST, Extent, StoredRun, TaskManifest
from statecore.repository.publish.upload import LocalFile
from statecore.repository.task_manifest_documents import DOCUMENT_BYTES, decompress, encode_task_manifests
from tests.harness.raising import raises
from tests.unit.repository.snapshots import run_of, store_of


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.builds(
            lambda task, names: TaskManifest(task, tuple(store_of("0_0", name, (), end=len(name)) for name in names)),
            st.text(max_size=4),
            st.lists(st.text(max_size=4), max_size=3),
        ),
        max_size=4,
    )
)
def test_every_task_manifest_is_found_by_its_reference(task_manifests: list[TaskManifest]) -> None:
    content, references = encode_task_manifests([(task_manifest, None) for task_manifest in task_manifests])
    assert len(content) == sum(reference.extent.bytes for reference in references)
    for task_manifest, reference in zip(task_manifests, references, strict=True):
        at = reference.extent
        document = content[at.start : at.start + at.bytes]
        assert sha256(document).hexdigest() == reference.sha256
        assert TASK_MANIFEST.decode(decompress(document, "It", "Look.")) == task_manifest
        assert (reference.task, reference.identity) == (task_manifest.task, task_manifest.identity)
        assert (reference.file_bytes, reference.read_at_ms, at.blob) == (
            task_manifest.file_bytes,
            task_manifest.read_at_ms,
            "",
        )


def test_a_rewritten_task_manifest_keeps_unknown_fields_of_unchanged_stores() -> None:
    left, right = store_of("0_0", "left", (), end=5), store_of("0_0", "right", (), end=5)
    before = TASK_MANIFEST.to_json(TaskManifest("0_0", (left, right)))
    for store in before["stores"]:
        store["codec"] = "of another release"
        store["changelogs"][0]["tier"] = 2
        store["databases"][0]["filter"] = []
    ahead = store_of("0_0", "right", (), end=9)
    content = decompress(encode_task_manifests([(TaskManifest("0_0", (left, ahead)), before)])[0], "It", "Look.")
    after = json.loads(content)["stores"]
    assert after[0] == before["stores"][0]
    assert after[1] == TASK_MANIFEST.to_json(TaskManifest("0_0", (ahead,)))["stores"][0], (
        "of what has changed nothing old is said"
    )
    assert TASK_MANIFEST.decode(content) == TaskManifest("0_0", (left, ahead))


def task_manifest_of(runs: int) -> TaskManifest:
    """A task whose store has so many runs, in a few packs."""
    stored = []
    for number in range(runs):
        digest = sha256(b"%d" % number).hexdigest()
        file = LocalFile(None, digest, 1000)  # type: ignore[arg-type]
        run = replace(run_of(file, "0_0", "s", number, number + 1), min_key=digest[:24], max_key=digest[-24:])
        stored.append(StoredRun(run, Extent(f"apps/orders/packs/{number % 6:064}", 1000 * number, 1000)))
    return TaskManifest("0_0", (store_of("0_0", "s", stored, end=runs),))


@pytest.mark.parametrize(("runs", "share"), [(6, 3), (156, 5)])
def test_a_task_manifest_is_compressed_to_a_fraction(runs: int, share: int) -> None:
    task_manifest = task_manifest_of(runs)
    content = encode_task_manifests([(task_manifest, None)])[0]
    assert len(content) * share < len(TASK_MANIFEST.encode(task_manifest))


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("", "", ""),
        ("ab" * 64, "ab" * 64, "ab" * 64),
        ("ab" * 65, "ab" * 64, "ab" * 63 + "ac"),
        ("ab" * 62 + "ffff00", "ab" * 62 + "ffff", "ab" * 61 + "ac0000"),
        ("00" * 900_000, "00" * 64, "00" * 63 + "01"),
        ("ff" * 65, "ff" * 64, "ff" * 65),
    ],
)
def test_a_run_has_bounds_of_its_keys_and_not_long_keys(key: str, low: str, high: str) -> None:
    task_manifest = task_manifest_of(1)
    (store,) = task_manifest.stores
    (database,) = store.databases
    run = replace(database.runs[0].run, min_key=key, max_key=key)
    runs = (replace(database.runs[0], run=run),)
    changed = TaskManifest("0_0", (replace(store, databases=(replace(database, runs=runs),)),))
    content = decompress(encode_task_manifests([(changed, None)])[0], "It", "Look.")
    found = TASK_MANIFEST.decode(content).stores[0].databases[0].runs[0].run
    assert (found.min_key, found.max_key) == (low, high)
    assert bytes.fromhex(found.min_key) <= bytes.fromhex(key) <= bytes.fromhex(found.max_key)


def test_text_that_is_no_utf_8_comes_back_as_it_was() -> None:
    task_manifest = TaskManifest("0_0", (replace(store_of("0_0", "s", (), end=5), statecore_release="caf\udce9"),))
    assert (
        TASK_MANIFEST.decode(decompress(encode_task_manifests([(task_manifest, None)])[0], "It", "Look."))
        == task_manifest
    )


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=2000))
def test_compressed_documents_are_read_and_truncated_or_longer_ones_refused(content: bytes) -> None:
    document = zlib.compress(content)
    assert decompress(document, "It", "Look.") == content
    for size in {*range(0, len(document), 7), len(document) - 1}:
        with raises(Corrupted, "manifest-malformed", reason="truncated"):
            decompress(document[:size], "It", "Look.")
    with raises(Corrupted, "manifest-malformed", reason="trailing-data"):
        decompress(document + b"{}", "It", "Look.")


@settings(deadline=None, max_examples=50)
@given(st.binary(min_size=3, max_size=200))
def test_what_is_not_compressed_is_damage(content: bytes) -> None:
    with raises(Corrupted, "manifest-malformed"):
        decompress(b"{" + content, "It", "Look.")


@pytest.mark.parametrize("more", [1, 1 << 20, pytest.param(20 * DOCUMENT_BYTES, marks=pytest.mark.full)])
def test_a_bomb_is_damage_and_fills_no_memory(more: int) -> None:
    bomb, piece = zlib.compressobj(), bytes(1 << 20)
    size = DOCUMENT_BYTES + more
    pieces = [bomb.compress(piece) for _ in range(size >> 20)]
    document = b"".join([*pieces, bomb.compress(bytes(size % (1 << 20))), bomb.flush()])
    assert len(document) < 1 << 20
    tracemalloc.start()
    try:
        with raises(Corrupted, "manifest-malformed", reason="too-large"):
            decompress(document, "It", "Look.")
        assert tracemalloc.get_traced_memory()[1] < 4 * DOCUMENT_BYTES
    finally:
        tracemalloc.stop()


def test_the_largest_document_is_written_and_read_and_a_larger_one_is_neither() -> None:
    task_manifest = task_manifest_of(2)
    content = decompress(encode_task_manifests([(task_manifest, None)])[0], "It", "Look.")
    most = len(content)
    assert decompress(encode_task_manifests([(task_manifest, None)], most=most)[0], "It", "Look.", most=most) == content
    with raises(Invalid, "manifest-too-large", task="0_0", runs=2):
        encode_task_manifests([(task_manifest, None)], most=most - 1)
    with raises(Corrupted, "manifest-malformed", reason="too-large"):
        decompress(zlib.compress(content), "It", "Look.", most=most - 1)


def test_white_space_and_the_level_mean_nothing_to_a_reader() -> None:
    task_manifest = task_manifest_of(3)
    for level in (0, 1, 9):
        assert (
            TASK_MANIFEST.decode(
                decompress(zlib.compress(encode_json(TASK_MANIFEST.to_json(task_manifest)), level), "It", "Look.")
            )
            == task_manifest
        )
