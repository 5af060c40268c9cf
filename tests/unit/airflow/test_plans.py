from __future__ import annotations

import re
from typing import Any

from statecore.airflow.plans import bounded, table


def plan(partitions: int) -> dict[str, Any]:
    one = {"store": "s", "kind": "key-value", "topic": "t", "start": 5, "end": 10, "log_end": 12, "ranges": [[5, 10]]}
    return {
        "application_id": "a",
        "processing_guarantee": "exactly_once_v2",
        "partitions": [{**one, "task": f"0_{number}", "partition": number} for number in range(partitions)],
    }


def test_a_wide_plan_is_counted_whole_and_shown_as_far_as_it_fits() -> None:
    shown = bounded(plan(1000), limit=2000)
    assert 0 < len(shown["partitions"]) < 20
    assert len(shown["partitions"]) + shown["partitions_left_out"] == 1000
    assert shown["totals"] == {"partitions": 1000, "offsets": 5000}
    assert f"and {shown['partitions_left_out']} more partitions" in table(shown)


def test_a_small_plan_is_shown_whole() -> None:
    lines = table(bounded(plan(2))).splitlines()
    assert lines[0].split()[:2] == ["task", "store"]
    assert [line.split()[0] for line in lines[2:4]] == ["0_0", "0_1"]
    assert re.findall(r"\d+", lines[-1]) == ["2", "10"]
