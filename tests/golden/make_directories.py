"""Makes the golden directories: whole directories of applications as each version of Kafka Streams left them.

``python -m tests.golden.make_directories [NAME ...]`` starts a broker, lets applications live on each version until a
moment (``tests.harness.fleet.Moment``), kills the JVM (SIGKILL), and writes ``tests/golden/directories/<name>.tar.gz``
and, for all of them, ``tests/golden/directories/directories.json``::

    "4.3.1-exactly-once-flushed": {
      "version": "4.3.1", "release": "4.3",
      "guarantee": "exactly_once_v2",
      "moment": "flushed",                     what was done; "done" says it in a sentence
      "spec": {…},                             stores.yaml of the application: stores with kind, retention, changelog
      "ends": {"…-changelog": [15, 15]},       end offset of each partition of each changelog
      "findings": ["store-not-closed"],        what a doctor must find, brokers or not; beyond it only notes,
      "tolerated": [],                         and these
      "databases": {"0_0/key-value": {"rows": 5, "offsets": {"…-0": 14}, "status": 0}}   as another reader sees them
    }

With ``transactional`` in its name an archive is of an application with ``enable.transactional.statestores``.

The applications are ``SMALL`` of ``tests.harness.fleet_kinds``, and for some cases one more. Times of records are
fixed, RocksDB's identities are not: an archive that is made again differs, and what its JSON says should not.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import stat
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.formats.releases import RELEASES
from tests.golden.make import HERE, KEEPS
from tests.harness.broker import Broker
from tests.harness.crashes import global_store_not_closed, segments_in_disagreement
from tests.harness.directory import databases, read_database
from tests.harness.fleet import VERSIONS, Fleet, Moment, VersionedApplication
from tests.harness.fleet_kinds import SMALL, SPARSE_WINDOWS
from tests.harness.kinds import KindsApplication
from tests.harness.modes import transactional

DIRECTORIES = HERE / "directories"
INDEX = DIRECTORIES / "directories.json"

WITH_OFFSETS_INSIDE = [release for release in VERSIONS if RELEASES[release].offsets_inside]
GUARANTEES = {"exactly-once": "exactly_once_v2", "at-least-once": "at_least_once"}

_BASE = 1_357_034_400_000  # 2013-01-01 10:00 UTC
_MODIFIED = 1_700_000_000
_HEAP_MB = 1024  # many applications live in one JVM, to die together
_WITHOUT_BROKERS = "127.0.0.1:1"


@dataclass(frozen=True)
class Case:
    """One archive.

    Attributes:
        name: of the archive, and the application's id.
        release: the release that wrote it.
        guarantee: of the application.
        moment: what was done, in a word.
        done: the same in a sentence.
        findings: codes that a doctor must find.
        live: lives until the moment.
        kinds: its stores.
    """

    name: str
    release: str
    guarantee: str
    moment: str
    done: str
    findings: tuple[str, ...]
    live: Callable[[VersionedApplication, str], object]
    kinds: KindsApplication = SMALL


_DONE = {
    Moment.CLEAN: "Fed, and closed cleanly.",
    Moment.FIRST_RUN: "Fed in its first run, and killed before anything was flushed.",
    Moment.AFTER_CLOSE: "Fed and closed cleanly, started again and fed more, and killed before that was flushed.",
    Moment.FLUSHED: "Fed and closed cleanly, started again and fed more, flushed (all stores of tasks), fed more, "
    "killed.",
}


def cases() -> Iterator[Case]:
    """Every archive that there is to be."""
    for release, version in VERSIONS.items():
        for name, guarantee in GUARANTEES.items():
            for moment in Moment:
                yield Case(
                    f"{version}-{name}-{moment.value}",
                    release,
                    guarantee,
                    moment.value,
                    _DONE[moment],
                    findings(release, guarantee, moment),
                    lambda world, on, moment=moment: world.live(on, moment),  # type: ignore[misc]
                )
    for release in WITH_OFFSETS_INSIDE:
        yield from _more_crashes(release)
    yield from _transactional(list(VERSIONS)[-1])


def _more_crashes(newest: str) -> Iterator[Case]:
    """Moments of releases that keep offsets inside the stores."""
    version = VERSIONS[newest]
    yield Case(
        f"{version}-at-least-once-segments-disagree",
        newest,
        "at_least_once",
        "segments-disagree",
        "Fed, closed and started again; fed more, which also changed the older segment; the newest segment alone was "
        "flushed, as it is when its memory is full; killed. What the older segment missed is behind its offset.",
        ("segments-disagree", "store-not-closed"),
        segments_in_disagreement,
    )
    yield Case(
        f"{version}-exactly-once-segment-missing",
        newest,
        "exactly_once_v2",
        "segment-missing",
        "Fed and closed cleanly; the window store of partition 1 never had a record, so it has no segment.",
        ("segment-missing",),
        lambda world, on: world.live(on, Moment.CLEAN),
        SPARSE_WINDOWS,
    )
    yield Case(
        f"{version}-exactly-once-global-not-closed",
        newest,
        "exactly_once_v2",
        "global-not-closed",
        "Fed and closed cleanly, started again and fed more, the global store flushed, killed.",
        ("global-store-not-closed", "offset-missing"),
        global_store_not_closed,
    )


def _transactional(release: str) -> Iterator[Case]:
    """Transactional stores: no status is written, and rows are never ahead of their offset."""
    version = VERSIONS[release]
    for name, guarantee in GUARANTEES.items():
        for moment in Moment:
            yield Case(
                f"{version}-transactional-{name}-{moment.value}",
                release,
                guarantee,
                moment.value,
                _DONE[moment],
                tuple(one for one in findings(release, guarantee, moment) if one != "store-not-closed"),
                lambda world, on, moment=moment: world.live(on, moment),  # type: ignore[misc]
                transactional(SMALL),
            )
        yield Case(
            f"{version}-transactional-{name}-segments-disagree",
            release,
            guarantee,
            "segments-disagree",
            "Fed, closed and started again; fed more, which also changed the older segment; the newest segment alone "
            "was flushed; killed. What the older segment missed is behind its offset, and no status tells it.",
            ("segments-disagree", *(["offset-missing"] if guarantee == "exactly_once_v2" else [])),
            segments_in_disagreement,
            transactional(SMALL),
        )


def findings(release: str, guarantee: str, moment: Moment) -> tuple[str, ...]:
    """What a doctor must find in a directory of ``SMALL``; see ``directories.json``."""
    if release not in WITH_OFFSETS_INSIDE:
        return ("older-release",)
    found = set()
    if moment is Moment.FIRST_RUN:
        found.add("offset-missing")  # of every store; no status was flushed either
    elif moment is not Moment.CLEAN and guarantee == "exactly_once_v2":
        found.add("offset-missing")  # of the grace buffer, whose file is deleted when it is opened
    if moment is Moment.FLUSHED:
        found.add("store-not-closed")
    return tuple(sorted(found))


def tolerated(release: str, guarantee: str, moment: str, transactional: bool = False) -> list[str]:
    """What a doctor may find besides, since it is true and follows from the moment."""
    if release == "3.9" and moment != Moment.FIRST_RUN.value:
        return ["offset-missing"]  # 3.9 writes global/.checkpoint only after thousands of records
    found = []
    if release in WITH_OFFSETS_INSIDE and not transactional and guarantee == "exactly_once_v2":
        # Where a start wipes the task, and restores the grace buffer with it.
        found += [] if moment == Moment.CLEAN.value else ["grace-buffer-miskeyed"]
    if release not in WITH_OFFSETS_INSIDE and guarantee == "exactly_once_v2" and moment == Moment.FIRST_RUN.value:
        found.append("grace-buffer-miskeyed")  # its .checkpoint knows no offset
    if release in WITH_OFFSETS_INSIDE and moment == Moment.FLUSHED.value:
        if transactional and guarantee == "exactly_once_v2":
            return []
        # Offsets are committed into the stores at a close only; or the buffer's file is older than its rows.
        found += ["segments-disagree"] if guarantee == "exactly_once_v2" else ["checkpoint-behind"]
    return sorted(found)


def make(fleet: Fleet, base: Path, wanted: list[Case]) -> dict[str, dict[str, Any]]:
    """Lets all live and die on their version, writes the archives, and says what is in them."""
    made = {}
    for release in dict.fromkeys(case.release for case in wanted):
        lived = []
        for case in (one for one in wanted if one.release == release):
            world = fleet.application(case.name, base / "state", case.guarantee, case.kinds, base=_BASE)
            case.live(world, release)
            lived.append((case, world))
            print(f"{case.name}: {case.moment}", file=sys.stderr)
        fleet.kill(release)
        for case, world in lived:
            (DIRECTORIES / f"{case.name}.tar.gz").write_bytes(pack(world.directory))
            made[case.name] = {
                "version": VERSIONS[case.release],
                "release": case.release,
                "guarantee": case.guarantee,
                "moment": case.moment,
                "done": case.done,
                "spec": {**world.spec(), "bootstrap_servers": _WITHOUT_BROKERS},
                "ends": world.ends(),
                "findings": list(case.findings),
                "tolerated": tolerated(case.release, case.guarantee, case.moment, case.kinds.transactional),
                "databases": looked_at(world.directory),
            }
            shutil.rmtree(world.directory)
    return made


def looked_at(application: Path) -> dict[str, dict[str, Any]]:
    """Rows, offsets and status of every database, read by a reader that is not the product's."""
    found = {}
    for task, name, path in databases(application):
        families = read_database(path)
        entries = dict(families.pop("offsets", []))
        status = entries.pop(b"status", None)
        entries.pop(b"position", None)
        found[f"{task}/{name}"] = {
            "families": sorted(families),
            "rows": sum(map(len, families.values())),
            "offsets": {key.decode(): int.from_bytes(value, signed=True) for key, value in sorted(entries.items())},
            "status": None if status is None else int.from_bytes(status, signed=True),
        }
    return found


def pack(application: Path) -> bytes:
    """The directory as a ``.tar.gz``: files of one name side by side, since they are nearly alike and pack well so."""
    packed = io.BytesIO()
    entries = sorted(application.rglob("*"), key=lambda path: (path.is_file(), _alike(path), str(path)))
    with (
        gzip.GzipFile("", "wb", 9, fileobj=packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in [application, *entries]:
            entry = archive.gettarinfo(path, str(path.relative_to(application.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = _MODIFIED
            entry.mode = stat.S_IMODE(path.stat().st_mode)
            archive.addfile(entry, io.BytesIO(path.read_bytes()) if path.is_file() else None)
    return packed.getvalue()


def _alike(path: Path) -> str:
    return path.suffix if path.suffix in (".sst", ".log") else path.name.partition("-")[0]


def write(index: dict[str, dict[str, Any]]) -> None:
    """Writes the JSON, a line for each field, and one for each database."""
    directories = []
    for name, one in sorted(index.items()):
        found = [f"   {json.dumps(path)}: {json.dumps(said)}" for path, said in one["databases"].items()]
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in one.items() if key != "databases"]
        lines.append('  "databases": {\n' + ",\n".join(found) + "\n  }")
        directories.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    INDEX.write_text("{\n" + ",\n".join(directories) + "\n}\n")


def main() -> None:
    """Makes every archive, or those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="which; all without")
    names = parser.parse_args().names
    wanted = [case for case in cases() if not names or case.name in names]
    DIRECTORIES.mkdir(exist_ok=True)
    known = json.loads(INDEX.read_text()) if names and INDEX.exists() else {}
    with tempfile.TemporaryDirectory(prefix="statecore-golden-") as scratch:
        base = Path(scratch)
        with (
            Broker(base / "broker", settings=KEEPS) as broker,
            Fleet(broker.bootstrap_servers, base / "fleet", heap_mb=_HEAP_MB) as fleet,
        ):
            write(known | make(fleet, base, wanted))


if __name__ == "__main__":
    main()
