"""Systems that the tests of one module share, and clients of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statecore.changelog.cluster import Cluster
from tests.harness.broker import Broker
from tests.harness.s3_server import CREDENTIALS, S3Server, serving


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_servers, timeout=300) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """An S3 server; credentials are in the environment, as on any machine."""
    with serving() as running, pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def local_spark() -> Iterator[None]:
    """One Spark context for all tests of a module: starting one takes longer than most of them."""
    from statecore.spark.session import spark_context

    with spark_context("tests", "local[2]"):
        yield
