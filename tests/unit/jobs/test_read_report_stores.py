from __future__ import annotations

from dataclasses import replace

from statecore.changelog.model import OffsetRange, ReadStatistics
from statecore.images.model import Image
from statecore.jobs.pipeline.image_tasks import ImageResult
from statecore.jobs.pipeline.ranges import RangeResult
from statecore.jobs.read_report_stores import cpu_of, work_of

KEY = ("0_0", "orders")
WALL = {"fetch": 8.0, "decode": 4.0, "collect": 2.0, "write": 1.0}
CPU = {"fetch": 1.0, "decode": 3.5, "collect": 2.0, "write": 0.5}
RANGE = RangeResult(*KEY, OffsetRange("changelog", 0, 0, 10), (), ReadStatistics(), 15.0, WALL, CPU)
BUILT = ImageResult(*KEY, Image(None, 0, 0, "", 0, {}), seconds=3.0, cpu=2.5)


def test_the_seconds_of_all_tasks_are_added_up_by_what_they_did() -> None:
    runs = {KEY: (RANGE, replace(RANGE, phases={"decode": 1.0}, cpu={"decode": 0.25}))}
    images = {KEY: BUILT, ("0_1", "orders"): BUILT}
    assert work_of(runs, images) == {"fetch": 8.0, "decode": 5.0, "collect": 2.0, "write": 1.0, "image": 6.0}
    assert cpu_of(runs, images) == {"fetch": 1.0, "decode": 3.75, "collect": 2.0, "write": 0.5, "image": 5.0}


def test_where_nothing_was_read_nothing_was_spent() -> None:
    assert work_of({}, {}) == cpu_of({}, {}) == dict.fromkeys(("fetch", "decode", "collect", "write", "image"), 0)
