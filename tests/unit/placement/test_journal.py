"""What a journal remembers of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.placement.journal import identity_of


@pytest.mark.parametrize(("said", "identity"), [(b"d1f0-77\n", "d1f0-77"), (b"\xff\xfe", "\ufffd\ufffd"), (None, "")])
def test_a_database_is_known_by_its_identity_also_by_one_that_is_no_text(
    tmp_path: Path, said: bytes | None, identity: str
) -> None:
    if said is not None:
        (tmp_path / "IDENTITY").write_bytes(said)
    assert identity_of(tmp_path) == identity
