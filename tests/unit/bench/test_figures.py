from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import STATECORE, STREAMS, WITHOUT_SPARK, Figure, Row, comparison, put_between

WORK = {"fetch": 1.0, "write": 3.0}


def test_a_comparison_says_how_many_times_as_long_kafka_streams_takes_on_both_engines() -> None:
    ours = [Figure(STATECORE, seconds, 2.0, 6.0, 100.0, {}, WORK, WORK) for seconds in (3.0, 4.0, 11.0)]
    without = Figure(WITHOUT_SPARK, 2.0, 1.0, 4.0, 90.0, {}, WORK, WORK)
    plain = Row("plain", 8_000_000, [Figure(STREAMS, 16.0, 14.0, 32.0, 400.0), *ours, without])
    few = Row("large values", 1_000_000, [*ours, without])
    lines = comparison("**Shapes**", "shape", [plain, few]).split("\n")
    assert lines[4:] == [
        "| plain | 8 M | 16.0 s | 4.0 s | 4.00 | 7.00 | 2.0 s | 8.00 | 14.00 | 0.50 µs/record | 1.00 "
        "| 4.00 µs/record | 0.75 µs/record | 0.50 µs/record |",
        "| large values | 1 M |  | 4.0 s |  |  | 2.0 s |  |  | 4.00 µs/record | 8.00 "
        "|  | 6.00 µs/record | 4.00 µs/record |",
        "",
    ]


def test_figures_replace_those_between_their_own_markers_alone(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- /one -->\nb\n<!-- two -->\n<!-- /two -->\nc\n")
    put_between(page, "two", "new\n")
    put_between(page, "one", "first\n")
    put_between(page, "two", "newer\n")
    assert page.read_text() == "a\n<!-- one -->\nfirst\n<!-- /one -->\nb\n<!-- two -->\nnewer\n<!-- /two -->\nc\n"


def test_a_page_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- /one -->\n<!-- one -->\n")
    with pytest.raises(ValueError, match="one"):
        put_between(page, "one", "new\n")
    assert page.read_text() == "a\n<!-- /one -->\n<!-- one -->\n"
