"""The ``spark:`` section of a spec."""

from __future__ import annotations

import re

import pytest

from statecore.errors import Invalid
from statecore.spec.reader import read_spec
from statecore.spec.writer import spec_hash, spec_to_yaml

SPARK = """\
application_id: orders
bootstrap_servers: localhost:9092
processing_guarantee: exactly_once_v2
spark: {}
subtopologies: {{"0": {{stores: {{a: {{kind: key-value}}}}}}}}
"""


def test_spark_settings_are_read() -> None:
    text = SPARK.format(
        "{executor_python: /opt/python, executor_memory: 2g, executor_cores: 2, executor_archives: [/a.tar.gz#a], "
        "conf: {spark.cores.max: 8}}"
    )
    spec = read_spec(text)
    assert spec.spark.to_conf() == {
        "spark.cores.max": "8",
        "spark.pyspark.python": "/opt/python",
        "spark.executor.memory": "2g",
        "spark.executor.cores": "2",
        "spark.archives": "/a.tar.gz#a",
    }
    assert read_spec(spec_to_yaml(spec)).spark == spec.spark
    assert spec_hash(spec) == spec_hash(read_spec(SPARK.format("{}")))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[]", "a mapping of Spark settings"),
        ("{executor_pyhton: /x}", "did you mean 'executor_python'"),
        ("{executor_memory: much}", "an amount of memory"),
        ("{executor_memory: 2GiB}", "an amount of memory"),
        ("{executor_cores: 0}", "a number of cores"),
        ("{conf: {cores: 1}}", "'cores' is not a Spark property"),
        ("{conf: {spark.a: [1]}}", "expected one value"),
        ("{conf: {spark.master: yarn}}", "is set with --master"),
        ("{conf: 3}", "a mapping of Spark properties"),
    ],
)
def test_invalid_spark_settings_are_reported(section: str, words: str) -> None:
    with pytest.raises(Invalid, match=re.escape(words)):
        read_spec(SPARK.format(section))
