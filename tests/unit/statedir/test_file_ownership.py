"""Whose the placed files will be: copied or given, decided and refused before anything is made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid
from statecore.statedir.file_ownership import FileOwnership, Process, decide_ownership, parse_owner, unwritable
from statecore.statedir.file_trees import link_tree
from statecore.statedir.state_directory import StateDirectory
from tests.harness.raising import raises

ROOT = Process(0, 0, frozenset({0}), may_chown=True)
AIRFLOW = Process(50000, 0, frozenset({0, 4243}), may_chown=False)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def made(path: Path, uid: int, gid: int, mode: int) -> Path:
    path.mkdir()
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def decided(state_dir: Path, process: Process, owner: str | None = None) -> tuple[int, int, int]:
    found = decide_ownership(state_dir, state_dir / "app", owner, process)
    return found.uid, found.gid, found.directory_mode


@as_root
def test_owner_and_mode_come_from_application_state_directory_or_parent(tmp_path):
    above = made(tmp_path / "above", 4240, 4241, 0o700)
    assert decided(above / "state", ROOT) == (4240, 4241, 0o750)
    state = made(above / "state", 4242, 4243, 0o2775)
    assert decided(state, ROOT) == (4242, 4243, 0o2770)
    made(state / "app", 4244, 4245, 0o700)
    assert decided(state, ROOT) == (4244, 4245, 0o700)
    found = decide_ownership(state, state / "app", None, ROOT)
    assert found.file_mode == 0o600
    assert str(found) == f"4244:4245 with mode rwx------ (the owner of {state}/app)"


@as_root
def test_the_model_of_the_owner_is_not_said_to_be_that_of_the_mode(tmp_path):
    state = made(tmp_path / "state", 4242, 4243, 0o755)
    found = decide_ownership(state, state / "app", None, ROOT)
    assert str(found) == f"4242:4243 with mode rwxr-x--- (the owner of {state})"


@as_root
def test_in_shared_or_root_owned_directories_the_creator_owns_files(tmp_path):
    for mode in (0o1777, 0o777, 0o755):
        state = made(tmp_path / f"{mode:o}", 0, 0, mode)
        assert decided(state, Process(7, 8, frozenset({8}), may_chown=False)) == (7, 8, 0o750)
    volume = made(tmp_path / "volume", 0, 4243, 0o2775)
    assert decided(volume, AIRFLOW) == (50000, 4243, 0o2770)


@as_root
def test_without_the_right_to_give_files_away_only_a_shared_group_is_left(tmp_path):
    state = made(tmp_path / "state", 4242, 4243, 0o750)
    with raises(Invalid, "chown-not-permitted", owner=4242, user=50000) as caught:
        decided(state, AIRFLOW)
    assert "allow.os.group.write.access" in caught.value.action
    assert "--owner 50000:0" in caught.value.action
    state.chmod(0o770)
    shared = decide_ownership(state, state / "app", None, AIRFLOW)
    assert (shared.uid, shared.gid, shared.directory_mode, shared.file_mode) == (50000, 4243, 0o770, 0o660)
    assert shared.by_group
    with pytest.raises(Invalid):
        decided(state, Process(50000, 0, frozenset({0}), may_chown=False))


def test_an_owner_that_is_given_wins_where_files_can_be_given_to_it(tmp_path):
    assert decided(tmp_path, ROOT, "4242:4243")[:2] == (4242, 4243)
    assert decided(tmp_path, AIRFLOW, "50000:4243")[:2] == (50000, 4243)
    for owner, word in (("4242:4243", "uid 4242"), ("50000:4999", "group 4999")):
        with raises(Invalid, "chown-not-permitted", owner=owner, user=50000) as caught:
            decided(tmp_path, AIRFLOW, owner)
        assert word in caught.value.what
        assert "CAP_CHOWN" in str(caught.value)


def test_an_owner_is_a_user_and_a_group_by_name_or_number():
    assert parse_owner("root") == (0, 0)
    assert parse_owner("0") == (0, 0)
    assert parse_owner("nobody:root")[1] == 0
    assert parse_owner("4242:4243") == (4242, 4243)


@pytest.mark.parametrize(
    ("owner", "code", "context"),
    [
        ("no-such-user", "owner-unknown", {"user": "no-such-user"}),
        ("root:no-such-group", "owner-unknown", {"group": "no-such-group"}),
        ("424242", "owner-group-missing", {"user": "424242"}),
        ("", "owner-invalid", {}),
        (":root", "owner-invalid", {}),
        ("root:", "owner-invalid", {}),
        ("a:b:c", "owner-invalid", {}),
        ("-1:0", "owner-unknown", {"user": "-1"}),
    ],
)
def test_an_owner_that_is_not_known_is_refused_with_what_to_do(owner, code, context):
    with raises(Invalid, code, owner=owner, **context) as caught:
        parse_owner(owner)
    assert caught.value.action


@as_root
def test_a_kept_file_that_changes_its_owner_is_copied_because_a_link_would_change_the_live_one(tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    (live / "000001.sst").write_bytes(b"rows")
    for owner, linked in ((0, True), (4242, False)):
        target = tmp_path / f"of-{owner}"
        link_tree(live, target, FileOwnership(owner, owner, 0o750, ""))
        sst = target / "000001.sst"
        assert sst.samefile(live / "000001.sst") is linked
        assert (sst.stat().st_uid, target.stat().st_uid) == (owner, owner)
    assert (live / "000001.sst").stat().st_uid == 0


@as_root
def test_a_directory_is_made_for_the_owner_before_anything_is_put_there(tmp_path):
    directory = StateDirectory(tmp_path / "new" / "state", "app", "4242:4243")
    with directory.lock():
        (directory.path / "kafka-streams-process-metadata").touch()
        directory.apply_ownership()
    for path in (tmp_path / "new", *(tmp_path / "new").rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4243), path
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


@as_root
def test_a_system_that_does_not_let_files_be_given_away_refuses_and_nothing_is_left(tmp_path):
    """Root without the capability, as in a container that dropped it."""
    code = """
        import sys
        from pathlib import Path
        from statecore.errors import Invalid
        from statecore.statedir.state_directory import StateDirectory
        try:
            StateDirectory(Path(sys.argv[1]), "app", sys.argv[2] or None).lock()
        except Invalid as error:
            print(error)
    """
    state = made(tmp_path / "state", 4242, 4243, 0o750)
    for drop, owner, mode in (
        ("chown", "", 0o750), ("chown", "4242:4243", 0o750), ("dac_override,-dac_read_search", "4244:4243", 0o757)
    ):  # fmt: skip
        state.chmod(mode)
        run = ["setpriv", f"--bounding-set=-{drop}", f"--inh-caps=-{drop}"]
        done = subprocess.run(
            [*run, sys.executable, "-c", textwrap.dedent(code), str(state), owner],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        assert "uid 0" in done.stdout, done.stderr
        assert list(state.iterdir()) == []


def test_directories_that_cannot_be_changed_are_found(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert unwritable([tmp_path]) is None
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b")
    assert unwritable([tmp_path / "a"]) == tmp_path / "a" / "b"
    # What may not be listed has no content for who walks there, and is found all the same.
    monkeypatch.setattr(os, "walk", lambda path: iter(()))
    assert unwritable([tmp_path / "a" / "b"]) == tmp_path / "a" / "b"
    assert unwritable([tmp_path / "absent"]) is None


@as_root
@pytest.mark.parametrize("call", ["chown", "chmod"])
@pytest.mark.parametrize("killed_at", ["state", "state/app", "state/app/.statecore"])
def test_a_kill_between_making_a_directory_and_giving_it_away_changes_no_owner(tmp_path, killed_at, call, monkeypatch):
    parent = made(tmp_path / "volume", 4242, 4343, 0o750)
    directory = StateDirectory(parent / "state", "app")
    real = getattr(os, call)

    def killed(path: Path, *what: int, **how: Any) -> None:
        if path == parent / killed_at:
            os._exit(9)
        real(path, *what, **how)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, call, killed)
        directory.lock()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert (parent / killed_at).stat().st_uid == (0 if call == "chown" else 4242)
    with directory.lock():
        found = {path: (path.stat().st_uid, path.stat().st_gid) for path in parent.rglob("*")}
    assert len(found) == 4
    assert set(found.values()) == {(4242, 4343)}


@as_root
@pytest.mark.parametrize("dropped", ["", "-fowner", "-fsetid"])
def test_a_process_that_may_only_chown_gives_files_away_with_their_mode(tmp_path, dropped):
    code = """
        import sys
        from pathlib import Path
        from statecore.statedir.file_ownership import FileOwnership
        for name in sys.argv[1:]:
            FileOwnership(4242, 4343, 0o2770, "").apply(Path(name))
    """
    directory, file = made(tmp_path / "directory", 0, 0, 0o700), tmp_path / "file"
    file.touch(0o600)
    run = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"] if dropped else []
    subprocess.run(
        [*run, sys.executable, "-c", textwrap.dedent(code), str(directory), str(file)],
        check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    found = {
        path: (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) for path in (directory, file)
    }
    assert found == {directory: (4242, 4343, 0o2770), file: (4242, 4343, 0o660)}


@as_root
def test_a_directory_that_is_reached_through_a_link_is_given_itself(tmp_path):
    real = made(tmp_path / "disk", 0, 0, 0o750)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "app").symlink_to(real)
    directory = StateDirectory(tmp_path / "state", "app", "4242:4343")
    with directory.lock():
        directory.apply_ownership()
    assert (real.stat().st_uid, real.stat().st_gid) == (4242, 4343)


@as_root
def test_a_lock_that_cannot_be_given_to_the_application_is_not_left_in_its_way(tmp_path, monkeypatch):
    state = made(tmp_path / "state", 4242, 4343, 0o755)
    app = made(state / "app", 4242, 4343, 0o750)

    def denied(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "chown", denied)
    with pytest.raises(Invalid):
        StateDirectory(state, "app").lock()
    assert list(app.iterdir()) == []
