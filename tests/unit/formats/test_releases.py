"""The table of releases says what real applications of each release left on disk."""

from __future__ import annotations

import json
import struct
import tarfile
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from statecore.formats.kinds import StoreKind
from statecore.formats.releases import (
    CHECKPOINT_FILE,
    CURRENT,
    DEFAULT_COLUMN_FAMILY,
    LAST_WITHOUT_OFFSETS,
    OFFSETS_COLUMN_FAMILY,
    PLAIN_PARENT,
    POSITION_SUFFIX,
    RELEASES,
    Release,
)

GOLDEN = Path(__file__).parents[2] / "golden"
LEFT = {"3.9": "kafka-streams-3.9.1-task.tar.gz", "4.2": "kafka-streams-4.2.0-task.tar.gz"}
KINDS = {"plain": "key-value", "stamped": "timestamped-key-value"}
"""What the stores of these directories are; see ``tests/golden/make_older.py``."""


def test_the_table_has_every_rocksdb_kind_and_older_releases_a_subset() -> None:
    assert CURRENT.kinds.keys() == set(StoreKind) - {StoreKind.IN_MEMORY, StoreKind.CUSTOM, StoreKind.UNKNOWN}
    assert LAST_WITHOUT_OFFSETS == "4.2"
    for name in LEFT:
        older = RELEASES[name]
        assert set(CURRENT.kinds) - set(older.kinds) == {kind for kind in CURRENT.kinds if kind.startswith("headers-")}
        assert not older.offsets_inside


@pytest.fixture(params=LEFT)
def release(request: pytest.FixtureRequest) -> Release:
    return RELEASES[request.param]


@pytest.fixture
def task(release: Release, tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / LEFT[release.name]) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "0_1"


def test_an_older_release_leaves_its_files_and_column_families(release: Release, task: Path) -> None:
    files = {path.name for path in task.iterdir() if path.is_file()}
    expected = {CHECKPOINT_FILE} if release.files.task else set()
    expected |= {f"{store}{POSITION_SUFFIX}" for store in KINDS} if release.files.positions else set()
    assert files == expected
    for store, kind in KINDS.items():
        families = set(Rdict.list_cf(str(task / PLAIN_PARENT / store), Options(raw_mode=True)))
        assert families == {DEFAULT_COLUMN_FAMILY, release.kinds[kind].family}


def test_an_older_release_writes_sst_files_of_its_format(release: Release, task: Path) -> None:
    found = {struct.unpack("<I", file.read_bytes()[-12:-8])[0] for file in task.rglob("*.sst")}  # the footer says it
    assert found == {release.sst_format}


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_the_current_release_has_this_shape_and_these_families_for_each_kind(file: Path) -> None:
    golden = json.loads(file.read_text())
    kind = RELEASES[golden["kafka_streams"].rpartition(".")[0]].kinds[golden["kind"]]
    assert kind.segmented == ("segments" in golden)
    assert kind.offset_inside != ("checkpoint" in golden)
    for families in golden.get("segments", {"": golden.get("families")}).values():
        assert families.keys() == {DEFAULT_COLUMN_FAMILY, kind.family, OFFSETS_COLUMN_FAMILY}
        assert {name for name in families if families[name]} <= {kind.family, OFFSETS_COLUMN_FAMILY}
