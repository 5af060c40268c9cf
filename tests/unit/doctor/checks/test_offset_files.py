"""Files with offsets beside the stores: unreadable, of another task, or contradicting a store."""

from __future__ import annotations

import errno
import shutil

import pytest

from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.releases import RELEASES
from statecore.spec.reader import read_spec
from tests.golden.directories import golden_directories, unpacked
from tests.golden.directories import names as golden_names
from tests.harness.damage import BUFFER, BUFFER_TASK
from tests.harness.damaging import PLAIN
from tests.harness.filesystems import refusing
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.diagnosing import EOS, ERROR, LOSS, NOTE, SPEC, WARNING, checkpoint, codes, diagnose, plain
from tests.unit.doctor.golden import examined, worse
from tests.unit.doctor.stored import owner, write_database, write_golden

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


@pytest.mark.parametrize(
    ("says", "found"),
    [(7, {}), (-4, {}), (3, {"checkpoint-behind": WARNING}), (12, {"checkpoint-ahead": LOSS})],
)
def test_a_checkpoint_is_held_against_the_store(tmp_path, says, found):
    plain(tmp_path)
    checkpoint(tmp_path, ("app-s-changelog", 0, says))
    assert codes(tmp_path) == found


def test_a_checkpoint_that_fills_an_empty_store_is_ahead_and_one_of_an_interrupted_upgrade_is_right(tmp_path):
    plain(tmp_path, offset=None, status=None, rows=0)
    checkpoint(tmp_path, ("app-s-changelog", 0, 3000))
    assert codes(tmp_path) == {"checkpoint-ahead": LOSS}
    shutil.rmtree(tmp_path / "app")
    plain(tmp_path, offset=None, status=None)
    checkpoint(tmp_path, ("app-s-changelog", 0, 3000))
    assert codes(tmp_path) == {}


def test_entries_of_no_store_are_stray(tmp_path):
    plain(tmp_path)
    checkpoint(tmp_path, ("app-s-changelog", 0, 7), ("app-gone-changelog", 0, 3), ("app-s-changelog", 1, 7))
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.task) == ("checkpoint-stray", "0_0")
    assert one.evidence["entries"] == ["app-gone-changelog-0", "app-s-changelog-1"]


def test_a_task_without_stores_is_checked(tmp_path):
    plain(tmp_path)
    (tmp_path / "app/0_1").mkdir()
    assert codes(tmp_path) == {}
    checkpoint(tmp_path, ("app-s-changelog", 1, 7), task="0_1")
    assert [(one.code, one.task) for one in diagnose(tmp_path).findings] == [("checkpoint-stray", "0_1")]


def test_a_source_topic_is_not_stray_where_a_store_has_no_offset_of_its_own(tmp_path):
    write_database(tmp_path / "app/0_0/rocksdb/table", {"default": [(b"k", b"v")]})
    checkpoint(tmp_path, ("profiles", 0, 7))
    assert "checkpoint-stray" not in codes(tmp_path, release=RELEASES["4.2"])
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores="table: {kind: key-value, changelog: profiles}"))
    assert codes(tmp_path, spec=spec) == {"older-release": NOTE}
    assert codes(tmp_path, spec=spec, release=RELEASES["4.2"]) == {}


@pytest.mark.parametrize("name", [".checkpoint", ".checkpoint_s", "s.position"])
def test_files_that_cannot_be_read_stop_every_start(tmp_path, name):
    plain(tmp_path)
    (tmp_path / "app/0_0" / name).write_text("0\n7\n")
    assert codes(tmp_path) == {"checkpoint-unreadable": ERROR}


def test_a_position_file_that_was_left_is_a_note(tmp_path):
    plain(tmp_path)
    checkpoint(tmp_path, ("in", 0, 3), name="s.position")
    assert codes(tmp_path) == {"position-leftover": NOTE}


def test_the_file_of_a_grace_buffer_is_its_offset(tmp_path):
    application = owner("grace-buffer")
    made = write_golden(tmp_path / application, "grace-buffer")
    (file,) = (tmp_path / application).rglob(".checkpoint_*")
    text = file.read_text()
    offset = int(text.split()[-1])
    for says, code in ((offset + 1, "checkpoint-ahead"), (offset - 1, "checkpoint-behind")):
        file.write_text(text.replace(f" {offset}\n", f" {says}\n"))
        assert list(codes(tmp_path, application)) == [code]
    file.unlink()
    (one,) = diagnose(tmp_path, application, guarantee=EOS).findings
    assert (one.code, one.store) == ("offset-missing", made["store"])
