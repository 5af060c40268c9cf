"""Checkpoints of logs that are not what they were: which base is refused, why, and what becomes of the store.

Whatever is refused, what is published at the end is what a restore of the same log makes.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from statecore.changelog.reader import ReaderOptions
from statecore.errors import Invalid
from statecore.faults import FaultInjected, InjectedFault
from statecore.jobs.checkpoint.replaced_changelogs import PIN_NOTE
from statecore.jobs.checkpoint.request import WhenRefused
from statecore.jobs.checkpoint.run import run_checkpoint
from statecore.jobs.engine.in_process import InProcessEngine
from statecore.jobs.planning.plan import ReadPlan
from statecore.jobs.read_report import ReadReport
from statecore.words import WARNING
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.case_selection import one_of
from tests.harness.cluster import BrokerCluster
from tests.harness.fault_action import FaultAction
from tests.harness.raising import raises
from tests.harness.shop_application import PLAIN, Shop
from tests.harness.topics import Record

pytestmark = pytest.mark.integration

DAY, SHORT = "86400000", "100"
HELD_BACK = {**topics.COMPACTED, "min.cleanable.dirty.ratio": "1.0"}
"""Compacted only when the test says so."""
DELETABLE = {**topics.UNCLEANED, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
WHOLE = "No snapshot can be advanced for plain of task 0_0: whole changelogs are read."


def configure(shop: Shop, name: str, value: str) -> None:
    topics.configure(shop.servers, shop.changelog(), {name: value})
    # The controller has answered; the broker that is asked for it may learn of it a moment later.
    admin = AdminClient({"bootstrap.servers": shop.servers})
    asked = ConfigResource(ResourceType.TOPIC, shop.changelog())
    deadline = time.monotonic() + 300
    while admin.describe_configs([asked])[asked].result(120)[name].value != value:
        assert time.monotonic() < deadline, f"the broker has not learnt of {name}"
        time.sleep(0.05)


def compact(shop: Shop, broker: Broker, *, gone: str = "") -> None:
    """Compact what there is, until no record of this key is left."""
    configure(shop, "min.cleanable.dirty.ratio", "0.01")
    deadline = time.monotonic() + 300
    while True:
        filler = Record(b"filler", b"%d" % time.time_ns())
        topics.compact(shop.servers, shop.changelog(), 0, broker.data_directory, filler)
        left = {record.key for record in topics.read(shop.servers, shop.changelog(), 0)}
        if not gone or gone.encode() not in left:
            break
        assert time.monotonic() < deadline, "the broker kept the deletes"
    configure(shop, "min.cleanable.dirty.ratio", "1.0")


def advanced(report: ReadReport) -> tuple[str, int, int]:
    """Upon what the one store was put, and what was read of it."""
    (store,) = report.stores
    return store.base, store.start, store.end


def said_of(shop: Shop, **asked: Any) -> tuple[ReadReport, str]:
    """A checkpoint, and what it said."""
    lines: list[str] = []
    report = shop.checkpoint(say=lines.append, **asked)
    lines = [line for line in lines if "not advanced" in line]
    assert len(lines) == len(set(lines)), "everything is said once"
    return report, "\n".join(lines)


def test_deletes_that_were_compacted_away_refuse_every_snapshot_before_them(broker: Broker, tmp_path: Path) -> None:
    """There are as many snapshots as are tried, and more: in the end the log is read whole, and that is said."""
    shop = Shop.small(broker.bootstrap_servers, tmp_path, configs={**HELD_BACK, "delete.retention.ms": SHORT})
    for number in range(6):
        shop.put({f"gone-{number}": "row", "stays": str(number)})
        assert shop.checkpoint().published is not None
    snapshots = shop.snapshots()
    shop.put({"gone-0": None, "gone-1": None, "stays": "overwritten"})
    shop.put({"stays": "at last"})
    compact(shop, broker, gone="gone-0")
    before = shop.stores_there()
    with raises(Invalid, "advance-refused") as caught:
        shop.checkpoint(when_refused=WhenRefused.REFUSE)
    assert any(problem.get("removed") for problem in caught.value.context["problems"])
    assert shop.snapshots() == snapshots
    assert shop.stores_there() == before

    report, said = said_of(shop)
    assert advanced(report)[:2] == ("", topics.start_offset(shop.servers, shop.changelog(), 0))
    newest, others = said.splitlines()
    assert f"from {snapshots[0]}: compaction" in newest
    assert "delete.retention.ms (100ms)" in newest
    assert f"{', '.join(snapshots[1:4])} and 1 more" in others
    assert snapshots[0] in others
    assert WHOLE in report.notes
    assert shop.fetched() == shop.restored()
    assert {key for key, _ in shop.fetched().values()} == {6}, "the rows of four keys, the filler, and stays"

    shop.put({"more": "1"})
    report, _ = said_of(shop)
    assert advanced(report)[0] == shop.snapshots()[1], "and the next goes on from what was rebuilt"
    assert shop.fetched() == shop.restored()


def test_a_tail_that_was_compacted_is_enough_as_long_as_its_deletes_are_kept(broker: Broker, tmp_path: Path) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path, configs={**HELD_BACK, "delete.retention.ms": DAY})
    shop.put({"gone": "row", "stays": "1"})
    shop.checkpoint()
    (base,) = shop.snapshots()
    shop.put({"gone": None, "stays": "2"})
    shop.put({"stays": "3"})
    compact(shop, broker)
    report, said = said_of(shop)
    assert advanced(report) == (base, 2, topics.end_offset(shop.servers, shop.changelog(), 0))
    assert "not advanced" not in said
    assert shop.fetched() == shop.restored()
    assert [rows for rows, _ in shop.fetched().values()] == [2], "stays, and the filler"


def test_the_age_of_unconsumed_records_of_a_source_topic_is_unknown(broker: Broker, tmp_path: Path) -> None:
    """The delete lay in the topic when the base was made, and is older than it."""
    source = f"source-{time.time_ns()}"
    shop = Shop.small(
        broker.bootstrap_servers,
        tmp_path,
        stores={"plain": {**PLAIN, "changelog": source}},
        configs={**HELD_BACK, "delete.retention.ms": SHORT},
    )

    def consumed(upto: int) -> None:
        topics.commit(shop.servers, shop.application_id, {(source, 0): upto})

    shop.put({"gone": "row", "stays": "1", "other": "1"})
    shop.put({"gone": None})
    consumed(2)
    assert advanced(shop.checkpoint()) == ("", 0, 2)
    consumed(3)
    assert advanced(shop.checkpoint()) == (shop.snapshots()[1], 2, 3), "a tail that is whole is enough"
    assert shop.fetched() == shop.restored()

    consumed(2)
    newest, older = shop.snapshots()
    report, said = said_of(shop)
    assert f"from {newest}: it ends at 3 in {source}-0" in said
    assert advanced(report) == (older, 2, 2), "the group was set back, and so is what it starts from"
    assert shop.fetched() == shop.restored()
    consumed(3)
    shop.checkpoint()
    compact(shop, broker, gone="gone")
    configure(shop, "delete.retention.ms", DAY)
    consumed(topics.end_offset(shop.servers, source, 0))
    report, said = said_of(shop)
    assert advanced(report)[0] == ""
    assert "it is not known since when" in said
    assert shop.fetched() == shop.restored()


@pytest.mark.parametrize(
    "killed", one_of([pytest.param(True, id="at the second try"), pytest.param(False, id="at once")])
)
def test_a_topic_that_was_created_again_is_read_whole(broker: Broker, tmp_path: Path, killed: bool) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.put({f"key-{number}": "old" for number in range(10)})
    shop.checkpoint()
    topics.delete(shop.servers, shop.changelog())
    topics.create(shop.servers, shop.changelog(), 1, topics.UNCLEANED)
    shop.put({"other": "new"})
    for _ in range(2):
        with raises(Invalid, "advance-refused"):
            shop.checkpoint(request_id="refused", when_refused=WhenRefused.REFUSE)
    if killed:
        with pytest.raises(FaultInjected):
            shop.checkpoint(request_id="killed", faults=InjectedFault("checkpoint.after-plan"))
        with raises(Invalid, "advance-refused"):
            shop.checkpoint(request_id="killed", when_refused=WhenRefused.REFUSE)
        with pytest.raises(FaultInjected):
            shop.checkpoint(request_id="killed", faults=InjectedFault("checkpoint.after-plan"))
    report, said = said_of(shop, request_id="killed")
    assert advanced(report) == ("", 0, 1)
    assert "created again" in said
    assert any(note.startswith(WARNING) and "repo unpin" in note for note in report.notes)
    new, before = shop.app_repository.head().snapshots
    assert (new.pinned, before.pinned, before.note) == (False, True, f"{PIN_NOTE}plain")
    assert shop.fetched() == shop.restored()
    assert [rows for rows, _ in shop.fetched().values()] == [1]


def test_a_retry_replaces_the_plan_of_a_recreated_topic(broker: Broker, tmp_path: Path) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.put({"a": "1"})
    shop.checkpoint()
    shop.put({"b": "1"})
    with pytest.raises(FaultInjected):
        shop.checkpoint(request_id="killed", faults=InjectedFault("checkpoint.after-plan"))
    topics.delete(shop.servers, shop.changelog())
    topics.create(shop.servers, shop.changelog(), 1, topics.UNCLEANED)
    shop.put({"c": "1", "d": "1", "e": "1"})
    with raises(Invalid, "advance-refused"):
        shop.checkpoint(request_id="killed", when_refused=WhenRefused.REFUSE)
    report, said = said_of(shop, request_id="killed")
    assert "created again" in said
    assert advanced(report) == ("", 0, 3)
    assert shop.fetched() == shop.restored()


@pytest.mark.parametrize("when", one_of(["between plan and read", "before"]))
def test_a_base_is_refused_if_records_after_its_end_were_deleted(broker: Broker, tmp_path: Path, when: str) -> None:
    """Up to the base's end it may take what it likes."""
    shop = Shop.small(broker.bootstrap_servers, tmp_path, configs=DELETABLE)
    shop.put({"a": "1", "b": "1"})
    shop.checkpoint()
    topics.delete_records(shop.servers, shop.changelog(), 0, 2)
    shop.put({"a": "2", "c": "1", "d": "1"})
    report, said = said_of(shop)
    assert advanced(report)[1:] == (2, 5)
    assert "not advanced" not in said
    shop.put({"a": None, "e": "1"})

    def delete() -> None:
        topics.delete_records(shop.servers, shop.changelog(), 0, 6)

    base = shop.snapshots()[0]
    if when == "before":
        delete()
        report, said = said_of(shop)
    else:
        report, said = said_of(shop, faults=FaultAction("checkpoint.after-plan", delete))
    assert advanced(report) == ("", 6, 7)
    assert f"not advanced from {base}" in said
    assert f": {shop.changelog()}-0 beg" in said
    assert "at 6" in said
    assert WHOLE in report.notes
    assert shop.fetched() == shop.restored()


def test_a_base_is_refused_if_retention_removes_segments_of_its_tail_during_the_read(
    broker: Broker, tmp_path: Path
) -> None:
    configs = {**DELETABLE, "cleanup.policy": "delete", "segment.ms": "100"}
    shop, chance = Shop.small(broker.bootstrap_servers, tmp_path, configs=configs), random.Random(1)
    old = int(time.time() * 1000) - 3_600_000
    topics.produce(shop.servers, shop.changelog(), [Record(b"base", b"p", timestamp=old)])
    shop.checkpoint()
    (base,) = shop.snapshots()
    for number in range(10):  # a segment each
        stamp = old + 1000 * number if number < 7 else None
        records = [Record(b"%d" % n, chance.randbytes(300), timestamp=stamp) for n in range(200)]
        topics.produce(shop.servers, shop.changelog(), records, batch_size=4000)
    fetched = 0

    def options(**given: Any) -> ReaderOptions:
        return ReaderOptions(**{**given, "fetch_bytes": 20_000, "max_wait": 0.2})

    from statecore.images.runs import RunBuilder

    add = RunBuilder.add

    def slowly(builder: RunBuilder, batch: Any) -> None:
        nonlocal fetched
        fetched += 1
        if fetched == 1:
            configure(shop, "retention.ms", "1800000")
            BrokerCluster.wait_until(lambda: topics.start_offset(shop.servers, shop.changelog(), 0) == 1401)
        add(builder, batch)

    with patch("statecore.changelog.reader.ReaderOptions", options), patch.object(RunBuilder, "add", slowly):
        report, said = said_of(shop)
    assert fetched > 5
    assert f"{base}: {shop.changelog()}-0 began at 1401" in said
    assert advanced(report) == ("", 1401, 2001)
    assert shop.fetched() == shop.restored()


def test_a_log_that_lost_its_end_and_has_grown_again_is_advanced_from_before_that(tmp_path: Path) -> None:
    """Of two snapshots the newer one holds what the log has lost; the older one is sound."""
    with Broker(tmp_path / "broker") as broker:
        shop = Shop.small(broker.bootstrap_servers, tmp_path)
        shop.put({f"kept-{number}": "1" for number in range(100)})
        shop.checkpoint()
        log = broker.data_directory / f"{shop.changelog()}-0"
        broker.stop()
        shutil.copytree(log, tmp_path / "older")
        broker.start()
        shop.servers = broker.bootstrap_servers
        shop.put({f"lost-{number}": "1" for number in range(50)})
        shop.checkpoint()
        newer, older = shop.snapshots()
        shop.put({"planned": "1"})
        with pytest.raises(FaultInjected):
            shop.checkpoint(request_id="killed", faults=InjectedFault("checkpoint.after-plan"))

        broker.stop()
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "older", log)
        broker.start()
        shop.servers = broker.bootstrap_servers
        shop.put({f"other-{number}": "1" for number in range(70)})
        planned = run_checkpoint(shop.request(plan_only=True), InProcessEngine())
        assert isinstance(planned, ReadPlan)
        assert [(part.base, part.start, part.end) for part in planned.partitions] == [(older, 100, 170)]
        report, said = said_of(shop, request_id="killed", when_refused=WhenRefused.REFUSE)
        assert f"{shop.changelog()}-0 was truncated at 100" in said
        assert "the plan's end 151" in said
        assert f"from {newer}: {shop.changelog()}-0" in said
        assert advanced(report) == (older, 100, 170)
        assert shop.snapshots()[1:] == [newer, older]
        assert shop.fetched() == shop.restored()
        assert [rows for rows, _ in shop.fetched().values()] == [170]
