from __future__ import annotations

import pytest

from statecore.errors import Invalid
from statecore.spec.model import ProcessingGuarantee
from statecore.stores.in_memory import InMemoryStore
from statecore.stores.settings import StoreSettings
from statecore.tasks.commit_policy import CommitPolicy, CommitSettings
from tests.harness.manual_clock import ManualClock


def test_a_commit_is_due_when_the_interval_has_elapsed_since_the_last() -> None:
    clock = ManualClock()
    policy = CommitPolicy(CommitSettings(interval_ms=1_500), clock=clock)
    assert not policy.due()
    clock.now += 1.499
    assert not policy.due()
    clock.now += 0.002
    assert policy.due()
    assert policy.due()
    policy.committed()
    assert not policy.due()


def test_a_commit_is_due_on_demand_once() -> None:
    policy = CommitPolicy(CommitSettings(), clock=ManualClock())
    policy.request()
    assert policy.due()
    policy.committed()
    assert not policy.due()


def test_a_commit_is_due_when_a_store_or_the_stores_together_have_staged_too_much() -> None:
    limited = StoreSettings(uncommitted_max_bytes=2_000)
    with InMemoryStore(settings=limited) as one, InMemoryStore(settings=limited) as other:
        policy = CommitPolicy(CommitSettings(uncommitted_max_bytes=3_000), [one, other], ManualClock())
        one.put(b"a", bytes(1_500))
        assert not policy.due()
        other.put(b"a", bytes(1_500))
        assert policy.due()
        other.abort()
        assert not policy.due()
        one.put(b"b", bytes(1_500))
        assert CommitPolicy(CommitSettings(uncommitted_max_bytes=-1), [one], ManualClock()).due()


def test_an_interval_of_zero_is_a_commit_in_every_round() -> None:
    assert CommitPolicy(CommitSettings(interval_ms=0), clock=ManualClock()).due()


def test_defaults_are_those_of_kafka_streams() -> None:
    assert CommitSettings().interval_ms == 30_000
    for guarantee, interval in (
        (ProcessingGuarantee.AT_LEAST_ONCE, 30_000),
        (ProcessingGuarantee.EXACTLY_ONCE_V2, 100),
    ):
        assert CommitSettings.from_properties({}, guarantee) == CommitSettings(interval)


@pytest.mark.parametrize("name", ["commit.interval.ms", "statestore.uncommitted.max.bytes", "max.block.ms"])
@pytest.mark.parametrize("value", [-2, "-2", "soon", "", "1_000", 1.5, True, "٣"])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(Invalid, match=name):
        CommitSettings.from_properties({name: value}, ProcessingGuarantee.AT_LEAST_ONCE)


def test_how_long_brokers_are_waited_for_has_the_producers_name_with_or_without_its_prefix() -> None:
    def settings(**given: object) -> CommitSettings:
        properties = {name.replace("_", "."): value for name, value in given.items()}
        return CommitSettings.from_properties(properties, ProcessingGuarantee.AT_LEAST_ONCE)

    assert settings().max_block_ms == 60_000
    assert settings(max_block_ms="500").max_block_ms == 500
    assert settings(max_block_ms=500, producer_max_block_ms=700).max_block_ms == 700
    with pytest.raises(Invalid, match=r"max\.block\.ms"):
        settings(max_block_ms=0)
