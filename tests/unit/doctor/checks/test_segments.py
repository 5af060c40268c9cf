"""Segments of a window store: offsets that disagree, and segments that are missing."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor.finding_catalog import Repair
from statecore.formats.releases import RELEASES
from statecore.spec.reader import read_spec
from tests.golden.directories import unpacked as unpacked_golden
from tests.harness.damage_cases import EXACTLY_ONCE
from tests.harness.damage_functions import drop_family, edited, segments_of
from tests.unit.doctor.diagnosing import (
    ALOS,
    EOS,
    ERROR,
    LOSS,
    NOTE,
    SPEC,
    checkpoint,
    codes,
    diagnose,
    plain,
    unpacked,
    window,
)
from tests.unit.doctor.golden import examined
from tests.unit.doctor.stored import write_database


def test_segments_that_disagree(tmp_path):
    window(tmp_path, {600_000: (100, 1, 2), 900_000: (150, 1, 2)})
    found = diagnose(tmp_path, guarantee=ALOS)
    (one,) = [one for one in found.findings if one.code == "segments-disagree"]
    assert (one.severity, one.repair, str(one.partition)) == (LOSS, Repair.LOWER_OFFSETS, "app-w-changelog-0")
    assert one.evidence["offsets"] == {"100": ["w.600000"], "150": ["w.900000"]}
    # Exactly-once deletes the task, so nothing is lost.
    assert codes(tmp_path, guarantee=EOS)["segments-disagree"] is ERROR


@pytest.mark.parametrize(("expired", "severity"), [(0, None), (600_000, LOSS)])
def test_what_an_expired_segment_missed_is_harmless(tmp_path, expired, severity):
    """One that a restored backup has put back, for example: Kafka Streams answers with none of its rows."""
    window(tmp_path, {expired: (100, 1, 2), 1_200_000: (150, 1, 2)})
    declared = SPEC.format(guarantee="at_least_once", stores="w: {kind: window, retention: 10m}")
    assert codes(tmp_path, spec=read_spec(declared), guarantee=ALOS).get("segments-disagree") is severity


def test_a_segment_that_was_never_flushed_is_a_disagreement_where_another_was(tmp_path):
    window(tmp_path, {600_000: (100, 0, 2), 900_000: (None, None, 0)})
    assert codes(tmp_path, guarantee=ALOS) == {}  # all that came after the close is restored
    shutil.rmtree(tmp_path / "app")
    window(tmp_path, {600_000: (None, None, 0), 900_000: (150, 1, 2)})
    (one,) = [one for one in diagnose(tmp_path, guarantee=ALOS).findings if one.code == "segments-disagree"]
    assert "none in w.600000" in one.what
    assert one.repair is Repair.REBUILD


def test_a_store_without_a_segment_is_wiped_under_exactly_once_alone(tmp_path):
    window(tmp_path, {})
    assert codes(tmp_path, guarantee=EOS) == {"segment-missing": ERROR}
    assert codes(tmp_path, guarantee=ALOS) == {"segment-missing": NOTE}
    assert diagnose(tmp_path, guarantee=EOS).findings[0].repair is Repair.CREATE_SEGMENT


def test_a_segment_without_an_offset_beside_one_that_was_flushed_since_it_was_opened(tmp_path):
    window(tmp_path, {600_000: (150, None, 2), 900_000: (None, None, 0)})
    (one,) = [one for one in diagnose(tmp_path, guarantee=EOS).findings if one.code == "segments-disagree"]
    assert (one.severity, one.repair) == (LOSS, Repair.REBUILD)
    with edited(tmp_path / "app/0_0/w/w.600000"):
        pass
    assert codes(tmp_path, guarantee=EOS) == {}  # it was opened again, and what came since is restored


def test_a_store_without_a_segment_is_harmless_to_older_releases(tmp_path):
    application = unpacked(tmp_path, "4.2.0")
    (tmp_path / application / "0_1/w").mkdir()
    assert codes(tmp_path, application, guarantee=EOS)["segment-missing"] is ERROR
    assert codes(tmp_path, application, guarantee=EOS, release=RELEASES["4.2"]) == {}


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_a_segment_of_an_older_release_among_others_is_taken_for_whole(tmp_path, which, guarantee):
    """Kafka Streams 4.4.0 restores nothing of such a store, wipes nothing, and answers with all rows."""
    window(tmp_path, {600_000: (150, 0, 2), 900_000: (150, 0, 2), 1_200_000: (150, 0, 2)})
    plain(tmp_path)
    older = segments_of(tmp_path / "app", "w")[which]
    drop_family(older, "offsets")
    (one,) = diagnose(tmp_path, guarantee=guarantee).findings
    assert (one.code, one.severity, one.repair, one.store) == ("segments-disagree", LOSS, Repair.REBUILD, "w")
    assert one.evidence["without"] == [older.name]
    with_file = checkpoint(tmp_path, ("app-w-changelog", 0, 150))
    assert codes(tmp_path, guarantee=guarantee) == {"half-migrated": NOTE, "older-release": NOTE}
    with_file.unlink()
    assert {"half-migrated", "release-cannot-open"} <= codes(tmp_path, release=RELEASES["4.2"]).keys()


def test_a_segment_whose_creation_was_interrupted_before_its_families_is_no_older_one(tmp_path):
    window(tmp_path, {600_000: (150, 0, 2), 900_000: (150, 0, 2)})
    write_database(tmp_path / "app/0_0/w/w.1200000", {"default": []})
    assert codes(tmp_path, guarantee=EOS) == {}


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_an_empty_segment_that_keeps_the_offset_is_what_expired_rows_leave(tmp_path, guarantee):
    """That rows were lost instead, only the changelog tells (``rows-differ``)."""
    window(tmp_path, {0: (150, 0, 0)})
    assert codes(tmp_path, guarantee=guarantee) == {}


@pytest.mark.parametrize("segments", [1, 2])
def test_a_segment_that_lost_its_directory_is_never_moved_aside(tmp_path, segments):
    window(tmp_path, {300_000 * number: (150, 0, 2) for number in range(1, segments + 1)})
    newest = segments_of(tmp_path / "app", "w")[-1]
    for file in newest.iterdir():
        file.rename(newest.parent / file.name)
    newest.rmdir()
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.severity, one.repair) == ("segment-stray", LOSS, Repair.REBUILD)
    assert "w/CURRENT" in one.evidence["files"]


@pytest.mark.parametrize(("rows", "repair"), [(2, Repair.REBUILD), (0, Repair.MOVE_ASIDE)])
def test_a_database_without_the_name_of_a_segment(tmp_path, rows, repair):
    window(tmp_path, {300_000: (150, 0, rows), 600_000: (150, 0, 2)})
    oldest = segments_of(tmp_path / "app", "w")[0]
    oldest.rename(oldest.with_name("found"))
    assert [one.repair for one in diagnose(tmp_path).findings if one.code == "segment-stray"] == [repair]


@pytest.mark.parametrize("name", ["w.0600000", "w_600000", "W.600000", "w.+600000"])
def test_a_segment_under_a_name_that_is_read_and_never_opened_has_lost_its_rows(tmp_path, name):
    window(tmp_path, {600_000: (150, 0, 2), 900_000: (150, 0, 2)})
    right = tmp_path / "app/0_0/w/w.600000"
    right.rename(right.with_name(name))
    (one,) = diagnose(tmp_path, guarantee=ALOS).findings
    assert (one.code, one.severity, one.segment, one.repair) == ("segment-misplaced", LOSS, name, Repair.REBUILD)
    shutil.copytree(right.with_name(name), right)  # then it is a copy of one that is opened
    assert "segment-misplaced" not in {
        one.code for one in diagnose(tmp_path, guarantee=ALOS).findings if one.segment == name
    }


@pytest.mark.parametrize("declared", [True, False])
def test_the_renamed_segment_of_a_grace_buffer_hides_no_damage_of_other_tasks(tmp_path, declared):
    """Without a spec the kind of the store was unknown in every task."""
    application = unpacked_golden(EXACTLY_ONCE, tmp_path)
    (application / "1_0/.checkpoint_grace-Buffer").unlink()
    (application / "1_1/grace-Buffer/grace-Buffer.0").rename(application / "1_1/grace-Buffer/grace-Buffer.1")
    seen = examined(application, EXACTLY_ONCE, declared=declared)
    found = {(one.code, one.task): one for one in seen.findings if one.store == "grace-Buffer"}
    assert {("grace-buffer-miskeyed", "1_0"), ("offset-missing", "1_0")} < found.keys()
    renamed = found["segment-misplaced", "1_1"]
    assert (renamed.severity, renamed.repair, renamed.segment) == (LOSS, Repair.REBUILD, "grace-Buffer.1")
    assert not {code for code, _ in found} & {"kind-mismatch"}
