"""The diagnosis of a directory as a whole: none for a healthy one, its coverage, and selections."""

from __future__ import annotations

import shutil

import pytest

from statecore.doctor import diagnosis
from statecore.doctor.findings import Finding
from statecore.doctor.repair_plan import restore_remedy
from statecore.errors import NotFound
from statecore.formats.kinds import StoreKind
from statecore.formats.releases import GLOBAL, RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import read_spec
from statecore.stores.rocksdb.store import RocksDBStore
from tests.harness.damage_functions import set_status
from tests.harness.raising import raises
from tests.unit.doctor.diagnosing import (
    ALOS,
    EOS,
    ERROR,
    LOSS,
    NOTE,
    SPEC,
    WARNING,
    checkpoint,
    codes,
    diagnose,
    plain,
    running,
    unpacked,
    window,
)
from tests.unit.doctor.stored import CASES, offsets, owner, write_database, write_golden


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


@pytest.mark.parametrize(("partitions", "missing"), [(1, set()), (3, {"offset-missing"}), (8, {"offset-missing"})])
def test_no_offset_is_missing_of_a_partition_that_the_topic_of_a_global_store_lacks(tmp_path, partitions, missing):
    """Kafka Streams 4.2 and 4.3 look for an offset of each partition of the topic, and ignore others."""
    said = [*offsets("prices", 0, 9), *offsets("prices", 7, 4)[:1]]
    write_database(tmp_path / "app/global/rocksdb/g", {"default": [(b"k", b"v")], "offsets": said})
    evidence = {"topic": "prices", "partitions": partitions}
    unknown = Finding("partition-unknown", "", WARNING, GLOBAL, "g", evidence=evidence)
    by_topics = [unknown] if partitions <= 7 else []
    found = diagnose(tmp_path, topics=lambda _: (by_topics, ())).findings
    assert {one.code for one in found} - {"partition-unknown"} == missing


def test_what_directory_and_topics_say_of_a_grace_buffer_is_said_once(tmp_path):
    write_golden(tmp_path / "app", "grace-buffer", renamed=True)
    set_status(tmp_path / "app/1_0/grace-Buffer/grace-Buffer.0", 1)
    behind = Finding("grace-buffer-miskeyed", "", LOSS, "1_0", "grace-Buffer")
    for guarantee, severity in ((EOS, ERROR), (ALOS, WARNING)):
        found = diagnose(tmp_path, guarantee=guarantee, topics=lambda _: ([behind], ())).findings
        assert [(one.code, one.severity) for one in found] == [
            ("grace-buffer-miskeyed", LOSS),
            ("store-not-closed", severity),
        ]


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_a_closed_directory_of_an_older_release_is_a_note(tmp_path, version):
    application = unpacked(tmp_path, version)
    found = diagnose(tmp_path, application, guarantee=EOS, scan=True)
    assert {one.code for one in found.findings} == {"older-release"}
    assert found.exit_code == 0
    assert diagnose(tmp_path, application, guarantee=EOS, release=RELEASES[version[:3]]).findings == ()


def test_a_store_that_was_copied_into_itself_is_an_emptied_one(tmp_path):
    path = plain(tmp_path)
    spec = read_spec(SPEC.format(guarantee=EOS, stores="s: {kind: key-value}"))
    path.rename(tmp_path / "moving")
    path.mkdir()
    (tmp_path / "moving").rename(path / "s")
    assert codes(tmp_path, spec=spec) == {"offset-missing": ERROR}
    plain(tmp_path, store="t")
    assert set(codes(tmp_path)) == {"offset-missing"}


def test_a_copy_in_the_place_of_a_store_with_segments_is_not_one(tmp_path):
    path = plain(tmp_path)
    shutil.copytree(path, tmp_path / "app/0_0/s")
    spec = read_spec(SPEC.format(guarantee=EOS, stores="s: {kind: key-value}"))
    assert not codes(tmp_path, spec=spec).keys() & {"segment-missing", "segment-stray"}
    (tmp_path / "app/0_0/rocksdb.old/s").mkdir(parents=True)
    assert "segment-stray" not in codes(tmp_path, spec=spec)


@pytest.mark.parametrize(("offsets", "expected"), [((150, 100), WARNING), ((100, 150), LOSS)])
def test_segments_that_disagree_lose_nothing_if_the_newest_is_behind(tmp_path, offsets, expected):
    window(tmp_path, {600_000: (offsets[0], 0, 2), 900_000: (offsets[1], 0, 2)})
    assert codes(tmp_path, guarantee=ALOS) == {"segments-disagree": expected}


def test_a_store_of_this_library_is_well_open_and_closed(tmp_path):
    path = tmp_path / "app/0_0/rocksdb/s"
    with RocksDBStore(path, StoreKind.KEY_VALUE, create=True) as store:
        store.put(b"a", b"1")
        store.commit({TopicPartition("app-s-changelog", 0): 7})
        assert codes(tmp_path) == {}
    assert codes(tmp_path, scan=True) == {}


def test_the_normal_state_of_a_running_application_is_no_finding(tmp_path):
    plain(tmp_path, status=1)
    plain(tmp_path, status=1, store="new", offset=None)
    window(tmp_path, {600_000: (100, 1, 2), 900_000: (150, 1, 2)})
    checkpoint(tmp_path, ("app-s-changelog", 0, 3))
    assert {"segments-disagree", "store-not-closed", "offset-missing"} <= set(codes(tmp_path))
    with running(tmp_path) as process:
        found = diagnose(tmp_path)
        assert (found.findings, found.holder.process) == ((), process.pid)


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


def test_a_check_that_fails_hides_no_other_finding(tmp_path, monkeypatch):
    def fails(store):
        raise KeyError(store.kind)

    monkeypatch.setattr(diagnosis, "check_families", fails)
    plain(tmp_path, status=1)
    plain(tmp_path, "0_1", status=1)
    found = {(one.code, one.task) for one in diagnose(tmp_path).findings}
    assert found == {(code, task) for code in ("check-failed", "store-not-closed") for task in ("0_0", "0_1")}
    failed = next(one for one in diagnose(tmp_path).findings if one.code == "check-failed")
    assert (failed.severity, failed.repair) == (ERROR, None)
    assert "in fails" in failed.evidence["trace"]


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
@pytest.mark.parametrize("damage", ["none", "unclosed", "unreadable", "checkpoint"])
def test_what_a_store_that_is_now_in_memory_has_left_is_only_a_warning(tmp_path, guarantee, damage):
    """Kafka Streams does not open it, so nothing about it matters; nor are its rows compared with a topic."""
    plain(tmp_path)
    left = plain(tmp_path, store="m", status=int(damage == "unclosed"))
    if damage == "unreadable":
        next(left.glob("MANIFEST-*")).unlink()
    if damage == "checkpoint":
        checkpoint(tmp_path, ("app-m-changelog", 0, 900))
    spec = read_spec(SPEC.format(guarantee=guarantee, stores="s: {kind: key-value}, m: {kind: in-memory}"))
    asked = []

    def topics(inspection):
        asked.extend(one.store for one in inspection.stores)
        return (), ()

    found = diagnose(tmp_path, spec=spec, topics=topics)
    (one,) = found.findings
    assert (one.code, one.severity, one.store, one.repair) == ("kind-mismatch", WARNING, "m", None)
    assert "move the directory away" in one.remedy
    assert restore_remedy(one, None) == ""
    assert asked == ["s"]
