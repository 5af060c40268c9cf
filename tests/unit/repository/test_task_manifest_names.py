"""Whoever can write to a repository reaches no other file of the machines that read it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecore.errors import Corrupted
from statecore.repository.manifest import BaseFile, Extent, StoredDatabase, TaskManifest
from statecore.repository.task_manifest_names import check_names
from tests.harness.raising import raises
from tests.unit.repository.snapshots import store_of

WRONG = {
    "task": lambda part: replace(part, task="../../0_0"),
    "store": lambda part: replace(part, stores=(replace(part.stores[0], store=".."),)),
    "hash": lambda part: with_base(part, BaseFile("000001.sst", "/etc/passwd", PLACE)),
    "file": lambda part: with_base(part, BaseFile("/tmp/planted", "a" * 64, PLACE)),
    "blob of another": lambda part: with_base(part, BaseFile("CURRENT", "a" * 64, replace(PLACE, blob="apps/b/x"))),
    "blob above": lambda part: with_base(part, BaseFile("CURRENT", "a" * 64, replace(PLACE, blob="apps/a/../x"))),
    "extent": lambda part: with_base(part, BaseFile("CURRENT", "a" * 64, replace(PLACE, start=-1))),
}
PLACE = Extent("apps/a/files/aa", 0, 1)


def with_base(part: TaskManifest, file: BaseFile) -> TaskManifest:
    database = StoredDatabase(None, (), (file,))
    return replace(part, stores=(replace(part.stores[0], databases=(database,)),))


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_names_by_which_other_files_could_be_reached_are_refused(wrong: str) -> None:
    part = TaskManifest("0_0", (store_of("0_0", "left", (), end=1),))
    check_names(with_base(part, BaseFile("MANIFEST-000005", "a" * 64, PLACE)), "apps/a/")
    with raises(Corrupted, "manifest-names-invalid"):
        check_names(WRONG[wrong](part), "apps/a/")
