"""The stores and segments of a task directory, in order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.formats.kinds import StoreKind
from statecore.formats.segments import Segmentation
from statecore.statedir.database_state import create_database
from statecore.statedir.task_layout import half_expired, segments_in, stores_in, why_partially_deleted

SEGMENTATION = Segmentation(retention_ms=7_200_000, interval_ms=3_600_000)


def test_segments_are_in_order_of_time_and_those_without_one_are_last(tmp_path: Path) -> None:
    for name in ("clicks.copy", "clicks.1795251600000", "clicks.60000", "clicks.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    found = [(segment.path.name, segment.start) for segment in segments_in(tmp_path, "clicks")]
    assert found == [
        ("clicks.0", 0),
        ("clicks.60000", 60_000),
        ("clicks.1795251600000", 1_795_251_600_000),
        ("clicks.copy", None),
    ]


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


@pytest.mark.parametrize(
    ("name", "is_store"),
    [
        (".checkpoint", False),
        (".checkpoint_x", True),
        (".checkpoint-x", True),
        ("x.position", True),
        ("y.position", True),
    ],
)
def test_a_store_of_windows_named_as_a_file_of_offsets_is_known_by_its_segments(
    tmp_path: Path, name: str, is_store: bool
) -> None:
    """Kafka Streams 4.4.0 refuses the first of these names alone."""
    task = tmp_path / "0_0"
    create_database(task / "rocksdb" / "x", StoreKind.KEY_VALUE, {})
    create_database(task / name / f"{name}.60000", StoreKind.WINDOW, {})
    assert [one.store for one in stores_in(task)] == (["x", name] if is_store else ["x"])
    shutil.rmtree(task / name / f"{name}.60000")
    is_named_otherwise = name in (".checkpoint-x", "y.position")
    assert [one.store for one in stores_in(task)] == (["x", name] if is_named_otherwise else ["x"])
