"""Files with offsets beside the stores: those that cannot be read, and those of another task."""

from __future__ import annotations

import errno

import pytest

from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.releases import RELEASES
from tests.golden.directories import golden_directories, unpacked
from tests.golden.directories import names as golden_names
from tests.harness.damage import BUFFER, BUFFER_TASK
from tests.harness.damaging import PLAIN
from tests.harness.filesystems import refusing
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.golden import examined, worse

NEWEST = golden_names(moment="clean", release=NEWEST_RELEASE)
OLDER = [name for release in ("3.9", "4.2") for name in golden_names(moment="clean", release=release)]


@pytest.mark.parametrize("file", [f"{BUFFER_TASK}/.checkpoint_{BUFFER}", f"0_0/{PLAIN}.position", "0_0/.checkpoint"])
def test_a_file_that_this_user_may_not_read_is_not_repaired(tmp_path, monkeypatch, file):
    application = unpacked(NEWEST[0], tmp_path)
    (application / file).touch()
    refusing(monkeypatch, "open", errno.EACCES, lambda path: path == application / file)
    seen = examined(application, NEWEST[0])
    assert {code for code, *_ in worse(seen)} == {"checkpoint-unreadable"}
    assert plan_repairs(seen.findings, seen.stores).is_empty


@pytest.mark.parametrize("name", OLDER)
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("release", ["own", NEWEST_RELEASE])
def test_exchanged_task_directories_are_detected_by_partitions_of_their_files(tmp_path, name, declared, release):
    application = unpacked(name, tmp_path)
    (application / "0_0").rename(tmp_path / "other")
    (application / "0_1").rename(application / "0_0")
    (tmp_path / "other").rename(application / "0_1")
    seen = examined(application, name, declared=declared, release=RELEASES[name[:3] if release == "own" else release])
    exactly_once = golden_directories()[name].guarantee == "exactly_once_v2"
    said = {(severity, task) for code, severity, task, _ in worse(seen) if code == "offset-foreign"}
    severity = "error" if exactly_once else "loss"
    assert said == {(severity, "0_0"), (severity, "0_1")}
    stores = {store for code, _, task, store in worse(seen) if code == "offset-foreign" and task == "0_0"}
    assert {"key-value", "timestamped-key-value", "timestamped-window", "versioned-key-value"} <= stores
    assert "checkpoint-stray" not in {code for code, *_ in worse(seen)}
    if release == NEWEST_RELEASE:  # as a repair sees it
        assert plan_repairs(seen.findings, seen.stores).is_empty


@pytest.mark.parametrize("name", OLDER[:1])
def test_one_entry_of_its_own_is_enough_for_a_file_to_be_of_its_task(tmp_path, name):
    application = unpacked(name, tmp_path)
    file = application / "0_0/.checkpoint"
    lines = file.read_text().splitlines()
    lines[3:] = [line.replace(" 0 ", " 1 ") for line in lines[3:]]
    file.write_text("\n".join(lines) + "\n")
    codes = {code for code, *_ in worse(examined(application, name))}
    assert "checkpoint-stray" in codes
    assert "offset-foreign" not in codes
