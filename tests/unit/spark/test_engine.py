"""What is known of Spark before it is started."""

from __future__ import annotations

import os

import pytest

from statecore.jobs.engine.processes import ProcessEngine
from statecore.spark.engine import SparkEngine
from statecore.spec.model import ApplicationSpec
from statecore.spec.reader import parse_spec


@pytest.fixture
def spec() -> ApplicationSpec:
    return parse_spec(
        {
            "application_id": "app",
            "bootstrap_servers": "nowhere:1",
            "processing_guarantee": "at_least_once",
            "subtopologies": {"0": {"stores": {"a": {"kind": "key-value"}}}},
        }
    )


@pytest.mark.parametrize(
    ("master", "batches"),
    [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("local[*]", os.cpu_count()), ("spark://a:7077", 1)],
)
def test_a_plan_is_split_for_the_threads_of_a_local_master(
    spec: ApplicationSpec, master: str, batches: int | None
) -> None:
    assert SparkEngine(master).expected(spec) == batches
    assert SparkEngine(conf={"spark.master": master}).expected(spec) == batches


def test_a_plan_is_split_for_the_number_of_processes(spec: ApplicationSpec) -> None:
    assert ProcessEngine(7).expected(spec) == 7
    assert ProcessEngine().expected(spec) >= 1


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (SparkEngine(), []),
        (SparkEngine("spark://a:7077", {"spark.authenticate.secret": "x"}), ["--master", "spark://a:7077"]),
    ],
)
def test_options_of_a_command_choose_the_engine_and_tell_no_secret(engine: SparkEngine, options: list[str]) -> None:
    assert engine.options == ("--engine", "spark", *options)
