"""Which databases without the file that names all others are a loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.statedir.database_state import create_database
from statecore.statedir.task_layout import stores_in
from statecore.tasks.partial_deletion import half_expired, why_partially_deleted

SEGMENTATION = Segmentation(retention_ms=7_200_000, interval_ms=3_600_000)


@pytest.mark.parametrize(("start", "is_expired"), [(3, False), (2, True)])
def test_a_segment_that_was_deleted_in_part_is_no_loss_only_where_it_has_expired(
    tmp_path: Path, start: int, is_expired: bool
) -> None:
    """Of two hours those of the newest segment, the fifth, and of the two before it are live."""
    create_database(tmp_path / "0_0" / "clicks" / "clicks.18000000", StoreKind.WINDOW, {})
    half = tmp_path / "0_0" / "clicks" / f"clicks.{start * 3_600_000}"
    half.mkdir()
    (half / "000007.sst").write_bytes(b"rows")
    (place,) = stores_in(tmp_path / "0_0")
    assert half_expired(place, SEGMENTATION) == ([half] if is_expired else [])
    assert (why_partially_deleted(place, SEGMENTATION) == "") is is_expired
