"""What a journal remembers of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.statedir.journal import SWAPPING, Journal, identity_of, read_journal
from tests.harness.syncing import synced_paths


@pytest.mark.parametrize(("said", "identity"), [(b"d1f0-77\n", "d1f0-77"), (b"\xff\xfe", "\ufffd\ufffd"), (None, "")])
def test_a_database_is_known_by_its_identity_also_by_one_that_is_no_text(
    tmp_path: Path, said: bytes | None, identity: str
) -> None:
    if said is not None:
        (tmp_path / "IDENTITY").write_bytes(said)
    assert identity_of(tmp_path) == identity


def test_a_journal_is_on_the_disk_with_its_name_before_anything_is_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_paths(monkeypatch)
    journal = Journal("request", "placement-1", SWAPPING, ())
    journal.write(tmp_path)
    assert [path.parent for path in synced[:-1]] == [tmp_path]  # under another name
    assert synced[-1] == tmp_path
    assert read_journal(tmp_path) == journal
