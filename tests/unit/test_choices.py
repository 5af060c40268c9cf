"""A choice given as its text is that choice: ``on_stale="refuse"`` must not wipe, ``durability="sync"`` must sync."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore import (
    Durability,
    Invalid,
    IsolationLevel,
    NextReader,
    OnStale,
    RestoreReader,
    RestoreSettings,
    StoreSettings,
    TaskOffsets,
)
from tests.harness.raising import raises


def test_a_text_is_the_choice_that_it_names(tmp_path: Path) -> None:
    texts: dict[str, Any] = {"isolation": "read_committed", "reader": "consumer", "on_stale": "refuse"}
    restoring = RestoreSettings(**texts)
    assert restoring.isolation is IsolationLevel.READ_COMMITTED
    assert restoring.reader is RestoreReader.CONSUMER
    assert restoring.on_stale is OnStale.REFUSE
    sync: Any = "sync"
    assert StoreSettings(durability=sync).durability is Durability.SYNC
    release: Any = NextReader.KAFKA_STREAMS_4_3.value
    offsets = TaskOffsets(tmp_path, [], exactly_once=True, next_reader=release)
    assert offsets.next_reader is NextReader.KAFKA_STREAMS_4_3


@pytest.mark.parametrize("wrong", ["", "WIPE", None, 1])
def test_what_is_no_choice_is_refused(wrong: Any) -> None:
    with raises(Invalid, "setting-invalid", setting="on_stale") as refused:
        RestoreSettings(on_stale=wrong)
    assert "OnStale.REFUSE, OnStale.WIPE" in refused.value.action
    with pytest.raises(Invalid, match="durability cannot be"):
        StoreSettings(durability=wrong)
