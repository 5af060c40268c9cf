"""Blob files that are missing or of another length: real Kafka Streams starts and answers without their rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.doctor.finding_catalog import Severity
from tests.harness.case_selection import one_of
from tests.integration.test_rocksdb_options import BLOBS, SetWorld, world  # noqa: F401  # a fixture

pytestmark = pytest.mark.integration

STORE, KEY = "plain", b"key-001"


def _to_length(length: Callable[[int], int]) -> Callable[[Path], object]:
    return lambda file: os.truncate(file, length(file.stat().st_size))


DAMAGES = [
    pytest.param(damage, id=name)
    for name, damage in {
        "cut": _to_length(lambda length: length // 2),
        "without its last byte": _to_length(lambda length: length - 1),
        "empty": _to_length(lambda _: 0),
        "longer": _to_length(lambda length: length + 7),
        "gone": Path.unlink,
    }.items()
]


@pytest.mark.parametrize("damage", one_of(DAMAGES))
@pytest.mark.parametrize("world", [BLOBS], indirect=True, ids=["blobs"])
def test_rows_are_missing_without_an_error_and_are_there_after_a_repair(
    world: SetWorld,  # noqa: F811
    damage: Callable[[Path], object],
) -> None:
    answers = world.took_in()
    for file in (world.directory.task_path("0_0") / "rocksdb" / STORE).glob("*.blob"):
        damage(file)
    assert [(one.code, one.severity, one.store) for one in world.findings()] == [("blob-damaged", Severity.LOSS, STORE)]
    with world.application() as running:
        assert running.query_rows(STORE, 0) == []
        with pytest.raises(Exception, match="Error while getting value for key"):
            running.get(STORE, 0, [KEY])
        assert set(running.restored_records().values()) == {0}
    assert world.repair().remaining == ()
    assert world.findings() == ()
    assert world.reopen() == (answers, 0)
