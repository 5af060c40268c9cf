"""Every error has a code of the table, of the kind that the table says, and the reference lists them all."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import statecore
from scripts.error_reference import PAGE, page
from statecore import errors
from statecore.error_codes import ERROR_CODES
from statecore.errors import KINDS, Invalid, StatecoreError, error_from_json

PACKAGE = Path(statecore.__file__).parent
KIND_NAMES = {*KINDS, StatecoreError.__name__}


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Each place where an error is made: where, the kind's name, the call."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KIND_NAMES:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node.func.id, node


def test_every_error_has_a_code_of_its_kind():
    wrong = []
    for where, kind, call in calls():
        code = next((one.value for one in call.keywords if one.arg == "code"), None)
        if code is None:
            wrong.append(f"{where}: {kind} has no code")
        elif isinstance(code, ast.Constant):
            known = ERROR_CODES.get(str(code.value))
            if known is None:
                wrong.append(f"{where}: {code.value} is not in the table")
            elif known[0] is not getattr(errors, kind):
                wrong.append(f"{where}: {code.value} is {known[0].__name__} in the table, not {kind}")
    assert wrong == []


def test_every_code_of_the_table_is_used():
    table = PACKAGE / "error_codes.py"
    strings = {
        node.value
        for path in PACKAGE.rglob("*.py")
        if path != table
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(ERROR_CODES) - strings == set()


@pytest.mark.parametrize("code", ERROR_CODES)
def test_a_code_is_words_with_dashes_and_means_one_sentence(code):
    kind, meaning = ERROR_CODES[code]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
    assert issubclass(kind, StatecoreError)
    assert re.fullmatch(r"[A-Z`].*\.", meaning)


def test_the_table_is_in_order():
    assert list(ERROR_CODES) == sorted(ERROR_CODES)


def test_the_reference_is_that_of_the_table():
    assert PAGE.read_text() == page()  # python -m scripts.error_reference


def test_an_error_keeps_its_code_in_json_pickle_and_other_words():
    error = Invalid("what", code="no-such-owner", action="do", task="0_1")
    for same in (pickle.loads(pickle.dumps(error)), error_from_json(error.to_json()), error.restated("what")):
        assert (type(same), same.what, same.code, same.action, same.context) == (
            Invalid,
            "what",
            "no-such-owner",
            "do",
            {"task": "0_1"},
        )


def test_words_of_another_keep_the_context_and_add_to_it():
    said = Invalid("what", code="no-such-owner", action="do", task="0_1").restated("other", action="else", store="s")
    assert (said.what, said.action, said.context) == ("other", "else", {"task": "0_1", "store": "s"})


def test_an_error_made_from_a_kind_is_of_that_kind():
    class Special(Invalid):
        """For code that catches it; machines and exit codes know the kind."""

    error = Special("what", code="test-error", action="do")
    assert error.to_json()["error"] == "Invalid"
    assert type(error.restated("other")) is Invalid


def test_an_error_of_an_older_report_has_no_code():
    said = {"error": "Invalid", "exit_code": 13, "what": "what", "action": "do", "context": {}}
    assert error_from_json(said).code == ""
