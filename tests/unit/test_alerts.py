"""The alert rules of the documentation: well-formed, and about metrics that exist, by Prometheus's names for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from statecore.metrics import CHECKPOINT_CHECKED, CHECKPOINT_INTERVAL, CHECKPOINT_SUCCESS, Instrument
from tests.harness.instruments import INSTRUMENTS

DOCUMENT = yaml.safe_load((Path(__file__).parents[2] / "docs" / "examples" / "alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in DOCUMENT["groups"] for rule in group["rules"]]
UNITS = {"s": "_seconds", "ms": "_milliseconds", "By": "_bytes"}
WORDS = {"by", "max", "time", "max_over_time", "last_over_time", "absent_over_time", "application_id"}


def name_of(instrument: Instrument) -> str:
    """The name that Prometheus gives it."""
    return instrument.name.replace("-", "_") + UNITS.get(instrument.unit, "")


def named(expression: str) -> set[str]:
    """The metrics of an expression."""
    text = re.sub(r"\[\d+[smhdw]\]|\b\d+\b", " ", expression)
    assert not re.sub(r"[a-z_()\s<>*-]+", "", text), "not a token of PromQL that is used here"
    return set(re.findall(r"[a-z_]+", text)) - WORDS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_rule_is_one_of_prometheus_and_names_metrics_that_exist(rule: dict[str, Any]) -> None:
    assert DOCUMENT.keys() == {"groups"}
    assert {"alert", "expr"} <= rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    assert named(rule["expr"])
    assert named(rule["expr"]) <= {name_of(instrument) for instrument in INSTRUMENTS}


def test_the_age_of_a_snapshot_is_compared_with_its_interval() -> None:
    late, unchecked, *_ = RULES
    assert named(late["expr"]) == {name_of(CHECKPOINT_SUCCESS), name_of(CHECKPOINT_INTERVAL)}
    assert named(unchecked["expr"]) == {name_of(CHECKPOINT_CHECKED)}
