"""Random histories of stores of every kind, published and fetched: always what a rebuild and Kafka Streams make.

A campaign that fails is run again by its seed: ``pytest tests/integration/test_snapshot_campaign.py -k seed-17-``, with
``-m long`` from the fifth seed on. What it had done stands below its error. A seed takes about six minutes, so
``make test-long`` has as many as a night allows; ``STATECORE_SEEDS=300`` has those up to 299.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecore.jobs.fields.catalog import VersionedStart
from statecore.repository.repository import create_repository
from tests.harness.broker import Broker
from tests.harness.s3_server import S3Server
from tests.harness.snapshot_campaign import Campaign, replayable
from tests.harness.snapshot_steps import STEPS
from tests.harness.snapshot_validation import go_on, validate
from tests.harness.streams import StreamsJvm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

FEW, MANY = range(4), range(4, int(os.environ.get("STATECORE_SEEDS", "34")))


@pytest.fixture(scope="module")
def s3(server: S3Server) -> str:
    """The URL of an S3 repository."""
    url = server.bucket("campaigns").below("all").url
    create_repository(url)
    return url


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a repository in a directory."""
    url = tmp_path_factory.mktemp("repository").as_uri()
    create_repository(url)
    return url


def seed_of(seed: int) -> str:
    return f"seed-{seed}-"


def campaign(seed: int, rounds: int, broker: Broker, jvm: StreamsJvm, scratch: Path, urls: tuple[str, str]) -> None:
    made: list[Campaign] = []
    with replayable(seed, made):
        made.append(Campaign(seed, broker, jvm, scratch, urls[(seed + seed // 4) % 2]))
        made[0].live(rounds, STEPS)
        validate(made[0], VersionedStart.HISTORY if seed // 2 % 4 == 1 else VersionedStart.LATEST)
        go_on(made[0], opened=rounds > 2)


@pytest.mark.full
@pytest.mark.parametrize("seed", FEW, ids=seed_of)
def test_what_was_published_and_fetched_is_what_a_rebuild_and_kafka_streams_make(
    seed: int, broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, directory: str, s3: str
) -> None:
    campaign(seed, 2, broker, streams_jvm, tmp_path, (directory, s3))


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY, ids=seed_of)
def test_what_was_published_and_fetched_is_what_a_rebuild_and_kafka_streams_make_very_often(
    seed: int, broker: Broker, streams_jvm: StreamsJvm, tmp_path: Path, directory: str, s3: str
) -> None:
    campaign(seed, 5, broker, streams_jvm, tmp_path, (directory, s3))
