"""Settings by Kafka Streams' names, and what a lag is."""

from __future__ import annotations

import pytest

from statecore.errors import Invalid
from statecore.standby.assignment.model import AssignmentSettings, Copy, Member, Role


def test_settings_have_kafka_streams_names_and_defaults() -> None:
    assert AssignmentSettings.from_properties({}) == AssignmentSettings(1, 10_000, 2, 600_000)
    assert AssignmentSettings.from_properties(
        {
            "num.standby.replicas": "2",
            "acceptable.recovery.lag": 5,
            "max.warmup.replicas": "7",
            "probing.rebalance.interval.ms": "60000",
            "application.id": "shop",
        }
    ) == AssignmentSettings(2, 5, 7, 60_000)


def test_a_fleet_of_standbys_has_a_copy_of_each_task_also_where_the_application_has_none() -> None:
    assert AssignmentSettings.from_properties({"num.standby.replicas": "0"}).replicas == 1
    assert AssignmentSettings.from_properties({}, with_active=True).replicas == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.standby.replicas", "-1"),
        ("num.standby.replicas", "two"),
        ("acceptable.recovery.lag", "-1"),
        ("max.warmup.replicas", "0"),
        ("probing.rebalance.interval.ms", "0"),
        ("probing.rebalance.interval.ms", True),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=name.replace(".", r"\.")):
        AssignmentSettings.from_properties({name: value})


def test_a_lag_is_what_is_missing_and_never_less_than_nothing() -> None:
    member = Member("a", "a", copies={"0_0": Copy(40), "0_1": Copy(120), "0_2": Copy(0, Role.ACTIVE)})
    assert [member.lag(f"0_{number}", 100) for number in range(4)] == [60, 0, 0, 100]
