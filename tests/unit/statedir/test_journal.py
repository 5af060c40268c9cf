"""Journals are durable before anything is swapped."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.statedir.journal import SWAPPING, Journal, read_journal
from tests.harness.syncing import synced_paths


def test_a_journal_is_on_the_disk_with_its_name_before_anything_is_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_paths(monkeypatch)
    journal = Journal("request", "placement-1", SWAPPING, ())
    journal.write(tmp_path)
    assert [path.parent for path in synced[:-1]] == [tmp_path]  # under another name
    assert synced[-1] == tmp_path
    assert read_journal(tmp_path) == journal
