"""``statecore checkpoint`` from the command line: as a service, and where it is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from statecore.cli.main import main
from statecore.documents import encode_json
from statecore.errors import Corrupted, Fenced, Invalid, NotFound
from statecore.metrics import CHECKPOINT_SUCCESS, SNAPSHOT_READ_AT
from statecore.repository.head import HEAD
from statecore.repository.manifest import MANIFEST
from statecore.spec.model import CHECKPOINT_INTERVAL
from tests.harness.broker import SOON_BACK, Broker
from tests.harness.collector import Collector
from tests.harness.fault_action import FaultAction
from tests.harness.raising import code_said, raises
from tests.harness.shop_application import Shop

pytestmark = pytest.mark.integration


class Service:
    """``statecore checkpoint --follow --json`` of a shop, as a process."""

    def __init__(self, shop: Shop, *words: str, **environment: str) -> None:
        command = [sys.executable, "-m", "statecore.cli.main", "checkpoint", "--spec", spec_of(shop), "--json"]
        command += ["--repository", shop.url, "--follow", "--timeout", "3", *words]
        self._out, self._err = shop.scratch / "service.out", shop.scratch / "service.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **environment})

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The lines of stdout that are whole."""
        return [json.loads(line) for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    @property
    def said(self) -> str:
        """What it has said on stderr."""
        return self._err.read_text()

    @property
    def published(self) -> list[str]:
        """The snapshots that it has told of."""
        return [one["published"]["snapshot"] for one in self.reports if one.get("published")]

    def until(self, condition: Callable[[], bool], seconds: float = 300) -> None:
        """Wait until this is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, (self.process.returncode, self.said)
            assert time.monotonic() < deadline, self.said
            time.sleep(0.1)

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait(120)


def spec_of(shop: Shop, **more: Any) -> str:
    file = shop.scratch / "stores.yaml"
    file.write_text(json.dumps({**shop.spec, **more}))
    return str(file)


def test_a_service_checkpoints_at_its_interval_waits_for_brokers_and_ends_on_a_signal(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", settings=SOON_BACK) as broker:
        shop = Shop.small(broker.bootstrap_servers, tmp_path)
        shop.write(60)
        service = Service(shop, "--interval", "1s")
        try:
            for count in (1, 2, 3):
                service.until(lambda count=count: len(service.published) >= count)  # type: ignore[misc]
                shop.write(20)
            broker.kill()
            service.until(lambda: "The next attempt is in" in service.said)
            assert service.process.poll() is None
            broker.start()
            assert broker.bootstrap_servers == shop.servers
            count = len(service.published)
            shop.write(20)
            service.until(lambda: len(service.published) > count)
            service.until(lambda: [one["published"] for one in service.reports[-2:]] == [None, None])  # nothing is new
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(120) == 143
        finally:
            service.kill()
        *reports, last = service.reports
        assert (last["error"], last["exit_code"]) == ("Terminated", 143)
        assert len({one["request_id"] for one in reports}) == len(reports)
        assert service.published == [one for one in reversed(shop.snapshots()) if one in service.published]
        again = shop.checkpoint()
        assert again.published is None, (again.notes, again.stores, reports[-4:])
        assert shop.fetched() == shop.restored()


def test_metrics_distinguish_a_dead_service_from_an_idle_application(broker: Broker, tmp_path: Path) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)
    shop.write(60)
    began = time.time()
    with Collector() as collector:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "100"}
        service = Service(shop, "--interval", "1s", **environment)

        def told() -> tuple[float, float]:
            """When the last succeeded, and up to when the snapshot is complete; no time where nobody has said it."""
            tags = ("application-id", shop.application_id)
            return tuple(collector.last(one.name).get(tags, 0.0) for one in (CHECKPOINT_SUCCESS, SNAPSHOT_READ_AT))  # type: ignore[return-value]

        try:
            service.until(lambda: told()[1] > began)
            cut = shop.app_repository.head().snapshots[0].read_at_ms
            assert cut is not None
            service.until(lambda: service.reports[-1]["published"] is None)
            quiet = time.time()
            service.until(lambda: min(told()) > quiet)
            assert shop.app_repository.head().snapshots[0].read_at_ms == cut, "nothing was published for it"
            service.kill()
            last = told()
            assert began < last[1] <= last[0] <= time.time()
            # One by hand tells it, too: of what is new the moment that the snapshot says.
            shop.write(20)
            by_hand = [sys.executable, "-m", "statecore.cli.main", "checkpoint", "--spec", spec_of(shop)]
            by_hand += ["--repository", shop.url]
            subprocess.run(by_hand, check=True, capture_output=True, env={**os.environ, **environment})
            new = shop.app_repository.head().snapshots[0].read_at_ms
            assert new is not None
            assert told() == (pytest.approx(time.time(), abs=60), new / 1000)
            assert told()[0] > last[0]
        finally:
            service.kill()


@pytest.fixture(scope="module")
def shop(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One with two snapshots."""
    shop = Shop.small(broker.bootstrap_servers, tmp_path_factory.mktemp("shop"))
    for _ in range(2):
        shop.write(60)
        shop.checkpoint()
    return shop


def run(shop: Shop, *words: str, **spec: Any) -> int:
    return main(["checkpoint", "--spec", spec_of(shop, **spec), "--repository", shop.url, *words])


def everything(shop: Shop) -> dict[str, bytes]:
    root = place_of(shop)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def place_of(shop: Shop) -> Path:
    return Path(unquote(urlsplit(shop.url).path))


@pytest.mark.parametrize("interval", ["0", "0s", "-5m", "soon", "5", "", "1ms", "4000000d"])
def test_an_interval_that_is_none_is_refused(shop: Shop, interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(shop)
    with pytest.raises(SystemExit) as ended:
        run(shop, "--follow", f"--interval={interval}")
    assert ended.value.code == 2
    assert "is not an interval" in capsys.readouterr().err
    assert run(shop, "--follow", **{CHECKPOINT_INTERVAL: interval}) == Invalid.exit_code
    said = capsys.readouterr().err
    assert CHECKPOINT_INTERVAL in said or "expected milliseconds, or a duration" in said
    assert everything(shop) == before


def test_what_makes_no_sense_together_is_refused(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(shop)
    assert run(shop, "--interval", "5m") == 2
    assert run(shop, "--follow", "--plan") == 2
    assert run(shop, "--partition", "7") == Invalid.exit_code
    assert run(shop, "--store", "nobody's") in (Invalid.exit_code, NotFound.exit_code)
    with pytest.raises(SystemExit):
        run(shop, "--when-refused", "pray")
    assert everything(shop) == before
    capsys.readouterr()


def test_a_missing_repository_is_reported_and_not_created(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = shop.scratch / "nowhere"
    words = ["checkpoint", "--spec", spec_of(shop), "--repository", nowhere.as_uri()]
    assert main(words) == NotFound.exit_code
    assert main([*words, "--follow"]) == NotFound.exit_code
    assert code_said(capsys.readouterr().err) == "repository-not-found"
    assert not nowhere.exists()


def test_a_snapshot_of_a_newer_version_is_left_alone(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the head, the manifest and the task manifests; each has the checksums that its writer would have written."""
    shop.write(10)
    place, names = place_of(shop), shop.app_repository.names
    head = place / names.head
    good = head.read_bytes()
    document = json.loads(good)
    manifest = place / names.manifest(document["snapshots"][0]["snapshot"])
    whole = manifest.read_bytes()

    def refused() -> None:
        before = everything(shop)
        assert run(shop) == Invalid.exit_code
        assert code_said(capsys.readouterr().err) == "format-unsupported"
        assert everything(shop) == before

    head.write_bytes(encode_json(HEAD.sealed({**document, "version": 99})))
    refused()
    newer = encode_json(MANIFEST.sealed({**json.loads(whole), "version": 99}))
    manifest.chmod(0o644)
    manifest.write_bytes(newer)
    first = {**document["snapshots"][0], "sha256": sha256(newer).hexdigest()}
    head.write_bytes(encode_json(HEAD.sealed({**document, "snapshots": [first, *document["snapshots"][1:]]})))
    refused()
    manifest.write_bytes(whole)
    head.write_bytes(good)
    assert run(shop) == 0
    assert shop.fetched() == shop.restored()


def test_damage_of_the_newest_snapshot_is_reported_and_the_older_one_is_advanced(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write(10)
    older = shop.snapshots()[0]
    shop.checkpoint()
    newest = shop.app_repository.head().snapshots[0]
    extent = shop.app_repository.manifest(newest).value.task_manifests[0].extent
    blob = place_of(shop) / extent.blob
    good = blob.read_bytes()
    blob.chmod(0o644)
    at = extent.start + extent.bytes // 2
    blob.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    shop.write(10)
    before = everything(shop)
    assert run(shop) == Corrupted.exit_code
    assert "statecore repo repair-head" in capsys.readouterr().err
    assert everything(shop) == before
    words = ["--repository", shop.url, "--application-id", shop.application_id, "--apply"]
    assert main(["repo", "repair-head", *words]) == 0
    report = shop.checkpoint()
    assert [store.base for store in report.stores] == [older]
    assert shop.fetched() == shop.restored()
    capsys.readouterr()


def test_a_rolled_back_head_fences_running_jobs_and_is_the_base_of_the_next(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop.small(broker.bootstrap_servers, tmp_path)  # of its own: its head is damaged in the end
    for _ in range(2):
        shop.write(60)
        shop.checkpoint()
    head = place_of(shop) / shop.app_repository.names.head
    older = head.read_bytes()
    shop.write(20)
    shop.checkpoint()
    shop.write(20)
    before = shop.snapshots()

    def rolled_back() -> None:
        head.write_bytes(older)

    for point in ("checkpoint.after-runs", "publish.before-head"):
        newer = head.read_bytes()
        with raises(Fenced, "publication-conflict", reason="head-reverted"):
            shop.checkpoint(faults=FaultAction(point, rolled_back))
        assert head.read_bytes() == older, "nothing was published by halves"
        head.write_bytes(newer)
    rolled_back()
    assert shop.snapshots() == before[1:]
    assert run(shop) == 0
    assert shop.snapshots()[1:] == before[1:]
    assert shop.fetched() == shop.restored()
    head.write_bytes(older[: len(older) // 2])
    with pytest.raises(Corrupted):
        shop.checkpoint()
    assert head.read_bytes() == older[: len(older) // 2]
    capsys.readouterr()
