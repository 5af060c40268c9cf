"""The catalogue of findings, compared with what shows that its repairs are right."""

from __future__ import annotations

import ast
from pathlib import Path

from statecore.doctor.finding_catalog import CATALOG, Severity

INTEGRATION = Path(__file__).parents[2] / "integration"

NOT_SHOWN = {
    "foreign-file": "Kafka Streams ignores such files, and a repair moves none of them: it is a note.",
    "position-leftover": "4.3 merges it at every start, which changes nothing; a repair leaves it where it is: a note.",
}
"""Findings with a repair that no test of repairs shows to fail real Kafka Streams, and why not."""

SHOWN_ELSEWHERE = {"rows-after-checkpoint": "test_zero_action.py"}
"""Findings that another test shows to fail real Kafka Streams, and repairs by ``statecore repair``."""


def _constants(file: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_each_repairable_finding_has_a_test_with_kafka_streams() -> None:
    named = set().union(*map(_constants, INTEGRATION.glob("test_repair*.py"))) & set(CATALOG)
    named |= {code for code, file in SHOWN_ELSEWHERE.items() if {code, "repair"} <= _constants(INTEGRATION / file)}
    repaired = {kind.code for kind in CATALOG.values() if kind.repairs}
    assert sorted(repaired - named) == sorted(NOT_SHOWN)


def test_what_is_not_shown_is_a_note() -> None:
    assert {CATALOG[code].severity for code in NOT_SHOWN} == {Severity.NOTE}
