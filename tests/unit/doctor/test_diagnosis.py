"""What the doctor finds in a directory, and what it does not say of one that is well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager

import pytest

from statecore.doctor.diagnosis import diagnose_directory
from statecore.doctor.finding_catalog import CATALOG, Repair, Severity
from statecore.errors import NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import RELEASES
from statecore.formats.rocksdb_log import read_manifest
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import read_spec
from statecore.statedir.file_trees import fingerprint
from statecore.statedir.state_directory import StateDirectory
from statecore.stores.rocksdb.store import RocksDBStore
from statecore.stores.settings import KEEP_FILES
from tests.harness.damaging import edited
from tests.harness.raising import raises
from tests.unit.doctor.stored import CASES, GOLDEN, offsets, owner, write_database, write_golden

ALOS, EOS = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2
NOTE, WARNING, ERROR, LOSS = Severity
SPEC = """\
application_id: app
bootstrap_servers: localhost:1
processing_guarantee: {guarantee}
subtopologies: {{0: {{stores: {{{stores}}}}}}}
"""


def diagnose(tmp_path, application="app", **how):
    """An examination, which changes nothing."""
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


# Clean directories


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_an_undecided_changelog_makes_no_offset_a_finding(tmp_path, guarantee):
    """``discover`` writes ``changelog: '?'`` where it does not find out."""
    spec = read_spec(SPEC.format(guarantee=guarantee, stores="s: {kind: key-value, changelog: '?'}"))
    path = plain(tmp_path)
    assert codes(tmp_path, spec=spec) == {}
    shutil.rmtree(path)
    write_database(path, {"default": [(b"k", b"v")]})  # of 4.2, restored from a source topic
    checkpoint(tmp_path, ("source", 0, 7))
    assert codes(tmp_path, spec=spec) == {"older-release": NOTE}


@pytest.mark.parametrize("case", CASES)
def test_a_directory_closed_by_kafka_streams_has_no_findings(tmp_path, case):
    write_golden(tmp_path / owner(case), case)
    found = diagnose(tmp_path, owner(case), scan=True)
    assert (found.findings, found.exit_code) == ((), 0)


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_a_closed_directory_of_an_older_release_is_a_note(tmp_path, version):
    application = unpacked(tmp_path, version)
    found = diagnose(tmp_path, application, guarantee=EOS, scan=True)
    assert {one.code for one in found.findings} == {"older-release"}
    assert found.exit_code == 0
    assert diagnose(tmp_path, application, guarantee=EOS, release=RELEASES[version[:3]]).findings == ()


def test_a_store_of_this_library_is_well_open_and_closed(tmp_path):
    path = tmp_path / "app/0_0/rocksdb/s"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"a", b"1")
        store.commit({TopicPartition("app-s-changelog", 0): 7})
        assert codes(tmp_path) == {}
    assert codes(tmp_path, scan=True) == {}


# Bookkeeping


def test_a_store_that_was_not_closed_is_worse_under_exactly_once(tmp_path):
    plain(tmp_path, status=1)
    assert codes(tmp_path, guarantee=ALOS) == {"store-not-closed": WARNING}
    assert codes(tmp_path, guarantee=EOS) == {"store-not-closed": ERROR}
    assert codes(tmp_path) == {"store-not-closed": ERROR}
    assert diagnose(tmp_path, guarantee=ALOS).exit_code == 20
    assert diagnose(tmp_path, guarantee=EOS).exit_code == 21
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores="s: {kind: key-value}"))
    assert diagnose(tmp_path, spec=spec).exit_code == 20


@pytest.mark.parametrize(("rows", "at_least_once"), [(3, LOSS), (0, WARNING)])
def test_a_store_without_an_offset(tmp_path, rows, at_least_once):
    plain(tmp_path, offset=None, status=1, rows=rows)
    assert codes(tmp_path, guarantee=ALOS)["offset-missing"] is at_least_once
    assert codes(tmp_path, guarantee=EOS)["offset-missing"] is ERROR


def test_rows_at_minus_4_live_on_and_an_empty_store_is_right(tmp_path):
    plain(tmp_path, offset=-4)
    assert codes(tmp_path) == {"offset-unknown": LOSS}
    shutil.rmtree(tmp_path / "app")
    plain(tmp_path, offset=-4, rows=0)
    assert codes(tmp_path) == {}


@pytest.mark.parametrize(
    ("guarantee", "found"),
    [
        (EOS, {"store-not-closed": ERROR}),
        (ALOS, {"offset-unknown": LOSS, "store-not-closed": WARNING}),
        (None, {"offset-unknown": LOSS, "store-not-closed": ERROR}),
    ],
)
def test_rows_at_minus_4_are_wiped_with_a_store_that_was_not_closed(tmp_path, guarantee, found):
    plain(tmp_path, offset=-4, status=1)
    assert codes(tmp_path, guarantee=guarantee) == found
    if guarantee is EOS:  # transactional stores, of which one without them left the status
        assert codes(tmp_path, spec=declares(EOS)) == {"offset-unknown": LOSS, "store-not-closed": ERROR}


def test_global_stores(tmp_path):
    rows = [*offsets("products", 0, 5, 1), *offsets("products", 1, -4, None)]
    write_database(tmp_path / "app/global/rocksdb/g", {"default": [(b"k", b"v")], "offsets": rows})
    assert codes(tmp_path, guarantee=EOS) == {"global-offset-unknown": ERROR, "global-store-not-closed": ERROR}
    assert codes(tmp_path, guarantee=ALOS)["global-store-not-closed"] is WARNING
    repairs = {one.code: one.repair for one in diagnose(tmp_path).findings}
    assert repairs == {"global-offset-unknown": Repair.REBUILD, "global-store-not-closed": Repair.SET_STATUS}


def test_a_store_that_is_nowhere_else_is_lost_with_its_task(tmp_path):
    plain(tmp_path, store="u", offset=None)
    assert codes(tmp_path) == {"store-unlogged": NOTE}
    plain(tmp_path, status=1)
    assert codes(tmp_path, guarantee=EOS) == {"store-not-closed": ERROR, "store-unlogged": LOSS}
    assert codes(tmp_path, guarantee=ALOS) == {"store-not-closed": WARNING, "store-unlogged": NOTE}


def test_a_store_of_which_the_checkpoint_names_the_source_topic_is_not_called_unlogged(tmp_path):
    """A migration without a spec leaves the offset there, and Kafka Streams takes it over."""
    plain(tmp_path)
    plain(tmp_path, store="table", offset=None)
    (tmp_path / "app/0_0/.checkpoint").write_text("0\n1\nsome-topic 0 7\n")
    for guarantee in (ALOS, EOS):
        assert codes(tmp_path, guarantee=guarantee) == {}
    plain(tmp_path, store="u", offset=None)  # which of the two it is nobody knows
    assert codes(tmp_path) == {"store-unlogged": NOTE}
    shutil.rmtree(tmp_path / "app/0_0/rocksdb/u")
    (tmp_path / "app/0_0/.checkpoint").write_text("0\n1\napp-s-changelog 0 7\n")
    assert codes(tmp_path) == {"store-unlogged": NOTE}


# Segments


def test_segments_that_disagree(tmp_path):
    window(tmp_path, {600_000: (100, 1, 2), 900_000: (150, 1, 2)})
    found = diagnose(tmp_path, guarantee=ALOS)
    (one,) = [one for one in found.findings if one.code == "segments-disagree"]
    assert (one.severity, one.repair, str(one.partition)) == (LOSS, Repair.LOWER_OFFSETS, "app-w-changelog-0")
    assert one.evidence["offsets"] == {"100": ["w.600000"], "150": ["w.900000"]}
    # Exactly-once deletes the task, so nothing is lost.
    assert codes(tmp_path, guarantee=EOS)["segments-disagree"] is ERROR


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


# Transactional stores (KIP-892)


TRANSACTIONAL = SPEC + "transactional_state_stores: true\n"


def declares(guarantee):
    return read_spec(TRANSACTIONAL.format(guarantee=guarantee, stores="s: {kind: key-value}"))


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_transactional_stores_are_wiped_for_no_missing_offset(tmp_path, guarantee):
    plain(tmp_path, offset=None, status=None)
    assert codes(tmp_path, spec=declares(guarantee)) == {"offset-missing": LOSS}
    assert codes(tmp_path, spec=declares(guarantee), release=RELEASES["4.3"])["offset-missing"] is (
        ERROR if guarantee is EOS else LOSS
    )
    (one,) = diagnose(tmp_path, spec=declares(guarantee)).findings
    assert "wipes" not in one.what


@pytest.mark.parametrize(("guarantee", "severity"), [(ALOS, WARNING), (EOS, ERROR)])
def test_rows_of_an_older_release_without_an_offset_stay_in_transactional_stores(tmp_path, guarantee, severity):
    write_database(tmp_path / "app/0_0/rocksdb/s", {"default": [(b"a", b"1")]})
    assert codes(tmp_path, spec=declares(guarantee)) == {"older-release": severity}


def test_what_the_directory_shows_counts_where_there_is_no_spec(tmp_path):
    plain(tmp_path, status=None)
    plain(tmp_path, store="t", offset=None, status=None)
    window(tmp_path, {}, task="0_1")
    assert codes(tmp_path, guarantee=EOS) == {"offset-missing": LOSS, "segment-missing": NOTE}
    assert diagnose(tmp_path, guarantee=EOS).transactional
    assert codes(tmp_path, guarantee=EOS, release=RELEASES["4.3"]) == {
        "offset-missing": ERROR,
        "segment-missing": ERROR,
    }


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
def test_transactional_stores_that_the_spec_does_not_declare(tmp_path, guarantee):
    plain(tmp_path, status=None)
    spec = read_spec(SPEC.format(guarantee=guarantee, stores="s: {kind: key-value}"))
    (one,) = diagnose(tmp_path, spec=spec).findings
    assert (one.code, one.severity, one.repair) == ("transactional-undeclared", WARNING, None)
    assert one.evidence == {"stores": ["0_0 s"]}
    assert codes(tmp_path, spec=spec, tasks=["0_0"]) == {"transactional-undeclared": WARNING}
    assert codes(tmp_path, spec=spec, release=RELEASES["4.3"]) == {}, "it knows no such setting"
    assert codes(tmp_path, spec=declares(guarantee)) == {}


def test_stores_with_a_status_are_not_taken_for_transactional(tmp_path):
    plain(tmp_path)
    assert codes(tmp_path, spec=read_spec(SPEC.format(guarantee=EOS, stores="s: {kind: key-value}"))) == {}


def test_a_status_of_before_still_counts_under_exactly_once(tmp_path):
    plain(tmp_path, status=1)
    assert codes(tmp_path, spec=declares(EOS)) == {"store-not-closed": ERROR}
    assert codes(tmp_path, spec=declares(ALOS)) == {"store-not-closed": NOTE}


def test_a_transactional_store_that_is_not_logged_has_a_position_alone(tmp_path):
    plain(tmp_path, status=None)
    position = [(b"position", bytes(6))]
    write_database(tmp_path / "app/0_0/rocksdb/u", {"default": [(b"a", b"1")], "offsets": position})
    assert codes(tmp_path, guarantee=EOS) == {"store-unlogged": NOTE}
    plain(tmp_path, store="t", offset=None, status=None)
    found = {one.store: one.severity for one in diagnose(tmp_path, guarantee=EOS).findings}
    assert found["u"] is NOTE  # its task is not wiped for t


def test_a_segment_without_an_offset_beside_one_that_was_flushed_since_it_was_opened(tmp_path):
    window(tmp_path, {600_000: (150, None, 2), 900_000: (None, None, 0)})
    (one,) = [one for one in diagnose(tmp_path, guarantee=EOS).findings if one.code == "segments-disagree"]
    assert (one.severity, one.repair) == (LOSS, Repair.REBUILD)
    with edited(tmp_path / "app/0_0/w/w.600000"):
        pass
    assert codes(tmp_path, guarantee=EOS) == {}  # it was opened again, and what came since is restored


# Files with offsets


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


# Releases


def test_an_older_directory_without_its_checkpoint_is_restored_or_deleted(tmp_path):
    application = unpacked(tmp_path, "4.2.0")
    (tmp_path / application / "0_1/.checkpoint").unlink()
    assert codes(tmp_path, application, guarantee=ALOS) == {"older-release": WARNING}
    assert codes(tmp_path, application, guarantee=EOS) == {"older-release": ERROR}
    assert codes(tmp_path, application, guarantee=EOS, release=RELEASES["4.2"]) == {"offset-missing": ERROR}


def test_a_global_table_without_an_offset_is_restored_whatever_is_done(tmp_path):
    """As 3.9 leaves one with less than 10,000 records; a migration leaves it as well."""
    write_database(tmp_path / "app/global/rocksdb/products", {"default": [(b"a", b"1")]})
    (one,) = diagnose(tmp_path, guarantee=EOS).findings
    assert (one.code, one.severity, one.repair) == ("older-release", WARNING, Repair.REBUILD)
    assert "nothing has to" in one.what


def test_an_empty_store_at_minus_4_takes_its_task_with_it_at_the_upgrade(tmp_path):
    """Seen: 4.3.1 does not take -4 over, and under exactly-once deletes a task in which a store has no offset."""
    application = unpacked(tmp_path, "4.2.0")
    write_database(tmp_path / application / "0_1/rocksdb/empty", {"default": []})
    file = tmp_path / application / "0_1/.checkpoint"
    file.write_text(file.read_text().replace("\n2\n", f"\n3\n{application}-empty-changelog 1 -4\n"))
    assert codes(tmp_path, application, guarantee=ALOS) == {"older-release": NOTE}
    found = [one for one in diagnose(tmp_path, application, guarantee=EOS).findings if one.severity is ERROR]
    assert [(one.code, one.store) for one in found] == [("older-release", "empty")]
    assert codes(tmp_path, application, guarantee=EOS, release=RELEASES["4.2"]) == {}


def test_a_store_without_a_segment_is_harmless_to_older_releases(tmp_path):
    application = unpacked(tmp_path, "4.2.0")
    (tmp_path / application / "0_1/w").mkdir()
    assert codes(tmp_path, application, guarantee=EOS)["segment-missing"] is ERROR
    assert codes(tmp_path, application, guarantee=EOS, release=RELEASES["4.2"]) == {}


@pytest.mark.parametrize(
    ("made", "release", "said"),
    [
        ("4.2.0", "3.9", "reads no SST file of format 6, only up to 5"),
        ("headers-key-value", "4.2", "has no kind of store with the column family keyValueWithTimestampAndHeaders"),
        ("window", "4.2", "segments silently"),
        ("key-value", "3.9", "opens no database that has the column family offsets"),
    ],
)
def test_a_release_that_cannot_open_it(tmp_path, made, release, said):
    application = unpacked(tmp_path, made) if made[0].isdigit() else owner(made)
    if not made[0].isdigit():
        write_golden(tmp_path / application, made)
    found = diagnose(tmp_path, application, release=RELEASES[release]).findings
    assert {one.code for one in found} == {"release-cannot-open"}
    assert all(said in one.what for one in found)


def test_stores_of_two_releases_in_one_task(tmp_path):
    application = unpacked(tmp_path, "4.2.0")
    shutil.copytree(plain(tmp_path, task="0_1"), tmp_path / application / "0_1/rocksdb/new")
    shutil.rmtree(tmp_path / "app")
    assert codes(tmp_path, application)["half-migrated"] is WARNING  # its .checkpoint has the others
    (tmp_path / application / "0_1/.checkpoint").unlink()
    assert codes(tmp_path, application)["half-migrated"] is ERROR
    found = codes(tmp_path, application, release=RELEASES["4.2"])
    assert {"half-migrated", "release-cannot-open"} <= set(found)


# Column families


def test_column_families(tmp_path):
    plain(tmp_path, more={"foo": []})
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.severity, one.repair) == ("column-family-unknown", ERROR, Repair.DROP_FAMILY)
    assert one.evidence["families"] == ["foo"]
    shutil.rmtree(tmp_path / "app")
    plain(tmp_path, more={"foo": [(b"k", b"v")]})
    assert diagnose(tmp_path).findings[0].repair is Repair.REBUILD


def test_one_database_with_an_unknown_family_is_the_only_finding(tmp_path):
    plain(tmp_path, "0_0")
    plain(tmp_path, "0_1", more={"foo": []})
    assert [(one.code, one.task) for one in diagnose(tmp_path).findings] == [("column-family-unknown", "0_1")]


def test_a_database_without_the_family_of_its_rows_is_read_as_empty(tmp_path):
    rows = [(b"k", bytes(8) + b"v")]
    families = {"default": [], "keyValueWithTimestamp": rows, "offsets": offsets("app-s-changelog", 0, 3)}
    write_database(tmp_path / "app/0_0/rocksdb/s", families)
    write_database(tmp_path / "app/0_1/rocksdb/s", {"default": [], "offsets": offsets("app-s-changelog", 1, 3)})
    assert [(one.code, one.task) for one in diagnose(tmp_path).findings] == [("column-family-missing", "0_1")]


def test_rows_of_an_older_format_are_a_note(tmp_path):
    plain(tmp_path, more={"keyValueWithTimestamp": [(b"k", bytes(8) + b"v")]})
    assert codes(tmp_path) == {"older-rows": NOTE}
    (one,) = diagnose(tmp_path, scan=True).findings
    assert one.evidence["rows"] == 3


# Damage


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 255
    file.write_bytes(data)


def largest_sst(path):
    return max(path.glob("*.sst"), key=lambda file: file.stat().st_size)


def test_a_block_that_is_corrupt_is_found_by_a_scan(tmp_path):
    path = plain(tmp_path, rows=5000, status=1)
    plain(tmp_path, task="0_1")
    flip(largest_sst(path), largest_sst(path).stat().st_size // 2)
    assert codes(tmp_path, guarantee=ALOS) == {"store-not-closed": WARNING}
    # What is broken hides nothing of the same store, nor of others.
    assert codes(tmp_path, guarantee=ALOS, scan=True) == {"block-corrupt": LOSS, "store-not-closed": WARNING}


def spoil_manifest(path):
    flip(next(path.glob("MANIFEST*")), 20)


def lose_manifest(path):
    next(path.glob("MANIFEST*")).unlink()


def lose_rows(path):
    largest_sst(path).unlink()


def cut_rows(path):
    os.truncate(largest_sst(path), largest_sst(path).stat().st_size // 2)


def spoil_current(path):
    (path / "CURRENT").write_text("nothing\n")


def lose_current(path):
    (path / "CURRENT").unlink()


def cut_manifest(path):
    file = next(path.glob("MANIFEST*"))
    os.truncate(file, file.stat().st_size - 5)


def empty_manifest(path):
    """As if it had lost all that came after its beginning."""
    os.truncate(next(path.glob("MANIFEST*")), 60)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (spoil_manifest, "database-unreadable"),
        (lose_manifest, "file-missing"),
        (lose_rows, "file-missing"),
        (cut_rows, "database-unreadable"),
        (spoil_current, "database-unreadable"),
        (lose_current, "current-missing"),
        (cut_manifest, "manifest-truncated"),
    ],
)
def test_damage_has_its_code_and_hides_no_other_finding(tmp_path, spoil, code):
    spoil(plain(tmp_path, rows=2000))
    plain(tmp_path, task="0_1", status=1)
    found = {(one.task, one.code) for one in diagnose(tmp_path).findings}
    assert found == {("0_0", code), ("0_1", "store-not-closed")}
    assert diagnose(tmp_path).exit_code >= 21


def test_every_length_of_a_manifest_is_found_or_refused(tmp_path):
    """RocksDB opens some of them, without a word, as an older or an empty database."""
    whole = tmp_path / "whole"
    path = whole / "app/0_0/rocksdb/s"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True, settings=KEEP_FILES) as store:
        for offset in range(3):
            store.put(b"a%d" % offset, b"1")
            store.commit({TopicPartition("app-s-changelog", 0): offset})
            store.flush()
    (path / "statecore-witness").unlink()  # as of Kafka Streams
    assert codes(whole) == {}
    (manifest,) = path.glob("MANIFEST-*")
    data = manifest.read_bytes()
    between = {read_manifest(data[:length]).valid_bytes for length in range(len(data))}  # entries that are whole
    silent = []
    for length in sorted({*between, 5, len(data) // 2, len(data) - 1}):
        if length in between and read_manifest(data[:length]).files == read_manifest(data).files:
            continue  # what was cut off says nothing of rows: which log is behind
        copy = tmp_path / f"cut-{length}"
        shutil.copytree(whole, copy)
        os.truncate(copy / manifest.relative_to(whole), length)
        found = codes(copy)
        if not set(found) & {"manifest-truncated", "database-unreadable", "file-missing"}:
            silent.append((length, found))
    assert silent == []


def test_an_unreadable_database_is_neither_healthy_nor_damaged(tmp_path, monkeypatch):
    plain(tmp_path)
    plain(tmp_path, task="0_1", status=1)
    symlink = os.symlink

    def refused(file, link, *options):
        if "0_0" in str(file):
            raise PermissionError(13, os.strerror(13), str(file))
        symlink(file, link, *options)

    monkeypatch.setattr(os, "symlink", refused)
    found = diagnose(tmp_path, guarantee=ALOS)
    assert {(one.task, one.code) for one in found.findings} == {("0_0", "database-unseen"), ("0_1", "store-not-closed")}
    assert found.exit_code == 21


def test_files_that_were_kept_aside(tmp_path):
    path = plain(tmp_path)
    (path / "lost").mkdir()
    (path / "lost/000011.sst").write_bytes(b"")
    assert codes(tmp_path) == {"files-set-aside": WARNING}


def test_a_whole_file_that_a_kill_left_is_a_note(tmp_path):
    path = plain(tmp_path)
    shutil.copy(largest_sst(path), path / "000099.sst")
    (path / "000098.sst").write_bytes(b"half a file")
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.severity, one.evidence["unnamed"]) == ("manifest-truncated", NOTE, ["000099.sst"])


# What is declared


def test_the_spec_is_held_against_the_directory(tmp_path):
    plain(tmp_path)
    plain(tmp_path, task="0_1", store="only")
    plain(tmp_path, task="5_0", store="far")
    stores = "s: {kind: timestamped-key-value}, gone: {kind: key-value}, far: {kind: key-value}"
    spec = read_spec(SPEC.format(guarantee="exactly_once_v2", stores=stores))
    found = diagnose(tmp_path, spec=spec).findings
    assert {(one.code, one.task, one.store) for one in found} == {
        ("kind-mismatch", "0_0", "s"),
        ("store-absent", "0_0", "gone"),
        ("store-absent", "0_1", "gone"),
        ("store-absent", "0_1", "s"),
        ("store-absent", "0_0", "far"),
        ("store-absent", "0_1", "far"),
        ("store-undeclared", "", "only"),
        ("task-undeclared", "5_0", ""),
    }
    assert codes(tmp_path, spec=spec, tasks=["0_0"]) == {"kind-mismatch": LOSS}


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_custom_store_is_reported_only_without_an_offset(tmp_path, guarantee):
    task = plain(tmp_path).parent.parent
    for name in ("mine/rows", "mine/mine.60000/rows", "mine.db", "elsewhere/rows", "other"):
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text("rows")
    (task / ".checkpoint_mine").write_text("0\n1\napp-mine-changelog 0 7\n")
    stores = "s: {kind: key-value}, mine: {kind: custom}"
    spec = read_spec(SPEC.format(guarantee=guarantee, stores=stores))
    assert codes(tmp_path, spec=spec) == {"store-unread": NOTE}, "of the directory that is of no store's name"
    (task / ".checkpoint_mine").unlink()
    (one,) = (one for one in diagnose(tmp_path, spec=spec).findings if one.store == "mine")
    assert (one.code, one.repair) == ("offset-missing", None)
    assert one.severity is (ERROR if guarantee == "exactly_once_v2" else WARNING)


def test_a_store_of_tasks_that_are_not_here_is_nothing_to_rebuild_here(tmp_path):
    plain(tmp_path)
    spec = read_spec(
        "application_id: app\nbootstrap_servers: localhost:1\nprocessing_guarantee: exactly_once_v2\nsubtopologies:\n"
        "  0: {stores: {s: {kind: key-value}}}\n  1: {stores: {elsewhere: {kind: key-value}}}\n"
    )
    (one,) = diagnose(tmp_path, spec=spec).findings
    assert (one.code, one.store, one.severity, one.repair) == ("store-absent", "elsewhere", WARNING, None)


def test_an_undecided_kind_is_reported_once_and_never_as_missing(tmp_path):
    plain(tmp_path)
    many = ", ".join(f"m{number}: {{kind: '?'}}" for number in range(7))
    stores = f"s: {{kind: key-value}}, t: {{kind: key-value}}, {many}, n: {{kind: in-memory}}"
    spec = read_spec(SPEC.format(guarantee="exactly_once_v2", stores=stores), source="stores.yaml")
    found = {one.code: one for one in diagnose(tmp_path, spec=spec).findings}
    assert set(found) == {"kind-undecided", "store-absent"}
    assert found["store-absent"].store == "t"
    note = found["kind-undecided"]
    assert (note.severity, len(note.evidence["stores"])) == (NOTE, 7)
    assert all(said in note.what for said in ("stores.yaml", "7 stores", "m0, m1, m2, m3, m4 and 2 more"))


# What lies around


def test_cleaning_deletes_what_is_older_than_it_allows(tmp_path):
    plain(tmp_path)
    day = 86_400_000
    old = time.time() - 3 * 86_400
    os.utime(tmp_path / "app/0_0", (old, old))
    assert codes(tmp_path) == {}
    assert codes(tmp_path, cleanup_max_age_ms=7 * day) == {}
    assert codes(tmp_path, cleanup_max_age_ms=-1) == {}
    (one,) = diagnose(tmp_path, cleanup_max_age_ms=day).findings
    assert (one.code, one.repair) == ("cleaning-deletes", Repair.TOUCH)
    assert "changed 3d ago" in one.what


def test_files_of_others_are_named_and_ours_and_rocksdbs_are_not(tmp_path):
    path = plain(tmp_path)
    for name in ("rocksdict-config.json", "LOG", "LOCK", "000077.log", "statecore-witness"):
        (path / name).touch()
    (tmp_path / "app/0_0/notes.txt").touch()
    (tmp_path / "app/core.123").touch()
    (tmp_path / "app/.lock").touch()
    found = diagnose(tmp_path).findings
    assert {one.code for one in found} == {"foreign-file"}
    assert {one.task: one.evidence["files"] for one in found} == {
        "": ["core.123"],
        "0_0": ["notes.txt", "s/rocksdict-config.json"],
    }


def test_files_that_the_application_cannot_use(tmp_path):
    if os.geteuid():
        pytest.skip("only root gives files away")
    path = plain(tmp_path)
    for one in (tmp_path / "app").rglob("*"):
        os.chown(one, 1234, 1234)
        one.chmod(0o750 if one.is_dir() else 0o640)
    os.chown(tmp_path / "app", 1234, 1234)
    assert codes(tmp_path) == {}
    os.chown(path / "CURRENT", 0, 0)
    (one,) = diagnose(tmp_path).findings
    assert (one.code, one.evidence["paths"]) == ("rights", ["0_0/rocksdb/s/CURRENT"])
    assert ("root:root" in one.what, "-rw-r-----" in one.what) == (True, True)
    os.chown(path / "CURRENT", 0, 1234)  # its group may read it
    assert codes(tmp_path) == {}
    path.chmod(0o550)
    assert codes(tmp_path) == {"rights": ERROR}


def test_work_that_was_interrupted(tmp_path):
    plain(tmp_path)
    (tmp_path / "app/.statecore/plans").mkdir(parents=True)
    assert codes(tmp_path) == {}
    (tmp_path / "app/.statecore/placement-1/tasks").mkdir(parents=True)
    assert codes(tmp_path) == {"work-unfinished": WARNING}
    assert codes(tmp_path, tasks=["0_0"]) == {}


# While it runs


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


def test_the_normal_state_of_a_running_application_is_no_finding(tmp_path):
    plain(tmp_path, status=1)
    plain(tmp_path, status=1, store="new", offset=None)
    window(tmp_path, {600_000: (100, 1, 2), 900_000: (150, 1, 2)})
    checkpoint(tmp_path, ("app-s-changelog", 0, 3))
    assert {"segments-disagree", "store-not-closed", "offset-missing"} <= set(codes(tmp_path))
    with running(tmp_path) as process:
        found = diagnose(tmp_path)
        assert (found.findings, found.holder.process) == ((), process.pid)


# The diagnosis as a whole


def test_a_diagnosis_reports_its_coverage(tmp_path):
    plain(tmp_path)
    plain(tmp_path, task="0_1")
    window(tmp_path, {600_000: (7, 0, 2), 900_000: (7, 0, 2)})
    looked = diagnose(tmp_path).coverage
    assert (looked.tasks, looked.stores, looked.databases, looked.scanned) == (2, 2, 4, False)
    document = diagnose(tmp_path, scan=True, guarantee=EOS).to_json()
    assert (document["version"], document["application_id"], document["exit_code"]) == (1, "app", 0)
    assert (document["looked_at"]["scanned"], document["processing_guarantee"]) == (True, "exactly_once_v2")
    assert document["counts"] == {"loss": 0, "error": 0, "warning": 0, "note": 0}


def test_only_what_is_named_is_examined(tmp_path):
    plain(tmp_path, status=1)
    plain(tmp_path, task="0_1")
    assert codes(tmp_path, tasks=["0_1"]) == {}
    assert codes(tmp_path, stores=["s"]) == {"store-not-closed": ERROR}
    with raises(NotFound, "task-not-found", task="0_7"):
        diagnose(tmp_path, tasks=["0_7"])


def test_all_tasks_decide_whether_a_store_is_logged(tmp_path):
    plain(tmp_path, offset=None)
    plain(tmp_path, task="0_1")
    plain(tmp_path, offset=None, store="u")
    plain(tmp_path, offset=None, store="u", task="0_1")
    expected = {("offset-missing", "s"), ("store-unlogged", "u")}
    for tasks in ([], ["0_0"]):
        found = diagnose(tmp_path, tasks=tasks).findings
        assert {(one.code, one.store) for one in found} == expected


def test_the_brokers_are_asked_about_what_was_seen(tmp_path):
    plain(tmp_path, status=1)
    asked = []

    def topics(inspection):
        asked.extend((one.store, dict(one.offsets)) for one in inspection.stores)
        return [finding], ["nobody knows"]

    finding = diagnose(tmp_path).findings[0]
    found = diagnose(tmp_path, topics=topics)
    assert asked == [("s", {TopicPartition("app-s-changelog", 0): 7})]
    assert found.findings == (finding, finding)
    assert found.coverage.brokers
    assert found.undecided == ("nobody knows",)
