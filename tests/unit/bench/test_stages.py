from __future__ import annotations

import re

import pytest

from bench.process import Cost
from bench.restoring import Restored
from bench.stages import named_by, table
from bench.throughput_ceiling import Ceiling

WORK = {"fetch": 2.0, "decode": 4.0, "collect": 1.0, "write": 2.0, "image": 1.0}


def restored(cpu: float) -> Restored:
    report = {
        "totals": {"records": 10_000_000, "rows": 2_000_000},
        "stores": [{"runs": 3, "file_bytes": 5 << 20}, {"runs": 1, "file_bytes": 1 << 20}],
        "phases": {"read": 3.0, "build": 0.5, "place": 0.25},
        "work": WORK,
        "cpu": {**{stage: seconds / 2 for stage, seconds in WORK.items()}, "place": 0.5},
    }
    return Restored(Cost(7.0, cpu, 100.0, "", 0), report)


def test_a_stage_costs_so_much_a_record_and_a_row() -> None:
    lines = table([restored(9.0), restored(8.0), restored(7.0)], [Ceiling(2, 10_000_000, 0.5, 0.75, 1, 1)]).split("\n")
    assert re.findall(r"\d[\d,]*", lines[0]) == ["10,000,000", "2,000,000", "4", "6", "100"]
    assert lines[4:6] == [
        "| fetch | 2.00 s | 0.200 | 1.000 | 1.00 s | 0.100 | 0.500 |",
        "| decode | 4.00 s | 0.400 | 2.000 | 2.00 s | 0.200 | 1.000 |",
    ]
    assert lines[-4:] == [
        "| place | 0.25 s | 0.025 | 0.125 | 0.50 s | 0.050 | 0.250 |",
        "| the rest | | | | 2.50 s | 0.250 | 1.250 |",
        "| whole command | 7.00 s | 0.700 | 3.500 | 8.00 s | 0.800 | 4.000 |",
        "| ceiling: fetch, CRC, decompression | 0.50 s | 0.050 | 0.250 | 0.75 s | 0.075 | 0.375 |",
    ]


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        ("orders-by-customer-changelog", ("orders-by", "customer", {})),
        ("profiles", ("shop", "bench", {"changelog": "profiles"})),
        ("orders-changelog", ("shop", "bench", {"changelog": "orders-changelog"})),
    ],
)
def test_a_changelog_is_restored_as_its_name_says(topic: str, found: tuple[str, str, dict[str, str]]) -> None:
    assert named_by(topic, "shop") == found
