"""Settings by Kafka Streams' names, and what a lag is."""

from __future__ import annotations

import pytest

from statecore.errors import Invalid
from statecore.standby.assignment.model import AssignmentSettings, Copy, Member
from tests.harness.raising import raises


def test_settings_have_kafka_streams_defaults_and_one_copy() -> None:
    assert AssignmentSettings() == AssignmentSettings(1, 10_000, 2, 600_000)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("num.standby.replicas", "replicas", 0),
        ("acceptable.recovery.lag", "recovery_lag", -1),
        ("max.warmup.replicas", "max_warmups", 0),
        ("probing.rebalance.interval.ms", "probing_interval_ms", 0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(name: str, field: str, value: int) -> None:
    with raises(Invalid, "setting-invalid", setting=name):
        AssignmentSettings(**{field: value})


def test_a_lag_is_what_is_missing_and_never_less_than_nothing() -> None:
    member = Member("a", "a", copies={"0_0": Copy(40), "0_1": Copy(120), "0_2": Copy(100)})
    assert [member.lag(f"0_{number}", 100) for number in range(4)] == [60, 0, 0, 100]
