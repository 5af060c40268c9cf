"""What is said where this user may not write to a repository, or not even read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.repository.repository import create_repository, open_repository
from tests.harness import mounts
from tests.harness.another_user import AnotherUser, another_user
from tests.harness.raising import raises

_COMMAND = """
import json, sys
from statecore.errors import Invalid
from statecore.repository.object_store import object_store_of
from statecore.repository.repository import create_repository, open_repository
try:
    {what}
except Invalid as error:
    print(json.dumps(error.to_json()))
"""
ROOT = Path(__file__).resolve().parents[3]


def said(user: AnotherUser, url: str, what: str) -> str:
    """What another user is told who does something with a repository."""
    words = user.command(sys.executable, "-c", _COMMAND.format(what=what), url)
    environment = {**user.environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment, cwd=user.home)
    return done.stdout


def of_root(user: AnotherUser) -> Path:
    """A repository that everybody may read and root may write."""
    root = user.home / "repository"
    create_repository(root.as_uri())
    subprocess.run(["chown", "-R", "0:0", str(root)], check=True)
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(root)], check=True)
    return root


@pytest.mark.parametrize("what", ["blobs.put_if_absent('apps/a', b'1')", "pointers.swap('h', b'1', None)"])
def test_missing_write_permission_names_user_path_and_owner(what: str) -> None:
    with another_user("022") as user:
        root = of_root(user)
        told = said(user, root.as_uri(), f"open_repository(sys.argv[1]).object_store.{what}")
    error = json.loads(told)
    assert error["code"] == "permission-denied"
    seen = {name: error["context"][name] for name in ("path", "owner", "mode")}
    assert seen == {"path": str(root), "owner": "root:root", "mode": "drwxr-xr-x"}
    assert f"read and write all of {root}" in error["action"]


def test_missing_read_permission_is_reported() -> None:
    with another_user("022") as user:
        root = of_root(user)
        (root / "repository.json").chmod(0o600)
        told = said(user, root.as_uri(), "open_repository(sys.argv[1])")
    error = json.loads(told)
    assert error["code"] == "permission-denied"
    seen = {name: error["context"][name] for name in ("path", "owner", "mode")}
    assert seen == {"path": f"{root}/repository.json", "owner": "root:root", "mode": "-rw-------"}
    assert f"read all of {root}" in error["action"]


def test_a_repository_below_an_unlistable_directory_works() -> None:
    what = (
        "place.blobs.put_if_absent('apps/a', b'1'); place.blobs.replace('apps/a', b'2'); "
        "print(place.pointers.swap('h', b'1', None) is not None, place.blobs.get('apps/a'))"
    )
    with another_user("022") as user:
        root = user.home / "closed" / "repository"
        root.mkdir(parents=True)
        os.chown(root, user.uid, user.uid)
        root.parent.chmod(0o711)
        made = "create_repository(sys.argv[1]); place = object_store_of(sys.argv[1])"
        told = said(user, root.as_uri(), f"{made}; {what}")
    assert told == "True b'2'\n"


def test_a_repository_on_a_disk_that_is_mounted_read_only_is_read_and_not_written(tmp_path: Path) -> None:
    with mounts.disk(tmp_path / "disk", "4m") as disk:
        url = (disk.path / "repository").as_uri()
        create_repository(url)
        disk.remount("ro")
        place = open_repository(url).object_store
        with raises(Invalid, "read-only-file-system") as caught:
            place.blobs.put_if_absent("apps/a", b"1")
        assert "Remount it writable" in caught.value.action
        with raises(Invalid, "read-only-file-system"):
            place.pointers.swap("h", b"1", None)
