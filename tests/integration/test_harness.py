"""The harness itself: a test that stands on a broken harness proves nothing."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.harness.broker import Broker

pytestmark = pytest.mark.integration


def test_the_broker_answers_and_can_be_found_by_another_process(broker: Broker) -> None:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10)
    assert len(metadata.brokers) == 1
    found = Broker.attach(broker.directory)
    assert found is not None
    assert (found.pid, found.bootstrap_servers) == (broker.pid, broker.bootstrap_servers)
