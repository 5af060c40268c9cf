from __future__ import annotations

import pytest

from statecore.errors import Invalid
from statecore.spec.model import DEFAULT_CHECKPOINT_INTERVAL_MS
from statecore.spec.reader import parse_spec, read_spec
from statecore.spec.writer import spec_hash, spec_to_mapping, spec_to_yaml

NAME = "statestore.checkpoint.interval.ms"
GOOD = """\
application_id: orders
bootstrap_servers: localhost:9092
processing_guarantee: at_least_once
subtopologies: {"0": {stores: {plain: {kind: key-value}}}}
"""


@pytest.mark.parametrize(
    ("said", "milliseconds"),
    [
        ("300000", 300_000),
        ("5m", 300_000),
        ("90s", 90_000),
        ("1000", 1_000),
        ("1500ms", 1_500),
        ("365d", 31_536_000_000),
    ],
)
def test_the_interval_is_milliseconds_or_a_duration(said: str, milliseconds: int) -> None:
    spec = read_spec(f"{GOOD}{NAME}: {said}\n")
    assert spec.checkpoint_interval_ms == milliseconds
    assert parse_spec(spec_to_mapping(spec)).checkpoint_interval_ms == milliseconds
    assert read_spec(spec_to_yaml(spec)).checkpoint_interval_ms == milliseconds


def test_without_one_it_is_five_minutes() -> None:
    assert read_spec(GOOD).checkpoint_interval_ms == DEFAULT_CHECKPOINT_INTERVAL_MS == 300_000
    assert NAME not in spec_to_yaml(read_spec(GOOD))


@pytest.mark.parametrize(
    "said",
    [
        "0",
        "0s",
        "-1",
        "-5m",
        "soon",
        "1.5",
        "''",
        "[5m]",
        "5 minutes",
        "null",
        "9999999999999999",
        "5",
        "1ms",
        "999",
        "366d",
    ],
)
def test_what_is_no_time_between_two_checkpoints_is_refused_with_its_line(said: str) -> None:
    with pytest.raises(Invalid, match="from 1s to 365d") as caught:
        read_spec(f"{GOOD}{NAME}: {said}\n", source="stores.yaml")
    (problem,) = caught.value.context["problems"]
    assert problem.startswith(f"stores.yaml:5:{len(NAME) + 3}: {NAME}: ")


def test_the_interval_is_not_in_the_digest_of_the_spec() -> None:
    assert spec_hash(read_spec(f"{GOOD}{NAME}: 1m\n")) == spec_hash(read_spec(GOOD))
    assert read_spec(f"{GOOD}{NAME}: 1m\n") == read_spec(GOOD)


def test_nor_are_its_brokers_addresses() -> None:
    moved = GOOD.replace("localhost:9092", "elsewhere:9092")
    assert spec_hash(read_spec(moved)) == spec_hash(read_spec(GOOD))
