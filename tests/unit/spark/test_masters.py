"""Masters: which is this process, which are the same, and one that is not there."""

from __future__ import annotations

import socket

import pytest

from statecore.errors import Invalid, Retryable
from statecore.spark.masters import REACH_SECONDS, is_local, reach_master, same_master
from tests.harness.broker import refusing_port
from tests.harness.raising import raises


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2, 4]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_local_is_what_runs_in_the_driver(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [
        ("spark://a:7077", "spark://a:7077", True),
        ("spark://a:7077", "spark://b:7077", False),
        ("spark://a:7077", "local[*]", False),
        ("k8s://https://a", "k8s://https://a:443", True),
        ("yarn", "yarn", True),
        ("yarn", "local[*]", False),
    ],
)
def test_a_master_that_spark_rewrites_is_the_same(asked: str, found: str, same: bool) -> None:
    assert same_master(asked, found) is same


@pytest.mark.parametrize("master", ["nonsense", "local[]", "local[two]", "local[2", "locally", "host:7077", ""])
def test_what_is_no_master_is_refused_before_a_jvm_is_started(master: str) -> None:
    with raises(Invalid, "spark-master-invalid", master=master) as caught:
        reach_master(master)
    assert "spark://host:7077" in caught.value.action


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[2, 4]", "local-cluster[2,1,1024]", "yarn", "k8s://https://a:443", "other://a"],
)
def test_masters_of_other_kinds_are_passed_to_spark(master: str) -> None:
    reach_master(master)


def test_one_of_several_masters_suffices() -> None:
    with refusing_port() as nobody, socket.create_server(("127.0.0.1", 0)) as one:
        reach_master(f"spark://127.0.0.1:{nobody},127.0.0.1:{one.getsockname()[1]}")


def test_a_master_that_is_not_there_is_one_sentence() -> None:
    with refusing_port() as nobody:
        with raises(Retryable, "spark-master-unreachable", master=f"spark://127.0.0.1:{nobody}"):
            reach_master(f"spark://127.0.0.1:{nobody}", 1.0)
    assert REACH_SECONDS < 10  # the start of a JVM comes on top


@pytest.mark.parametrize("master", ["spark://", "spark://a:b", "spark://a:0", "spark://a:7077,"])
def test_what_is_no_address_is_refused(master: str) -> None:
    with raises(Invalid, "spark-master-invalid", master=master):
        reach_master(master)
