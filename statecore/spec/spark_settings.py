"""Spark settings of an application's jobs, given by a site, an application's spec or a single run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from statecore.errors import Invalid
from statecore.spec.tree import LIST, MAPPING, SCALAR, Node, Problems, suggestion

_PROPERTY = re.compile(r"spark\.[^\s=]+")

MEMORY_PATTERN = "^[1-9][0-9]*[kKmMgG]?$"
"""Memory in Spark's notation, which has no MiB; also used in JSON schemas."""

CONF_PATTERN = r"^spark\.[^\s=]+=.*$"
"""One Spark property as ``key=value``; also used in JSON schemas."""

REMOTE_PYTHON_PROPERTIES = ("spark.pyspark.python", "spark.archives")
"""Properties of the Python environment of executors on other hosts; local mode uses the driver's interpreter."""

_MASTER_PROPERTIES = ("spark.master", "spark.submit.deployMode")
"""Properties that choose where to run, which only the Spark connection or ``--master`` may set."""

_SECTION = {
    "conf": "",
    "executor_python": r"\S.*",
    "executor_memory": MEMORY_PATTERN.strip("^$"),
    "executor_cores": r"[1-9][0-9]{0,3}",
    "executor_archives": "",
}
_EXPECTED = {
    "executor_python": "the path of an interpreter on the executors' hosts",
    "executor_memory": "an amount of memory such as 2g",
    "executor_cores": "a number of cores",
}


@dataclass(frozen=True)
class SparkSettings:
    """Settings of one level. They contain no secrets: Spark shows its properties to all users of its UI.

    Attributes:
        conf: Spark properties by name (``spark.executor.memoryOverhead``, ``spark.cores.max``, ...).
        executor_python: path of the interpreter on the executors' hosts (``spark.pyspark.python``). Default: that of a
            packed environment, else the driver's path.
        executor_memory: memory of an executor's JVM, such as ``2g`` (``spark.executor.memory``). The records are in its
            Python workers: each takes about one memory budget on top.
        executor_cores: cores of an executor, and so its concurrent tasks (``spark.executor.cores``).
        executor_archives: packed environments to unpack on every executor, ``<path>#<name>`` (``spark.archives``).
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    executor_python: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    executor_archives: tuple[str, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """The settings that are set, by name: the ``spark:`` section of a spec."""
        fields = {**asdict(self), "conf": dict(self.conf), "executor_archives": list(self.executor_archives)}
        return {name: value for name, value in fields.items() if value}

    def to_conf(self) -> dict[str, str]:
        """The settings as Spark properties; the named ones override ``conf``."""
        named = {
            "spark.pyspark.python": self.executor_python,
            "spark.executor.memory": self.executor_memory,
            "spark.executor.cores": self.executor_cores,
            "spark.archives": ",".join(self.executor_archives),
        }
        return {**self.conf, **{name: str(value) for name, value in named.items() if value}}

    def local_cores(self, master: str | None, conf: Mapping[str, str]) -> int:
        """Cores that a local master would use, with more properties; 1 for a cluster, whose size is not known yet."""
        used = master or {**self.to_conf(), **conf}.get("spark.master") or "local[*]"
        local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", used)
        if local is None:
            return 1
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


def parse_properties(lines: Iterable[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, separator, value = line.strip().partition("=")
        if not separator or not _PROPERTY.fullmatch(name):
            raise Invalid(
                f"{line!r} is not a Spark property.",
                code="spark-property-invalid",
                action="Write spark.<name>=<value>, one property each.",
            )
        if name in _MASTER_PROPERTIES:
            raise Invalid(
                f"{name} cannot be set as a property of a job.",
                code="spark-property-invalid",
                action="Set it with --master, or in Airflow with the Spark connection.",
            )
        found[name] = value
    return found


def settings_from_params(values: Mapping[str, Any]) -> SparkSettings:
    """Settings from the parameters of a run: the fields by name, ``spark_conf`` as lines; empty ones are ignored."""
    return SparkSettings(
        conf=parse_properties(values.get("spark_conf") or ()),
        executor_python=values.get("executor_python") or None,
        executor_memory=values.get("executor_memory") or None,
        executor_cores=int(values["executor_cores"]) if values.get("executor_cores") else None,
        executor_archives=tuple(values.get("executor_archives") or ()),
    )


def read_spark_settings(node: Node, problems: Problems) -> SparkSettings:
    """Read the ``spark:`` section of a spec, recording problems."""
    fields: dict[str, Any] = {}
    if node.shape != MAPPING:
        problems.expected(node, "a mapping of Spark settings, such as {executor_python: /opt/statecore/bin/python}")
        return SparkSettings()
    for name, (key, value) in node.fields.items():
        if name not in _SECTION:
            problems.add(key, f"unknown Spark setting '{name}'{suggestion(name, _SECTION)}")
        elif name == "conf":
            fields[name] = _read_conf(value, problems)
        elif name == "executor_archives":
            archives = value.items if value.shape == LIST else [value]
            fields[name] = tuple(one.text for one in archives if one.text)
        elif value.shape != SCALAR or not re.fullmatch(_SECTION[name], value.text or ""):
            problems.expected(value, _EXPECTED[name])
        else:
            fields[name] = int(value.text or 0) if name == "executor_cores" else value.text
    return SparkSettings(**fields)


def _read_conf(node: Node, problems: Problems) -> dict[str, str]:
    if node.shape != MAPPING:
        problems.expected(node, "a mapping of Spark properties, such as {spark.cores.max: 8}")
        return {}
    for name, (key, value) in node.fields.items():
        if not _PROPERTY.fullmatch(name):
            problems.add(key, f"'{name}' is not a Spark property, expected spark.<name>")
        elif name in _MASTER_PROPERTIES:
            problems.add(key, f"'{name}' is set with --master, or in Airflow with the Spark connection")
        elif value.shape != SCALAR or value.text is None:
            problems.add(value, "expected one value")
    return {name: value.text for name, (_, value) in node.fields.items() if value.text is not None}
