"""Files with offsets beside the stores: those that cannot be read, and those of another task."""

from __future__ import annotations

import errno
import shutil

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CHECKPOINT_FILE, RELEASES
from statecore.stores.legacy_offsets import read_offsets
from tests.golden.directories import golden_directories, unpacked
from tests.golden.directories import names as golden_names
from tests.harness.case_selection import three_of
from tests.harness.damage_cases import BUFFER, BUFFER_TASK
from tests.harness.damage_functions import PLAIN, write_checkpoint
from tests.harness.filesystems import refusing
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
from tests.unit.doctor.diagnosing import ALOS, EOS, ERROR, LOSS, WARNING, diagnose, plain, window
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


@pytest.mark.parametrize("name", three_of(OLDER))
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("release", ["own", NEWEST_RELEASE])
def test_task_directories_that_were_exchanged_are_told_by_the_partitions_of_their_files(
    tmp_path, name, declared, release
):
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
    ("own", "entry", "file", "code"),
    [
        (0, 5, CHECKPOINT_FILE, "checkpoint-ahead"),
        (0, -1, CHECKPOINT_FILE, "checkpoint-behind"),
        (-1, 0, "", ""),
        (5, None, f".checkpoint_{BUFFER}", "checkpoint-ahead"),
        (0, None, "", ""),
    ],
)
def test_the_file_that_a_start_reads_is_compared_with_a_grace_buffer(tmp_path, own, entry, file, code):
    """``.checkpoint`` wins over ``.checkpoint_<store>``, except -4. Numbers are distances from the right offset."""
    application = unpacked(NEWEST[0], tmp_path)
    own_file = application / BUFFER_TASK / f".checkpoint_{BUFFER}"
    ((changelog, last),) = read_offsets(own_file).items()
    write_checkpoint(own_file, {str(changelog): last + own})
    task_says = OFFSET_UNKNOWN if entry is None else last + entry
    write_checkpoint(application / BUFFER_TASK / CHECKPOINT_FILE, {str(changelog): task_says})
    found = [one for one in examined(application, NEWEST[0]).findings if one.code.startswith("checkpoint-")]
    assert [(one.code, one.evidence["file"]) for one in found] == ([(code, file)] if code else [])
    repairs = {CHECKPOINT_FILE: Repair.MOVE_ASIDE, f".checkpoint_{BUFFER}": Repair.REBUILD}
    assert [one.repair for one in found] == ([repairs[file]] if code else [])
    assert {one.severity for one in found} <= {LOSS}, "what is restored again has keys that the join never finds"


@pytest.mark.parametrize(
    ("target", "is_found"),
    [(".checkpoint", True), ("0_1", True), (BUFFER, True), (".position", False), ("rocksdb/strange", False)],
)
def test_a_link_to_itself_does_not_end_the_inspection(tmp_path, target, is_found):
    application = unpacked(NEWEST[0], tmp_path)
    link = application / target if target == "0_1" else application / BUFFER_TASK / target
    if link.is_dir():
        shutil.rmtree(link)
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(link.name)
    assert bool(examined(application, NEWEST[0]).findings) == is_found


def test_a_store_whose_directory_is_where_another_ones_position_file_would_be(tmp_path):
    """Kafka Streams 4.4.0 fails at every start but the first: reading the file throws."""
    plain(tmp_path)
    window(tmp_path, {600_000: (7, 0, 2)}, store="s.position")
    (one,) = diagnose(tmp_path, guarantee=ALOS).findings
    assert (one.code, one.severity, one.store, one.repair) == ("checkpoint-unreadable", ERROR, "s", None)
    assert one.remedy.startswith("Rename one of the two stores")


@pytest.mark.parametrize("name", [".checkpoint-s", ".checkpoint_s"])
def test_a_store_named_as_an_offset_file_that_nobody_reads(tmp_path, name):
    plain(tmp_path)
    window(tmp_path, {600_000: (7, 0, 2)}, store=name)
    found = diagnose(tmp_path, guarantee=EOS)
    assert found.findings == ()
    assert [view.store for view in found.stores] == ["s", name]


@pytest.mark.parametrize(
    ("count", "last", "found"),
    [
        (1, 7, {"checkpoint-unreadable": WARNING}),
        (1, 3, {"checkpoint-unreadable": WARNING, "checkpoint-behind": WARNING}),
        (1, 30, {"checkpoint-unreadable": WARNING, "checkpoint-ahead": LOSS}),
        (2, 30, {"checkpoint-unreadable": ERROR}),
    ],
)
def test_of_a_partition_that_is_named_twice_the_last_line_wins_if_it_is_counted_once(tmp_path, count, last, found):
    """As in the map of Kafka Streams, whose size it compares with the second line."""
    plain(tmp_path, offset=7)
    (tmp_path / "app/0_0/.checkpoint").write_text(f"0\n{count}\napp-s-changelog 0 5\napp-s-changelog 0 {last}\n")
    every = diagnose(tmp_path, guarantee=ALOS).findings
    assert {one.code: one.severity for one in every} == found
    assert {one.repair for one in every} == {Repair.MOVE_ASIDE}
    (one,) = [one for one in every if one.code == "checkpoint-unreadable"]
    assert ("the last line of a partition wins" in one.what) == (count == 1)
