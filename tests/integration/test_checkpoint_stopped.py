"""Checkpoints that are stopped: killed at every point, beside one another, and without broker or object store.

Over a real S3 server, whose own log says what it was asked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.retries.standard import ExponentialBackoff

from bench.s3_request_log import RequestLog
from statecore.errors import Fenced, Retryable
from statecore.faults import CHECKPOINT_POINTS, PUBLISH_POINTS, VARIABLE
from statecore.jobs.planning.frozen_plan import request_name
from tests.harness import faulty_http, s3_server, topics
from tests.harness.broker import SOON_BACK, Broker
from tests.harness.case_selection import one_of
from tests.harness.fault_action import FaultAction
from tests.harness.s3_server import S3Server
from tests.harness.shop_application import Shop

pytestmark = pytest.mark.integration

AMONG = ("checkpoint.after-plan", "publish.after-head")
"""Some of all points."""


def url_of(server: S3Server, name: str, endpoint: str = "") -> str:
    found = server.bucket("checkpoints").below(name).url
    return found.replace(server.endpoint, endpoint) if endpoint else found


@pytest.fixture
def shop(broker: Broker, server: S3Server, tmp_path: Path) -> Shop:
    """One with a snapshot."""
    shop = Shop(broker.bootstrap_servers, tmp_path, partitions=1, url=url_of(server, tmp_path.name))
    shop.write()
    shop.checkpoint()
    return shop


def process(shop: Shop, request: str, fault: str = "", *words: str) -> subprocess.Popen[str]:
    """``statecore checkpoint`` of a shop."""
    spec = shop.scratch / "stores.yaml"
    spec.write_text(json.dumps(shop.spec))
    command = [sys.executable, "-m", "statecore.cli.main", "checkpoint", "--spec", str(spec), "--json"]
    command += ["--repository", shop.url, "--request-id", request, *words]
    environment = {**os.environ, **({VARIABLE: fault} if fault else {})}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files(shop: Shop) -> dict[str, float]:
    """When each blob with files was written."""
    names = shop.app_repository.names.root
    return {
        blob.name: blob.modified
        for blob in shop.app_repository.blobs.list(names)
        if blob.name.removeprefix(names).lstrip("/").startswith(("files/", "packs/"))
    }


def requests(shop: Shop) -> list[str]:
    return [entry.request_id for entry in shop.app_repository.head().snapshots if entry.origin == "checkpoint"]


@pytest.mark.parametrize(
    "points", [AMONG, pytest.param((*CHECKPOINT_POINTS, *PUBLISH_POINTS), marks=pytest.mark.full)], ids=["some", "all"]
)
def test_after_a_kill_at_any_point_a_retry_publishes_the_same_once_and_moves_no_byte_again(
    shop: Shop, server: S3Server, points: tuple[str, ...]
) -> None:
    for point in points:
        shop.write(40)
        ends = [topics.end_offset(shop.servers, topic, 0) for topic in shop.topics]
        killed = process(shop, point, f"{point}:kill")
        _, said = killed.communicate(timeout=1200)
        assert killed.returncode == -signal.SIGKILL, (point, said)
        shop.write(10)
        before = files(shop)
        asked = RequestLog(server.root / "server.log")
        report = shop.checkpoint(request_id=point, compact=False)
        has_published = point in ("publish.after-head", "checkpoint.after-publication")
        assert (asked.counts()["PUT"] == 0) == has_published
        assert report.published is not None
        assert report.published.earlier == has_published
        after = files(shop)
        assert {name: after[name] for name in before} == before
        if point != "checkpoint.after-plan":
            assert after == before, point
        assert requests(shop).count(request_name(point)) == 1
        there = shop.stores_there()
        found = [there[key].changelogs[0].end for key in (("0_0", "plain"), ("0_0", "clicks"), ("global", "names"))]
        assert found == ends, "as the plan had it, whatever was written since"
        again = shop.checkpoint(request_id=point)
        assert again.published is not None
        assert (again.published.snapshot, again.published.earlier) == (report.published.snapshot, True)
    shop.checkpoint()
    assert shop.fetched() == shop.restored()


def test_a_checkpoint_puts_plan_pack_task_manifests_manifest_and_head_only_for_changes(
    shop: Shop, server: S3Server
) -> None:
    asked = RequestLog(server.root / "server.log")
    assert shop.checkpoint().published is None
    counts = asked.counts()
    assert (counts["PUT"], counts["POST"], counts["LIST"]) == (0, 0, 0), counts
    shop.write(40)
    asked = RequestLog(server.root / "server.log")
    assert shop.checkpoint(compact=False).published is not None
    counts = asked.counts()
    assert (counts["PUT"], counts["POST"], counts["LIST"]) == (5, 0, 0), counts


def test_of_checkpoints_at_the_same_time_each_ends_well_or_is_fenced_and_nothing_is_lost(shop: Shop) -> None:
    shop.write(300)
    running = [process(shop, f"request-{number}") for number in range(2)]
    shop.write(60)
    running += [process(shop, "the same") for _ in range(2)]
    said = [one.communicate(timeout=1200) for one in running]
    codes = [one.returncode for one in running]
    assert set(codes) <= {0, Fenced.exit_code}, said
    assert 0 in codes
    assert 0 in codes[2:]
    names = requests(shop)
    assert len(names) == len(set(names))
    shop.checkpoint()
    assert shop.fetched() == shop.restored()


@pytest.mark.full
def test_a_broker_that_goes_away_before_the_tails_are_read_is_waited_for_by_a_retry(
    tmp_path: Path, server: S3Server
) -> None:
    with Broker(tmp_path / "broker", settings=SOON_BACK) as broker:
        shop = Shop.small(broker.bootstrap_servers, tmp_path, url=url_of(server, tmp_path.name))
        shop.write()
        shop.checkpoint()
        shop.write(40)
        with pytest.raises(Retryable):
            shop.checkpoint(request_id="r", timeout=1.0, faults=FaultAction("checkpoint.after-plan", broker.kill))
        assert len(shop.snapshots()) == 1
        with pytest.raises(Retryable):
            shop.checkpoint(request_id="r", timeout=1.0)
        broker.start()
        assert broker.bootstrap_servers == shop.servers
        report = shop.checkpoint(request_id="r")
        assert any("resumed" in note for note in report.notes)
        assert shop.fetched() == shop.restored()


@pytest.mark.parametrize("point", one_of(["publish.after-manifest", "checkpoint.after-plan"]))
def test_an_object_store_that_goes_away_is_waited_for_by_a_retry(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)  # each request is tried as often as ever
    with s3_server.serving() as server, faulty_http.before(server.endpoint) as proxy:
        shop = Shop.small(broker.bootstrap_servers, tmp_path, url=url_of(server, "away", proxy.endpoint))
        shop.write()
        shop.checkpoint()
        before = shop.snapshots()
        shop.write(40)
        with pytest.raises(Retryable):
            shop.checkpoint(request_id=point, faults=FaultAction(point, server.stop))
        server.start()
        proxy.target = urlsplit(server.endpoint)
        assert shop.snapshots() == before
        report = shop.checkpoint(request_id=point)
        assert any("resumed" in note for note in report.notes)
        assert len(shop.snapshots()) == len(before) + 1
        assert shop.fetched() == shop.restored()
