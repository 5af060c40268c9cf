"""Directories of one application, store by store, and what the doctor finds in them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from contextlib import contextmanager

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import CATALOG, Severity
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import read_spec
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from tests.unit.doctor.stored import GOLDEN, offsets, write_database

ALOS, EOS = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2


NOTE, WARNING, ERROR, LOSS = Severity


SPEC = """\
application_id: app
bootstrap_servers: localhost:1
processing_guarantee: {guarantee}
subtopologies: {{0: {{stores: {{{stores}}}}}}}
"""


def diagnose(tmp_path, application="app", **how):
    """A diagnosis, which changes nothing."""
    before = metadata(tmp_path)
    found = diagnose_directory(StateDirectory(tmp_path, application), **how)
    assert metadata(tmp_path) == before
    for one in found.findings:
        assert one.severity.rank <= CATALOG[one.code].severity.rank, one
        assert one.repair is None or one.repair in one.kind.repairs, one
    assert [one.severity.rank for one in found.findings] == sorted(
        (one.severity.rank for one in found.findings), reverse=True
    )
    return found


def metadata(root):
    """All that may not change: names, sizes, inodes, times, owners and modes; also of directories."""
    every = sorted(root.rglob("*"))
    status = [(path, path.lstat()) for path in every]
    return fingerprint(root), [
        (path, one.st_ino, one.st_mode, one.st_uid, one.st_mtime_ns, one.st_ctime_ns) for path, one in status
    ]


def codes(tmp_path, application="app", **how):
    """Code → severity of what was found; of one code the worst."""
    found = {}
    for one in reversed(diagnose(tmp_path, application, **how).findings):
        found[one.code] = one.severity
    return found


def plain(tmp_path, task="0_0", offset=7, status=0, rows=3, store="s", more=()):
    """A key-value store with its bookkeeping."""
    families = {"default": [(b"k%04d" % i, b"v" * 50) for i in range(rows)]}
    said = [] if offset is None else offsets(f"app-{store}-changelog", int(task[-1]), offset, None)
    said = [*said, *([] if status is None else [(b"status", status.to_bytes(8))])]
    path = tmp_path / f"app/{task}/rocksdb/{store}"
    write_database(path, {**families, **dict(more), "offsets": said})
    return path


def window(tmp_path, segments, store="w", task="0_0"):
    """A timestamped window store: start of each segment → offset or None, status, rows."""
    (tmp_path / f"app/{task}/{store}").mkdir(parents=True)
    for start, (offset, status, rows) in segments.items():
        keys = [b"k%d" % i + (start + 1).to_bytes(8) + bytes(4) for i in range(rows)]
        said = [] if offset is None else offsets(f"app-{store}-changelog", 0, offset, None)
        said += [] if status is None else [(b"status", status.to_bytes(8))]
        families = {"default": [], "keyValueWithTimestamp": [(key, bytes(8)) for key in keys], "offsets": said}
        write_database(tmp_path / f"app/{task}/{store}/{store}.{start}", families)


def checkpoint(tmp_path, *entries, task="0_0", name=".checkpoint"):
    file = tmp_path / "app" / task / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"0\n{len(entries)}\n" + "".join(f"{topic} {part} {at}\n" for topic, part, at in entries))
    return file


def unpacked(tmp_path, version):
    """The golden task of an older version; its application id."""
    application = {"3.9.1": "old391", "4.2.0": "old420"}[version]
    with tarfile.open(GOLDEN / f"kafka-streams-{version}-task.tar.gz") as archive:
        archive.extractall(tmp_path / application, filter="data")
    return application


TRANSACTIONAL = SPEC + "transactional_state_stores: true\n"


def declares(guarantee):
    return read_spec(TRANSACTIONAL.format(guarantee=guarantee, stores="s: {kind: key-value}"))


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 255
    file.write_bytes(data)


def largest_sst(path):
    return max(path.glob("*.sst"), key=lambda file: file.stat().st_size)


@contextmanager
def running(tmp_path):
    """A process that holds the application's lock."""
    lock = tmp_path / "app/.lock"
    lock.touch()
    code = (
        "import fcntl, sys\n"
        f"file = open({str(lock)!r}, 'r+')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.stdin.close()
