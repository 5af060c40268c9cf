"""Prints where a test run's time went: by system, by file, and the slowest tests. ``make test-times`` calls it.

It reads the JUnit files that ``make test`` and ``make test-full`` leave in ``.build/times``. A test's time includes
the fixtures that were started for it, so the first test of a file pays for all of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

TIMES = Path(__file__).resolve().parents[1] / ".build" / "times"
SLOWEST = 50
_ROW = "{:>9.1f} s {:>6} {}"


@dataclass(frozen=True)
class Timing:
    """One test of a run.

    Attributes:
        file: where it stands.
        name: its name, with its parameters.
        systems: the real systems that it uses, or ``unit`` for none.
        seconds: how long it took with its fixtures.
    """

    file: str
    name: str
    systems: str
    seconds: float


def read(report: Path) -> Iterator[Timing]:
    """The tests of a JUnit file."""
    for case in ElementTree.parse(report).iter("testcase"):
        said = {one.get("name"): one.get("value") for one in case.iter("property")}
        yield Timing(
            case.get("file") or case.get("classname") or "",
            case.get("name") or "",
            said.get("systems") or "unit",
            float(case.get("time") or 0),
        )


def summary(timings: list[Timing]) -> str:
    """The tables, as text."""
    lines = [f"{len(timings)} tests, {sum(one.seconds for one in timings):.0f} s of worker time"]
    for title, key in (("By system", "systems"), ("By file", "file")):
        seconds: Counter[str] = Counter()
        tests: Counter[str] = Counter()
        for one in timings:
            seconds[getattr(one, key)] += one.seconds
            tests[getattr(one, key)] += 1
        lines += ["", f"{title}: time, tests"]
        lines += [_ROW.format(spent, tests[name], name) for name, spent in seconds.most_common(SLOWEST)]
    lines += ["", f"The slowest {SLOWEST} tests"]
    slowest = sorted(timings, key=lambda one: one.seconds, reverse=True)[:SLOWEST]
    lines += [_ROW.format(one.seconds, "", f"{one.file}::{one.name}") for one in slowest]
    return "\n".join(lines)


def main() -> int:
    """Print the tables of all reports that there are."""
    timings = [one for report in sorted(TIMES.glob("*.xml")) for one in read(report)]
    if not timings:
        print(f"There are no reports in {TIMES}: run make test first.", file=sys.stderr)
        return 1
    print(summary(timings))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
