"""What a checkpoint takes beside the rebuild that it spares, against tail and state, over a day, and for its reader.

::

    python -m bench.checkpoint                        20 million records: ten minutes, 15 GB of disk in TMPDIR
    python -m bench.checkpoint --records 400000 --day 40    a quick look
    python -m bench.checkpoint --only rebuild,costs   some of it: rebuild, costs, day, price
    python -m bench.checkpoint --write                puts the tables into bench/README.md, each in its place

The store is a timestamped key-value store in four partitions, 16 + 100 bytes a row. Broker and S3 server are real
(``bench.checkpoint_testbed``); every byte that goes to them or comes from them is counted on its way, every request by
the server's own log.

- ``rebuild``: a change of 1 % is checkpointed, by fresh processes and by a service that stays up, beside a restore of
  the whole changelog into the same repository.
- ``costs``: tails of several lengths on one state, and one tail on states of several sizes.
- ``day``: 288 checkpoints and their compactions, five minutes apart by a moved clock (``bench.checkpoint_day``); then
  fetches of what they left, beside fetches of a snapshot that was restored anew, and Kafka Streams on both.
- ``price``: the requests of checkpoints of 100 small store partitions.

``bench.compactions`` simulates many more kinds of days, of sizes alone.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import statecore
from bench.checkpoint_day import day, fetches, small_partitions
from bench.checkpoint_figures import (
    CHECKPOINTS,
    MILLION,
    Work,
    cost_table,
    day_table,
    fetch_table,
    line_through,
    megabytes,
    middle,
    price_table,
    rebuild_table,
)
from bench.checkpoint_follower import Follower
from bench.checkpoint_testbed import Application, Testbed, testbed
from bench.figures import put_between
from bench.process import surroundings
from bench.shapes import PLAIN, WHOLE

README = Path(__file__).with_name("README.md")
SECTIONS = ("rebuild", "costs", "day", "price")
TAILS = (0.005, 0.015, 0.05, 0.15)
"""Lengths of tails, of all records."""
STATES = (0.05, 0.25)
"""Smaller states, of all records."""
SMALL_PARTITIONS, SMALL_CHECKPOINTS = 100, 13


def main() -> int:
    """Run the benchmark, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=20 * MILLION, help="of the largest state (default: 20000000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each checkpoint; the middle one counts (default: 3)")
    parser.add_argument(
        "--day", type=int, default=CHECKPOINTS, metavar="N", help=f"checkpoints of the day (default: {CHECKPOINTS})"
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"of {','.join(SECTIONS)} (default: all)")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/README.md")
    given = parser.parse_args()
    sections = given.only.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"{', '.join(unknown)}: choose of {', '.join(SECTIONS)}")
    if given.records < MILLION // 5 or given.records % (20 * WHOLE):
        parser.error(f"--records: give a multiple of {20 * WHOLE:,}")
    with tempfile.TemporaryDirectory(prefix="statecore-bench-") as scratch, testbed(Path(scratch)) as found:
        if (room := PLAIN.room(given.records)) > shutil.disk_usage(scratch).free:
            parser.error(f"{scratch} needs room for {room / 2**30:.1f} GiB; set TMPDIR, or ask for fewer records")
        _begun(found)
        for section, text in _measured(found, sections, given.records, given.rounds, given.day):
            print(text, flush=True)
            if given.write:
                put_between(README, f"checkpoint {section}", text)
    return 0


def _begun(testbed: Testbed) -> None:
    """What a machine does once for all: bytecode and kernels are compiled."""
    compileall.compile_dir(Path(statecore.__file__).parent, quiet=2)
    app, url = Application.filled(testbed, "first", WHOLE), testbed.repository("first")
    app.rebuilt(url)
    app.change(WHOLE, 1)
    app.checkpoint(url)


def _measured(
    testbed: Testbed, sections: list[str], records: int, rounds: int, checkpoints: int
) -> Iterator[tuple[str, str]]:
    """The tables of the sections, each as soon as it is there."""
    whole: Work | None = None
    if "rebuild" in sections:
        text, whole = against_rebuild(testbed, records, rounds)
        yield "rebuild", text
    if "costs" in sections:
        yield "costs", against_tail_and_state(testbed, records, rounds, whole)
    share: float | None = None
    if "day" in sections:
        text, share = over_a_day(testbed, records // 5, checkpoints, rounds)
        yield "day", text
    if "price" in sections:
        began = time.monotonic()
        small = small_partitions(testbed, SMALL_PARTITIONS, SMALL_CHECKPOINTS)
        say(f"{len(small)} checkpoints of {SMALL_PARTITIONS} store partitions in {time.monotonic() - began:.0f} s")
        yield "price", price_table(small, share, SMALL_PARTITIONS)


def against_rebuild(testbed: Testbed, records: int, rounds: int) -> tuple[str, Work]:
    """Checkpoints of 1 % beside the rebuild; the table, and the one by a fresh process."""
    app = _filled(testbed, "rebuild", records)
    url, change = testbed.repository("rebuild"), records // 100
    rebuild = told("rebuild", app.rebuilt(url))
    fresh, warm = [], []
    for turn in range(rounds):
        app.change(change, 100 + turn)
        fresh.append(told("checkpoint, fresh process", app.checkpoint(url)))
    idle = told("nothing new, fresh process", app.checkpoint(url))
    with Follower(app.spec, url) as service:
        for turn in range(rounds + 1):
            app.change(change, 200 + turn)
            warm.append(told("checkpoint, warm", testbed.measured(service.checkpoint)))
        still = told("nothing new, warm", testbed.measured(service.checkpoint))
    table = rebuild_table(
        rebuild,
        {
            "checkpoint of 1 %, fresh process (goal: 4 s, 20 times less)": middle(fresh),
            "checkpoint of 1 %, warm (goal: 2 s)": middle(warm[1:]),
            "nothing new, fresh process": idle,
            "nothing new, warm": still,
        },
    )
    text = (
        f"{surroundings()}; the middle of {rounds} checkpoints, one rebuild.\n\n**A change of 1 % beside a rebuild of "
        f"{records / MILLION:g} million records**\n\n{table}"
    )
    return text, middle(fresh)


def against_tail_and_state(testbed: Testbed, records: int, rounds: int, whole: Work | None) -> str:
    """Tails of several lengths, and states of several sizes, each by a fresh process.

    Args:
        testbed: broker and S3 server.
        records: of the largest state.
        rounds: of each.
        whole: the checkpoint on that one, if it was measured.
    """
    states: dict[str, Work] = {}
    change = records // 100
    for size in (round(records * share) for share in STATES):
        app = _filled(testbed, f"state-{size}", size)
        url, found = testbed.repository(f"state-{size}"), []
        told("rebuild", app.rebuilt(url))
        for turn in range(rounds):
            app.change(change, 100 + turn)
            found.append(told(f"state of {size:,}", app.checkpoint(url)))
        states[f"{size / MILLION:g} M"] = middle(found)
    if whole is not None:
        states[f"{records / MILLION:g} M"] = whole
    url = testbed.repository("tails")  # of its own, where runs are few
    told("rebuild", app.rebuilt(url))
    tails: dict[str, Work] = {}
    for number, share in enumerate(TAILS):
        tail = max(1, round(records * share / 500)) * 500
        app.change(tail, 300 + number)
        tails[f"{tail / MILLION:g} M"] = told(f"tail of {tail:,}", app.checkpoint(url))
    fixed, each = line_through(list(tails.values()), lambda one: one.cpu)
    return (
        f"**Against the tail's length**, on a state of {size / MILLION:g} M records\n\n"
        f"{cost_table('tail, records', tails)}\nThe line nearest to their CPU seconds: {fixed:.2f} s, and "
        f"{each * MILLION:.2f} s for a million records.\n\n**Against the state's size**, a tail of "
        f"{change / MILLION:g} M records\n\n{cost_table('state, records', states)}"
    )


def over_a_day(testbed: Testbed, records: int, checkpoints: int, rounds: int) -> tuple[str, float]:
    """A day, and fetches of what it leaves; the tables, and compactions for each checkpoint."""
    change = max(500, records // 1000 // 500 * 500)
    began = time.monotonic()
    app, url, steps = day(testbed, records, change, checkpoints)
    say(f"{len(steps)} checkpoints of a day in {time.monotonic() - began:.0f} s")
    fetched = fetches(testbed, app, url, rounds)
    compactions = sum(one.compacted is not None for one in steps)
    text = (
        f"**{checkpoints} checkpoints, five minutes apart**: four store partitions of {megabytes(steps[0].state)} "
        f"together, {change:,} records of any keys each time\n\n{day_table(steps)}\n**A fetch after that day** beside "
        f"one of a snapshot restored anew (goal: within 1.3 times)\n\n{fetch_table(fetched)}"
    )
    return text, compactions / len(steps)


def _filled(testbed: Testbed, name: str, records: int) -> Application:
    began = time.monotonic()
    app = Application.filled(testbed, name, records)
    say(f"{records:,} records produced in {time.monotonic() - began:.0f} s")
    return app


def told(what: str, work: Work) -> Work:
    """Tell who waits what something took."""
    say(f"{what}: {work}")
    return work


def say(line: str) -> None:
    """Tell who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
