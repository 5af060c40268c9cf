"""Checkpoints every five minutes for days, and the compactions that keep their runs few: a simulation.

::

    python -m bench.compactions                prints the table
    python -m bench.compactions --days 30      of another time
    python -m bench.compactions --write        puts it into bench/README.md

Nothing is read or written: databases are the sizes of their runs, and what is merged is as large as its rows are
different keys. Which runs are merged is decided by the code that decides it for compactions and fetches
(``statecore.jobs.compact.policy``, ``statecore.images.universal_compaction``). The same seeds give the same table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from random import Random

from statecore.images.universal_compaction import groups_to_merge
from statecore.jobs.compact.policy import DEFAULT_SETTINGS, CompactionSettings, is_due, slices_to_compact

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- compactions -->\n", "<!-- /compactions -->"
DAY = 288
"""Checkpoints of a day, one every five minutes."""
GB, MB, KB = 1e9, 1e6, 1e3
CHECKPOINT_PUTS, COMPACTION_PUTS, COMPACTION_GETS, PUT, GET = 5, 4, 12, 5e-6, 4e-7
"""Requests of a publication, and dollars of one. A compaction reads head, manifest, parts, mark, and packs of runs."""
BRING, MERGE = 2.4e-9, 1.5e-9
"""Seconds of a fetch for a byte that it brings (``bench.fetch``), and for one that it merges on two cores."""


@dataclass(frozen=True)
class Keys:
    """Which keys the changes of a database have.

    Attributes:
        name: in words.
        merged: bytes of some runs merged, of a database whose keys have so many bytes in all.
    """

    name: str
    merged: Callable[[Sequence[float], float], float]


NEW = Keys("new ones each time", lambda runs, _: sum(runs))
ANY = Keys("any of the state", lambda runs, all_: all_ * (1 - prod(1 - min(1.0, run / all_) for run in runs)))
SAME = Keys("the same each time", lambda runs, _: max(runs))


@dataclass(frozen=True)
class Case:
    """An application.

    Attributes:
        name: in words.
        below: bytes of each run that a restore has left in each database.
        change: bytes of a checkpoint's run of a database, given what draws at random and the number of the checkpoint.
        keys: which keys those have.
        state: bytes of all keys of a database.
        base: whether RocksDB's files lie below, of ``state`` bytes.
        part: of the databases, what a checkpoint has a change of.
        segments: checkpoints after which a database gets no more changes, because another segment does; 0 for never.
        kept: segments that a store has.
        databases: of the application.
    """

    name: str
    below: tuple[float, ...] = (GB,)
    change: Callable[[Random, int], float] = lambda _random, _number: MB
    keys: Keys = ANY
    state: float = GB
    base: bool = False
    part: float = 1.0
    segments: int = 0
    kept: int = 1
    databases: int = 20

    @property
    def base_bytes(self) -> int:
        """Bytes of RocksDB's files below."""
        return int(self.state) if self.base else 0


def equal(size: float) -> Callable[[Random, int], float]:
    """Changes of one size."""
    return lambda _random, _number: size


def bursts(middle: float, spread: float) -> Callable[[Random, int], float]:
    """Changes whose sizes are lognormal."""
    return lambda random, _number: middle * random.lognormvariate(0, spread)


EIGHT = (GB / 8,) * 8
UNEQUAL = tuple(GB * share / 8 for share in (0.4, 1.3, 1.2, 1.1, 1.1, 1.0, 1.0, 0.9))
CASES = (
    Case("0.1 % of any keys", change=equal(MB)),
    Case("1 % of any keys", change=equal(10 * MB)),
    Case("0.01 % of any keys", change=equal(100 * KB)),
    Case("0.1 % of new keys", change=equal(MB), keys=NEW),
    Case("1 % of new keys", change=equal(10 * MB), keys=NEW),
    Case("1 % of the same keys", change=equal(10 * MB), keys=SAME),
    Case("eight runs below, 0.1 % of any keys", below=EIGHT, change=equal(MB)),
    Case("eight runs below, 1 % of any keys", below=EIGHT, change=equal(10 * MB)),
    Case("eight unequal runs below, 0.1 % of new keys", below=UNEQUAL, change=equal(MB), keys=NEW),
    Case("nothing below, new keys", below=(), change=equal(MB), keys=NEW),
    Case("nothing below, growing changes", below=(), change=lambda _, number: 10 * KB * (number + 1), keys=NEW),
    Case("bursts, 0.1 % of any keys", change=bursts(0.3 * MB, 1.5)),
    Case("bursts, 1 % of any keys", change=bursts(3 * MB, 1.5)),
    Case("bursts of new keys in some databases", change=bursts(MB, 1.0), keys=NEW, part=0.7),
    Case("bursts in half of the databases", change=bursts(3 * MB, 1.0), part=0.5),
    Case("bursts in a tenth of the databases", change=bursts(3 * MB, 1.0), part=0.1),
    Case("RocksDB's files below, 1 % of any keys", below=(), change=equal(10 * MB), base=True),
    Case("windows of an hour, a day kept", below=(), change=equal(MB), keys=NEW, segments=12, kept=24),
    Case("small: 20 KB of 10 MB", below=(10 * MB,), change=bursts(20 * KB, 0.5), state=10 * MB),
)


@dataclass
class Course:
    """What an application came to.

    Attributes:
        checkpoints: so many.
        compactions: so many of them were followed by a compaction.
        changed: bytes of all changes.
        compacted: bytes that compactions have written.
        runs: of the database that had the most, without those that the restore had left.
        fetches: how much longer a fetch took than of a fresh snapshot, after each checkpoint.
    """

    checkpoints: int = 0
    compactions: int = 0
    changed: float = 0.0
    compacted: float = 0.0
    runs: int = 0
    fetches: list[float] = field(default_factory=list)

    @property
    def written(self) -> float:
        """Bytes that checkpoints and compactions have written for each byte of change."""
        return (self.changed + self.compacted) / self.changed

    @property
    def compaction_share(self) -> float:
        """Compactions for each checkpoint."""
        return self.compactions / self.checkpoints

    @property
    def dollars(self) -> float:
        """Price of all requests for a checkpoint, at S3's list price."""
        return CHECKPOINT_PUTS * PUT + self.compaction_share * (COMPACTION_PUTS * PUT + COMPACTION_GETS * GET)


def simulated(
    case: Case, checkpoints: int = DAY, seed: int = 1, settings: CompactionSettings = DEFAULT_SETTINGS
) -> Course:
    """So many checkpoints of an application, each followed by a compaction where one is due."""
    random = Random(seed)
    course = Course()
    segments: list[list[list[float]]] = [[list(case.below) for _ in range(case.databases)]]
    for number in range(checkpoints):
        if case.segments and number and number % case.segments == 0:
            new: list[list[float]] = [[] for _ in range(case.databases)]
            segments = [*segments, new][-case.kept :]
        for runs in segments[-1]:
            if random.random() < case.part:
                runs.append(case.change(random, number))
                course.changed += runs[-1]
        databases = [runs for segment in segments for runs in segment]
        course.checkpoints += 1
        course.runs = max(course.runs, *(len(runs) - (len(case.below) or 1) + 1 for runs in databases))
        if any(is_due(_sizes(runs), base=case.base_bytes, settings=settings) for runs in databases):
            course.compactions += 1
            for runs in databases:
                course.compacted += _compact(runs, case, settings)
        course.fetches.append(sum(_seconds(runs, case) for runs in databases) / sum(_fresh(databases, case)))
    return course


def _compact(runs: list[float], case: Case, settings: CompactionSettings) -> float:
    """Compact a database; bytes written."""
    written = 0.0
    for one in reversed(slices_to_compact(_sizes(runs), base=case.base_bytes, settings=settings)):
        merged = case.keys.merged(runs[one], case.state)
        runs[one] = [merged]
        written += merged
    return written


def _sizes(runs: Sequence[float]) -> list[int]:
    return [int(size) for size in runs]


def _seconds(runs: Sequence[float], case: Case) -> float:
    """What a fetch of a database takes: its bytes are brought, and merged where Kafka Streams would do that."""
    base = [case.base_bytes] if case.base else []
    merged = sum(sum(runs[one]) for one in groups_to_merge(_sizes(runs), base))
    return BRING * (sum(base) + sum(runs)) + MERGE * merged


def _fresh(databases: Sequence[Sequence[float]], case: Case) -> Iterator[float]:
    """What it takes of a snapshot that a restore has just made, in as many runs as it had left, that share as many
    keys.
    """
    count = max(1, len(case.below))
    shared = sum(case.below) / case.keys.merged(case.below, case.state) if case.below else 1.0
    for runs in databases:
        layers = [case.state, *runs] if case.base else runs or [0.0]
        whole = shared * case.keys.merged(layers, case.state)
        yield _seconds([whole / count] * count, replace(case, base=False))


def table(courses: Sequence[tuple[Case, Course]]) -> str:
    """The figures of some applications."""
    lines = [
        "| changes of each checkpoint | written for a byte of change | runs at most, besides those restored "
        "| compactions for a checkpoint | fetch, middle | fetch, longest | 50 such applications, a month |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case, course in courses:
        middle, longest = sorted(course.fetches)[len(course.fetches) // 2], max(course.fetches)
        lines.append(
            f"| {case.name} | {course.written:.1f} | {course.runs} | {course.compaction_share:.2f} | {middle:.2f} × | "
            f"{longest:.2f} × | ${course.dollars * 50 * 30 * DAY:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Simulate, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.compactions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--days", type=int, default=1, help="days of checkpoints every five minutes (default: 1)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {README.name}")
    given = parser.parse_args()
    made = table([(case, simulated(case, DAY * given.days)) for case in CASES])
    print(made)
    if given.write:
        text = README.read_text()
        before, rest = text.split(BEGIN)
        README.write_text(f"{before}{BEGIN}{made}{END}{rest.split(END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
