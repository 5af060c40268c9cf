from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Set
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from bench.changelog import PARTITIONS
from bench.fetch import SHAPE, WriteWatch, Written, records_of, shared_bytes, snapshot_files
from bench.process import checked, measure
from statecore.repository.manifest import Extent, TaskManifest
from statecore.repository.publish.upload import LocalFile, put_files
from tests.unit.repository.published import Publishing


@pytest.mark.parametrize("size", [0.001, 0.02, 0.2, 2.0])
def test_a_size_is_of_what_is_left_of_ten_records_a_key_in_whole_batches(size: float) -> None:
    records = records_of(size)
    assert records % (PARTITIONS * SHAPE.batch_records) == 0
    assert SHAPE.keys(records) * (16 + 100) == pytest.approx(size * 1e9, rel=0.2 if size < 0.01 else 0.01)
    assert SHAPE.keys(records) * 10 == pytest.approx(records)


def test_files_of_a_snapshot_are_copied_and_those_in_packs_extracted(tmp_path: Path) -> None:
    publishing = Publishing((tmp_path / "repository").as_uri(), tmp_path)
    app_repository, contents = publishing.app_repository, [b"one", b"another" * 1000, b"alone" * 2000]
    task_manifests = [publishing.task_manifest(number, 10, content=content) for number, content in enumerate(contents)]
    hashes = [sha256(content).hexdigest() for content in contents]
    together = [
        LocalFile(tmp_path / sha256, sha256, len(content)) for sha256, content in zip(hashes, contents, strict=True)
    ][:2]
    extents = put_files(app_repository.blobs, app_repository.names, together)
    assert {extent.blob.split("/")[2] for extent in extents} == {"packs"}
    packed = [moved(task_manifest, extent) for task_manifest, extent in zip(task_manifests[:2], extents, strict=True)]
    publishing.begin().publish([*packed, task_manifests[2]], drops_other_tasks=True)
    found = snapshot_files(app_repository, tmp_path / "cut")
    assert [file.path.read_bytes() for file in found] == [contents[2], contents[1], contents[0]]
    assert [(file.sha256, file.bytes) for file in found] == [
        (hashes[number], len(contents[number])) for number in (2, 1, 0)
    ]
    assert found[0].path == app_repository.blobs.local_path(app_repository.names.file(hashes[2]))


def moved(task_manifest: TaskManifest, extent: Extent) -> TaskManifest:
    """A task whose one run lies elsewhere."""
    (store,) = task_manifest.stores
    (database,) = store.databases
    (stored,) = database.runs
    elsewhere = replace(database, runs=(replace(stored, extent=extent),))
    return replace(task_manifest, stores=(replace(store, databases=(elsewhere,)),))


def test_only_files_that_are_the_same_are_shared_not_those_with_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other" / "below"
    one.mkdir()
    other.mkdir(parents=True)
    for name in ("linked", "copied"):
        (one / name).write_bytes(b"x" * 1000)
    os.link(one / "linked", other / "another-name")
    (other / "copied").write_bytes(b"x" * 1000)
    assert shared_bytes(one, tmp_path / "other") == 1000


@pytest.mark.full
def test_what_processes_write_is_counted_once_also_when_they_have_ended(tmp_path: Path) -> None:
    """Each of them ends when it was seen what it has written."""
    seen = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1], sys.argv[2]).exists(): time.sleep(0.01)\n"
    child = f"open({str(tmp_path / 'child')!r}, 'wb').write(bytes(3_000_000))\n{seen}"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1], '3000000'])\n"
        f"open({str(tmp_path / 'own')!r}, 'wb').write(bytes(500_000))\n{seen}"
    )

    class Telling(WriteWatch):
        def looked(self, processes: Set[int]) -> None:
            super().looked(processes)
            (tmp_path / f"{written.bytes}").touch()

    written = Written()
    checked(measure([sys.executable, "-c", code, str(tmp_path), "3500000"], watch=partial(Telling, written)))
    assert written.bytes == 3_500_000


def test_a_contender_that_fails_has_no_figures() -> None:
    with pytest.raises(RuntimeError, match="exit code 3: why"):
        checked(measure([sys.executable, "-c", "print('why'); raise SystemExit(3)"]))


def test_the_command_says_what_it_takes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.fetch", "--sizes", "large"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "large" in done.stderr
