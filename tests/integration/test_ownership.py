"""A restore by root, and an application that runs as another user: it opens, restores nothing, writes and closes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import topics
from tests.harness.applications import PLAIN_AND_STAMPED, two_stores
from tests.harness.broker import Broker
from tests.harness.streams import StreamsApplication, StreamsJvm
from tests.harness.topics import Record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process as another user"),
]

ROOT = Path(__file__).parents[2]
UID, GID = 4242, 4243


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user reaches; pytest's own are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="statecore-owner-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def restore(state_dir: Path, spec: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "statecore.cli.main", "restore", "--engine", "processes", "--json"]
    command += ["--spec", str(spec), "--state-dir", str(state_dir), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)


def open_to_others(path: Path) -> list[str]:
    """What users may read who are neither the application's nor of its group."""
    return [str(one) for one in (path, *path.rglob("*")) if one.stat().st_mode & 0o007]


def foreign(path: Path) -> list[str]:
    """What does not belong to the application."""
    return [
        f"{one} {status.st_uid}:{status.st_gid} {stat.filemode(status.st_mode)}"
        for one in (path, *path.rglob("*"))
        for status in [one.stat()]
        if (status.st_uid, status.st_gid) != (UID, GID)
    ]


@pytest.mark.parametrize("given", [False, pytest.param(True, marks=pytest.mark.full)])
def test_an_application_of_another_user_opens_what_root_restored_writes_to_it_and_closes(
    broker: Broker, application_id: str, reachable: Path, given: bool
) -> None:
    """Copied from the empty state directory that is the application's; given where root's own lies there."""
    servers, source = broker.bootstrap_servers, f"{application_id}-input"
    topics.create(servers, source, 2)
    topics.produce(servers, source, [Record(b"key-%d" % key, b"v%d" % key, key % 2) for key in range(100)])
    state_dir = reachable / "state"
    state_dir.mkdir(mode=0o750)
    os.chown(state_dir, UID, GID)
    spec = reachable / "stores.yaml"
    stores = {"plain": {"kind": "key-value"}, "stamped": {"kind": "timestamped-key-value"}}
    spec.write_text(
        json.dumps(
            {
                "application_id": application_id,
                "bootstrap_servers": servers,
                "processing_guarantee": "exactly_once_v2",
                "subtopologies": {"0": {"stores": stores}},
            }
        )
    )
    with StreamsJvm(reachable / "streams.log", user=(UID, GID)) as jvm:

        def application() -> StreamsApplication:
            return StreamsApplication(
                jvm, application_id, servers, state_dir, two_stores(source), stores=PLAIN_AND_STAMPED
            )

        with application() as running:
            topics.wait_until_consumed(servers, application_id, [source])
            before = {(store, part): running.query_rows(store, part) for _, store, part in running.store_tasks()}
        assert foreign(state_dir) == []
        words: tuple[str, ...] = ()
        if (
            given
        ):  # a restore of one store whose sibling root has; both must change hands, without a copy of root's left
            for path in (state_dir, *state_dir.rglob("*")):
                os.chown(path, 0, 0)
            words = ("--owner", f"{UID}:{GID}", "--store", "plain", "--replace")
            state_dir.chmod(0o755)
        else:
            shutil.rmtree(state_dir / application_id)

        done = restore(state_dir, spec, *words)

        assert done.returncode == 0, done.stderr
        assert f"will belong to {UID}:{GID} with mode rwxr-x---" in done.stderr
        assert foreign(state_dir / application_id) == []
        if not given:  # a kept store has the modes that the application gave it
            assert open_to_others(state_dir / application_id) == []
        with application() as running:
            assert sum(running.restored_records().values()) == 0
            assert {key: running.query_rows(*key) for key in before} == before
            topics.produce(servers, source, [Record(b"after", b"it opened", 1)])
            topics.wait_until_consumed(servers, application_id, [source])
            assert b"after" in str(running.query_rows("plain", 1)).encode()


@pytest.mark.parametrize("words", [(), ("--plan",)])
def test_an_owner_that_is_not_known_is_refused_before_anything_is_read_and_nothing_is_left(
    reachable: Path, words: tuple[str, ...]
) -> None:
    spec = reachable / "stores.yaml"
    spec.write_text(
        "{application_id: orders, bootstrap_servers: 'localhost:1', processing_guarantee: at_least_once, "
        "subtopologies: {'0': {stores: {s: {kind: key-value}}}}}"
    )
    done = restore(reachable / "state", spec, "--owner", "no-such-user", *words)
    error = json.loads(done.stdout)
    assert (done.returncode, error["error"]) == (13, "Invalid")
    assert "'no-such-user'" in error["what"]
    assert not (reachable / "state").exists()
