"""The stores and segments of a task directory, in order."""

from __future__ import annotations

from pathlib import Path

from statecore.statedir.task_layout import segments_in


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
