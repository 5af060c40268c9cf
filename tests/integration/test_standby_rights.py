"""The documented ACLs suffice for a standby at a broker that requires ACLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from statecore.errors import Invalid
from statecore.standby.promote.request import PromoteRequest
from statecore.standby.promote.run import run_promote
from statecore.standby.report import StandbyReport
from statecore.standby.request import StandbyRequest
from statecore.standby.service import run_standby
from tests.harness import topics
from tests.harness.broker import Broker
from tests.harness.raising import raises
from tests.harness.topics import Record

USER, PASSWORD = "warm", "secret"
APPLICATION, FLEET = "orders", "orders-warm"
CHANGELOG, SOURCE = f"{APPLICATION}-counts-changelog", "customers"
PAGE = (Path(__file__).resolve().parents[2] / "docs/standby.md").read_text()

Grant = tuple[ResourceType, str, AclOperation]
OPERATIONS = {
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
}


def rights() -> list[Grant]:
    """What the page's table says."""
    table = PAGE[PAGE.index("| the user needs, of Kafka |") :].split("\n\n")[0]
    on_topics, on_application, on_fleet = (
        [OPERATIONS[word] for word in re.findall(r"`(\w+)`", line.split("|")[1])] for line in table.splitlines()[2:]
    )
    return [
        *((ResourceType.TOPIC, topic, right) for topic in (CHANGELOG, SOURCE) for right in on_topics),
        *((ResourceType.GROUP, APPLICATION, right) for right in on_application),
        *((ResourceType.GROUP, FLEET, right) for right in on_fleet),
    ]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that asks for rights; over its plain listener everybody may do everything."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.warm.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.warm.plain.sasl.jaas.config": f'{plain} user_{USER}="{PASSWORD}";',
    }
    directory = tmp_path_factory.mktemp("guarded")
    with Broker(directory, settings=settings, listeners={"WARM": "SASL_PLAINTEXT"}) as broker:
        for topic in (CHANGELOG, SOURCE):
            topics.create(broker.bootstrap_servers, topic, 1, topics.UNCLEANED)
            topics.produce(broker.bootstrap_servers, topic, [Record(b"key-%d" % n, b"value") for n in range(20)])
        topics.commit(broker.bootstrap_servers, APPLICATION, {(SOURCE, 0): 20})
        yield broker


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARM_PASSWORD", PASSWORD)


def grant(broker: Broker, granted: Iterable[Grant]) -> None:
    """The user has these rights and no others."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for done in admin.delete_acls([every]).values():
        done.result(20)
    made = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", right, AclPermissionType.ALLOW)
        for kind, name, right in granted
    ]
    for added in admin.create_acls(made).values():
        added.result(20)


def spec_of(broker: Broker) -> dict[str, Any]:
    stores = {"counts": {"kind": "key-value"}, "customers": {"kind": "key-value", "changelog": SOURCE}}
    return {
        "application_id": APPLICATION,
        "bootstrap_servers": broker.address("WARM"),
        "processing_guarantee": "at_least_once",
        "kafka": {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": USER,
            "sasl_plain_password": "${WARM_PASSWORD}",
        },
        "subtopologies": {"0": {"stores": stores}},
    }


def kept(broker: Broker, warm: Path) -> StandbyReport:
    """A member of a fleet that ends when its copies are caught up, or a task failed."""
    stop = Event()

    def told(now: StandbyReport) -> None:
        if now.tasks and all(task.lag == 0 or task.exit_code for task in now.tasks):
            stop.set()

    deadline = Timer(180, stop.set)
    deadline.start()
    try:
        request = StandbyRequest(spec=spec_of(broker), state_dir=str(warm), group=FLEET, interval=200, timeout=10)
        return run_standby(request, stop, on_report=told)
    finally:
        deadline.cancel()


def test_the_documented_acls_suffice_for_a_group_member_and_a_promotion(guarded: Broker, tmp_path: Path) -> None:
    grant(guarded, rights())
    (task,) = kept(guarded, tmp_path / "warm").tasks
    assert (task.lag, task.exit_code) == (0, 0)
    assert {store.store: store.offset for store in task.stores} == {"counts": 19, "customers": 19}
    grant(guarded, [one for one in rights() if one[2] is not AclOperation.READ])
    live = str(tmp_path / "live")
    over = PromoteRequest(spec=spec_of(guarded), standby_dir=str(tmp_path / "warm"), state_dir=live, timeout=10)
    report = run_promote(over)
    assert report.exit_code == 0, report


@pytest.mark.parametrize("missing", [one for one in rights() if one[1] != SOURCE], ids=str)
def test_without_one_of_them_it_is_refused_or_its_task_is(guarded: Broker, tmp_path: Path, missing: Grant) -> None:
    implied = AclOperation.READ if missing[2] is AclOperation.DESCRIBE else None  # who may read may describe
    grant(guarded, [one for one in rights() if one[:2] != missing[:2] or one[2] not in (missing[2], implied)])
    if missing == (ResourceType.TOPIC, CHANGELOG, AclOperation.READ):
        (task,) = kept(guarded, tmp_path / "warm").tasks
        assert task.exit_code == Invalid.exit_code
        assert [store.store for store in task.stores if store.error] == ["counts"]
        return
    of_group = missing[0] is ResourceType.GROUP
    code, context = ("group", {"group": missing[1]}) if of_group else ("topic", {"topics": [missing[1]]})
    right = next(word for word, operation in OPERATIONS.items() if operation is missing[2])
    with raises(Invalid, f"{code}-authorization-failed", right=right, **context):
        kept(guarded, tmp_path / "warm")
