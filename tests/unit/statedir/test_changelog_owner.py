"""Whose changelog a topic is, by its name."""

from __future__ import annotations

import pytest

from statecore.statedir.changelog_owner import other_owner


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("sales-counts-changelog", ("sales", "counts")),
        ("sales-by-day-changelog", ("sales", "by-day")),  # and not the store day of sales-by
        ("orders-counts-changelog", None),
        ("orders-north-counts-changelog", None),  # of a named topology
        ("orders-by-day-changelog", None),
        ("orders-v2-counts-changelog", ("orders-v2", "counts")),
        ("orders-v2-by-day-changelog", ("orders-v2", "by-day")),
        ("ordersv2-counts-changelog", ("ordersv2", "counts")),
        ("orders-v2-other-changelog", None),
        ("sales-other-changelog", None),
        ("counts-changelog", None),
        ("-counts-changelog", None),
        ("sales", None),
    ],
)
def test_the_owner_is_told_by_the_name_of_a_store_that_is_there(topic, said):
    assert other_owner(topic, "orders", ("counts", "day", "by-day"), "north") == said


def test_a_topology_is_one_only_in_its_own_tasks():
    assert other_owner("orders-north-counts-changelog", "orders", ("counts",)) == ("orders-north", "counts")
    assert other_owner("orders-north-counts-changelog", "orders", ("counts",), "south") == ("orders-north", "counts")
    assert other_owner("orders-north-counts-changelog", "orders", ("counts", "north-counts")) is None
