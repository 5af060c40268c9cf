"""What is declared of a store, and the topic that it is rebuilt from, are told by its task and its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import Invalid
from statecore.spec.model import ProcessingGuarantee
from statecore.spec.reader import read_spec
from statecore.statedir.store_places import (
    application_directory,
    changelog_at,
    changelog_owner,
    declared_at,
    guarantee_of,
)
from tests.harness.raising import raises

SPEC = read_spec(
    """\
application_id: app
bootstrap_servers: nowhere:1
processing_guarantee: at_least_once
subtopologies:
  "0":
    stores:
      clicks: {kind: key-value}
      usual: {kind: key-value}
      unlogged: {kind: key-value, changelog: none}
      undecided: {kind: key-value, changelog: "?"}
      source: {kind: key-value, changelog: orders}
global_stores:
  products: {kind: key-value, topic: products-topic}
"""
)


@pytest.mark.parametrize(
    ("task", "store", "topic"),
    [
        ("0_1", "clicks", "app-clicks-changelog"),
        ("0_0", "usual", "app-usual-changelog"),
        ("0_0", "unlogged", ""),
        ("0_0", "undecided", "app-undecided-changelog"),
        ("0_0", "source", "orders"),
        ("global", "products", "products-topic"),
        ("0_0", "undeclared", "app-undeclared-changelog"),
        ("global", "undeclared", ""),
    ],
)
def test_the_topic_of_a_store_is_that_of_its_own_declaration(task: str, store: str, topic: str) -> None:
    assert changelog_at("app", task, store, declared_at(SPEC, task, store)) == topic


@pytest.mark.parametrize(("task", "store"), [("global", "clicks"), ("0_0", "products"), ("global", "usual")])
def test_a_name_is_declared_where_it_is_declared_and_nowhere_else(task: str, store: str) -> None:
    assert declared_at(SPEC, task, store) is None
    assert declared_at(None, task, store) is None


def test_a_guarantee_that_contradicts_the_spec_is_refused_and_no_one_wins() -> None:
    at_least_once, exactly_once = ProcessingGuarantee.AT_LEAST_ONCE, ProcessingGuarantee.EXACTLY_ONCE_V2
    assert [guarantee_of(SPEC, None), guarantee_of(SPEC, at_least_once)] == [at_least_once] * 2
    assert [guarantee_of(None, None), guarantee_of(None, exactly_once)] == [None, exactly_once]
    with raises(Invalid, "guarantee-mismatch", application_id="app", expected="at_least_once", found="exactly_once_v2"):
        guarantee_of(SPEC, exactly_once)


def test_a_state_directory_that_this_user_may_not_enter_is_refused_and_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", denied)
    with raises(Invalid, "permission-denied"):
        application_directory(tmp_path, "orders")


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("sales-counts-changelog", ("sales", "counts")),
        ("sales-by-day-changelog", ("sales", "by-day")),  # and not the store day of sales-by
        ("orders-counts-changelog", None),
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
def test_the_owner_of_a_path_is_the_store_of_that_name(topic, said):
    assert changelog_owner(topic, "orders", ("counts", "day", "by-day")) == said


def test_the_longest_name_of_a_store_wins() -> None:
    assert changelog_owner("orders-north-counts-changelog", "orders", ("counts",)) == ("orders-north", "counts")
    assert changelog_owner("orders-north-counts-changelog", "orders", ("counts", "north-counts")) is None
