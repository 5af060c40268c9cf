"""Offsets and status inside stores: missing, unknown, not closed, or of another partition."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from statecore.doctor.checks.context import CheckContext
from statecore.doctor.checks.offsets import check_offsets
from statecore.doctor.finding_catalog import Repair
from statecore.doctor.inspection import DatabaseView, StoreView, TaskView
from statecore.doctor.repair_plan import plan_repairs
from statecore.formats.kinds import StoreKind
from statecore.formats.offsets import offset_key
from statecore.formats.releases import RELEASES
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.reader import read_spec
from statecore.statedir.known_files import OffsetFileContent
from tests.golden.directories import names as golden_names
from tests.golden.directories import unpacked
from tests.harness.case_selection import one_of
from tests.harness.damage_cases import WINDOWS
from tests.harness.damage_functions import drop_family, put, segments_of, set_status
from tests.harness.fleet import NEWEST as NEWEST_RELEASE
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
    declares,
    diagnose,
    plain,
    window,
)
from tests.unit.doctor.golden import examined, worse
from tests.unit.doctor.stored import offsets, write_database, write_golden


@pytest.mark.parametrize("name", golden_names(moment="clean", release=NEWEST_RELEASE))
@pytest.mark.parametrize("segment", one_of([0, -1]))
def test_a_segment_of_another_partition_among_the_stores_own_is_a_loss(tmp_path, name, segment):
    application = unpacked(name, tmp_path)
    own = segments_of(application, WINDOWS, "0_0")[segment]
    shutil.rmtree(own)
    shutil.copytree(application / "0_1" / WINDOWS / own.name, own)
    seen = examined(application, name)
    assert worse(seen) == {("offset-foreign", "loss", "0_0", WINDOWS)}
    assert [one.tasks for one in plan_repairs(seen.findings, seen.stores).rebuilds] == [("0_0",)]


PLAIN, BUFFER, OWN = StoreKind.KEY_VALUE, StoreKind.GRACE_BUFFER, TopicPartition("app-s-changelog", 0)


@pytest.mark.parametrize(
    ("kind", "own_file", "task_file", "is_missing"),
    [
        (BUFFER, {OWN: 7}, {}, False),
        (BUFFER, {}, {OWN: 7}, False),
        (BUFFER, {}, {OWN: -4}, True),
        (PLAIN, {}, {OWN: 7}, False),
        (PLAIN, {}, {TopicPartition(OWN.topic, 1): 7}, True),
        (PLAIN, {OWN: 7}, {}, True),
    ],
)
def test_an_offset_counts_only_in_the_file_that_a_start_reads(kind, own_file, task_file, is_missing):
    database = DatabaseView("s", None, None, {}, 0, 3, 100, ("default", "offsets"))
    store = StoreView("0_0", "s", kind, "", kind is BUFFER, (database,), own_file)
    files = {"s": OffsetFileContent(own_file)} if own_file else {}
    task = TaskView("0_0", OffsetFileContent(task_file, bool(task_file)), files)
    found = check_offsets(store, task, CheckContext("app"))
    assert [one.code for one in found] == (["offset-missing"] if is_missing else [])


@pytest.mark.parametrize(
    ("kind", "own_file", "task_file", "found"),
    [
        (BUFFER, {OWN: -4}, {}, ["offset-unknown"]),
        (BUFFER, {OWN: -4}, {OWN: -4}, ["offset-unknown"]),
        (BUFFER, {OWN: -4}, {OWN: 7}, []),
        (BUFFER, {OWN: -4}, {TopicPartition("app-t-changelog", 0): 7}, ["offset-unknown"]),
        (BUFFER, {OWN: 7}, {OWN: -4}, []),
    ],
)
def test_an_unknown_offset_of_a_buffer_is_overruled_by_the_checkpoint_file(kind, own_file, task_file, found):
    database = DatabaseView("s", None, None, {}, 0, 3, 100, ("default", "offsets"))
    store = StoreView("0_0", "s", kind, "", True, (database,), own_file)
    task = TaskView("0_0", OffsetFileContent(task_file, bool(task_file)), {"s": OffsetFileContent(own_file)})
    assert [one.code for one in check_offsets(store, task, CheckContext("app"))] == found


@pytest.mark.parametrize(("rows", "severity"), [(3, LOSS), (0, WARNING)])
def test_a_global_store_without_an_offset_of_one_partition(tmp_path, rows, severity):
    """Kafka Streams writes the offsets of all partitions at once, 0 for an empty one."""
    families = {"default": [(b"k%d" % row, b"v") for row in range(rows)], "offsets": offsets("prices", 2, 9)}
    write_database(tmp_path / "app/global/rocksdb/g", families)
    (one,) = diagnose(tmp_path, guarantee=EOS).findings
    assert (one.code, one.severity, one.task, one.store) == ("offset-missing", severity, "global", "g")
    assert (one.repair, one.evidence["partitions"]) == (Repair.REBUILD, ["prices-0", "prices-1"])
    checkpoint(tmp_path, ("prices", 0, 0), ("prices", 1, 7), ("prices", 2, 9), task="global")
    assert "offset-missing" not in codes(tmp_path, guarantee=EOS)


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
@pytest.mark.parametrize(
    ("offset", "rows", "found"),
    [
        (-4, 3, {"offset-unknown": LOSS}),
        (-1, 3, {"offset-unknown": LOSS}),
        (-1, 0, {}),
        (-2, 3, {"offset-invalid": ERROR}),
        (-7, 0, {"offset-invalid": ERROR}),
    ],
)
def test_a_negative_offset(tmp_path, offset, rows, found, guarantee):
    """Kafka Streams 4.4.0 starts with -4 and -1, and fails with every other one."""
    plain(tmp_path, offset=offset, rows=rows)
    assert codes(tmp_path, guarantee=guarantee) == found


@pytest.mark.parametrize(
    ("statuses", "lost"), [((0, 0, 1), {"0_0", "0_1"}), ((0, 1, 0), {"0_0", "0_1"}), ((1, 0, 0), {"0_0"})]
)
def test_an_open_segment_after_a_closed_one_costs_every_task(tmp_path, statuses, lost):
    """Kafka Streams 4.3.1 and 4.4.0 end with the first of them open, and delete all tasks."""
    window(tmp_path, {at * 300_000: (7, status, 3) for at, status in enumerate(statuses)})
    for task in ("0_0", "0_1"):
        plain(tmp_path, task=task, offset=None, store="unlogged")
        plain(tmp_path, task=task)

    def deleted(guarantee):
        found = diagnose(tmp_path, guarantee=guarantee).findings
        return {one.task for one in found if (one.code, one.severity) == ("store-unlogged", LOSS)}

    assert deleted(EOS) == lost
    assert deleted(ALOS) == set()


@pytest.mark.parametrize("offset", [-1, -4, -7])
def test_a_negative_offset_in_a_global_store(tmp_path, offset):
    write_database(tmp_path / "app/global/rocksdb/g", {"default": [], "offsets": offsets("prices", 0, offset)})
    assert codes(tmp_path, guarantee=EOS) == {"global-offset-unknown": ERROR}


def test_an_unknown_offset_of_a_global_store_in_the_file_of_an_older_release(tmp_path):
    """Kafka Streams 4.2.0 seeks to it; newer releases take no -4 from the file."""
    write_database(tmp_path / "app/global/rocksdb/g", {"default": [(b"k", b"v")]})
    checkpoint(tmp_path, ("prices", 0, -4), ("prices", 1, 7), task="global")
    for release, found in (("4.2", {"global-offset-unknown": ERROR}), (NEWEST_RELEASE, {})):
        seen = diagnose(tmp_path, release=RELEASES[release]).findings
        assert {one.code: one.severity for one in seen if one.severity is not NOTE} == found, release


@pytest.mark.parametrize("offset", [-1, -7])
def test_a_negative_offset_in_checkpoint_counts_as_none(tmp_path, offset):
    plain(tmp_path)
    checkpoint(tmp_path, ("app-s-changelog", 0, offset))
    assert codes(tmp_path, guarantee=EOS) == {}, "the store's own counts"
    drop_family(tmp_path / "app/0_0/rocksdb/s", "offsets")
    assert codes(tmp_path, guarantee=EOS) == {"older-release": ERROR}


def test_a_grace_buffer_that_was_not_closed_is_rebuilt_at_least_once_too(tmp_path):
    """Kafka Streams restores the records after the last flush under wrong keys."""
    write_golden(tmp_path / "app", "grace-buffer", renamed=True)
    assert codes(tmp_path, guarantee=ALOS) == {}
    set_status(tmp_path / "app/1_0/grace-Buffer/grace-Buffer.0", 1)
    (found,) = diagnose(tmp_path, guarantee=ALOS).findings
    assert (found.code, found.severity, found.repair) == ("store-not-closed", WARNING, Repair.REBUILD)


@pytest.mark.parametrize(
    ("topic", "partition", "found"),
    [("app-s-changelog", 1, {"offset-foreign": NOTE}), ("app-former-changelog", 0, {}), ("other", 1, {})],
)
def test_an_offset_of_another_task_beside_the_own_one_is_a_note(tmp_path, topic, partition, found):
    """A start on exchanged tasks leaves it, and rows of both; alone it proves nothing."""
    path = plain(tmp_path)
    put(path, "offsets", offset_key(TopicPartition(topic, partition)), (11).to_bytes(8))
    assert codes(tmp_path, guarantee=ALOS) == found
    assert codes(tmp_path, guarantee=EOS) == {}, "its task would have been wiped"


def test_a_store_that_was_not_closed_is_worse_under_exactly_once(tmp_path):
    plain(tmp_path, status=1)
    assert codes(tmp_path, guarantee=ALOS) == {"store-not-closed": WARNING}
    assert codes(tmp_path, guarantee=EOS) == {"store-not-closed": ERROR}
    assert codes(tmp_path) == {"store-not-closed": ERROR}
    assert diagnose(tmp_path, guarantee=ALOS).exit_code == 20
    assert diagnose(tmp_path, guarantee=EOS).exit_code == 21
    spec = read_spec(SPEC.format(guarantee="at_least_once", stores="s: {kind: key-value}"))
    assert diagnose(tmp_path, spec=spec).exit_code == 20


def test_a_copy_whose_standby_died_is_to_be_followed_once_more(tmp_path):
    killed = (
        "import os, sys; from pathlib import Path; from statecore.stores.rocksdb.store import RocksDBStore; "
        "from statecore.formats.kinds import StoreKind; from statecore.formats.topic_partition import TopicPartition; "
        "store = RocksDBStore(Path(sys.argv[1]), StoreKind.KEY_VALUE); store.open(); "
        "store.commit({TopicPartition('app-s-changelog', 0): 9}); os._exit(9)"
    )
    path = plain(tmp_path)
    subprocess.run([sys.executable, "-c", killed, path], check=False)
    assert (path / "rocksdict-config.json").exists()
    (one,) = diagnose(tmp_path, guarantee=EOS).findings
    assert (one.code, one.repair) == ("store-not-closed", Repair.REBUILD)
    logs = tmp_path / "app/.statecore/standby/0_0/logs.json"
    logs.parent.mkdir(parents=True)
    logs.touch()
    (one,) = diagnose(tmp_path, guarantee=EOS).findings
    assert (one.code, one.severity, one.repair) == ("store-not-closed", ERROR, None)
    assert "standby --once" in one.remedy
    shutil.rmtree(path)
    plain(tmp_path, status=1)  # the application has run on the copy since
    (one,) = diagnose(tmp_path, guarantee=EOS).findings
    assert one.repair is Repair.REBUILD


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


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
@pytest.mark.parametrize("in_file", [-4, 9])
@pytest.mark.parametrize("inside", [-4, 7])
@pytest.mark.parametrize(("kind", "prefix"), [("key-value", b""), ("versioned-key-value", b"\xff" * 8)])
def test_an_offset_that_a_store_has_from_before_it_was_unlogged_is_no_finding(
    tmp_path, guarantee, in_file, inside, kind, prefix
):
    write_database(
        tmp_path / "app/0_0/rocksdb/s",
        {
            "default": [(prefix + b"key", (1_700_000_000_000).to_bytes(8) + b"value")],
            "offsets": offsets("app-s-changelog", 0, inside, 0),
        },
    )
    checkpoint(tmp_path, ("app-s-changelog", 0, in_file))
    stores = f"s: {{kind: {kind}, changelog: none}}"
    assert codes(tmp_path, spec=read_spec(SPEC.format(guarantee=guarantee, stores=stores))) == {"store-unlogged": NOTE}


def test_a_store_of_which_the_checkpoint_names_the_source_topic_is_not_called_unlogged(tmp_path):
    """A migration without a spec leaves the offset there, and Kafka Streams takes it over."""
    plain(tmp_path)
    plain(tmp_path, store="table", offset=None)
    (tmp_path / "app/0_0/.checkpoint").write_text("0\n1\nsome-topic 0 7\n")
    for guarantee in (ALOS, EOS):
        assert codes(tmp_path, guarantee=guarantee) == {}
    plain(tmp_path, store="u", offset=None)  # which of the two is unknown
    assert codes(tmp_path) == {"store-unlogged": NOTE}
    shutil.rmtree(tmp_path / "app/0_0/rocksdb/u")
    (tmp_path / "app/0_0/.checkpoint").write_text("0\n1\napp-s-changelog 0 7\n")
    assert codes(tmp_path) == {"store-unlogged": NOTE}


@pytest.mark.parametrize("declared", [True, False])
def test_stores_of_one_task_that_were_exchanged(tmp_path, declared):
    """The changelog in each one's offset is named after the other one."""
    counts, table = plain(tmp_path, store="counts"), plain(tmp_path, store="b-counts")
    spec = read_spec(SPEC.format(guarantee=ALOS, stores="counts: {kind: key-value}, b-counts: {kind: key-value}"))
    how = {"spec": spec} if declared else {"guarantee": ALOS}
    assert codes(tmp_path, **how) == {}
    table.rename(tmp_path / "moved")
    counts.rename(table)
    (tmp_path / "moved").rename(counts)
    found = diagnose(tmp_path, **how).findings
    assert [(one.code, one.store, one.severity) for one in found] == [
        ("offset-foreign", "b-counts", LOSS),
        ("offset-foreign", "counts", LOSS),
    ]
