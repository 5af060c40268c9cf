"""Every code of a reason is found in the source, and has a row in the reference.

Errors are looked at by ``test_error_codes.py``. Here it is what takes a code beside them: value classes with a field
``code: str``, functions of a module with such a parameter, and what is declared as an instance of a class that is
called with one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import statecore
from scripts.error_reference import page
from statecore.doctor.finding_catalog import CATALOG
from statecore.error_codes import ERROR_CODES, REASON_CODES
from statecore.errors import Reason

PACKAGE = Path(statecore.__file__).parent
REASON = Reason.__name__
FINDINGS = ("doctor/",)
"""Where findings are made, whose codes have pages of their own (``docs/findings``)."""


def is_code(name: str, annotation: ast.expr | None) -> bool:
    return name == "code" and isinstance(annotation, ast.Name) and annotation.id == "str"


def classes_with_code(modules: dict[str, ast.Module]) -> dict[str, int]:
    """Value classes and the place of their code."""
    found = {REASON: 1}
    for one in (one for module in modules.values() for one in ast.walk(module) if isinstance(one, ast.ClassDef)):
        fields = [line for line in one.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]
        for place, field in enumerate(fields):
            if is_code(field.target.id, field.annotation):
                found.setdefault(one.name, place)
    return found


def functions_with_code(module: ast.Module) -> dict[str, int]:
    """Functions of a module and the place of their code."""
    found, called = {}, {}
    for scope in ast.walk(module):
        for function in ast.iter_child_nodes(scope):
            if not isinstance(function, ast.FunctionDef):
                continue
            parameters = [one for one in function.args.args if one.arg not in ("self", "cls")]
            for place, one in enumerate(parameters):
                if is_code(one.arg, one.annotation) and function.name == "__call__":
                    called[scope.name] = place
                elif is_code(one.arg, one.annotation) and not function.name.startswith("__"):
                    found[function.name] = place
    for one in ast.walk(module):
        if isinstance(one, ast.arg) and isinstance(one.annotation, ast.Name) and one.annotation.id in called:
            found[one.arg] = called[one.annotation.id]
    return found


def codes(modules: dict[str, ast.Module]) -> Iterator[tuple[str, str, ast.expr]]:
    """Where a code is given, what is called, and the expression; that of a reason without one is the empty text."""
    classes = classes_with_code(modules)
    for name, module in modules.items():
        places = {**functions_with_code(module), **classes}
        for call in (one for one in ast.walk(module) if isinstance(one, ast.Call)):
            callee = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if callee not in places:
                continue
            given = [one.value for one in call.keywords if one.arg == "code"]
            if not any(isinstance(one, ast.Starred) for one in call.args[: places[callee] + 1]):
                given += call.args[places[callee] : places[callee] + 1]
            if not given and callee == REASON:
                given.append(ast.Constant(""))
            yield from ((f"{name}:{call.lineno}", callee, one) for one in given)


def is_passed_on(code: ast.expr) -> bool:
    """Whether it is the code of something else, or a parameter: these have got it where this looks, too."""
    named = code.func if isinstance(code, ast.Call) else code
    return (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")).strip("_") == "code"


def constants(code: ast.expr) -> list[str] | None:
    """What an expression may come to; ``None`` where that cannot be told."""
    if isinstance(code, ast.IfExp):
        parts = [constants(code.body), constants(code.orelse)]
        return None if None in parts else [one for part in parts for one in part]
    return [code.value] if isinstance(code, ast.Constant) else None


def looked_at(modules: dict[str, ast.Module]) -> tuple[set[str], list[str]]:
    """The codes of all calls, and what is wrong with them."""
    found: set[str] = set()
    wrong = []
    for where, callee, code in codes(modules):
        if is_passed_on(code):
            continue
        told = constants(code)
        if told is None:
            wrong.append(f"{where}: {ast.unparse(code)} cannot be told from the source")
        known = {*ERROR_CODES, *REASON_CODES, *(CATALOG if callee != REASON and where.startswith(FINDINGS) else ())}
        for one in told or ():
            found.add(one)
            if one not in known:
                wrong.append(f"{where}: {one!r} is in no table")
    return found, wrong


def test_every_code_of_a_reason_is_in_a_table():
    modules = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    found, wrong = looked_at(modules)
    assert wrong == []
    assert set(REASON_CODES) - found == set()


@pytest.mark.parametrize(
    "source",
    [
        'Reason("it is so", "no-row")',
        'Reason("it is so", code="no-row")',
        'Reason("it is so", "no-row" if some else "forced")',
        'Reason("it is so")',
        'Reason("it is so", f"no-{some}")',
        'class Told:\n    what: str\n    code: str\nTold("it is so", "no-row")',
        'def _refuse(self, code: str, what: str): ...\nself._refuse("no-row", "it is so")',
        'class Refuse:\n    def __call__(self, code: str): ...\ndef some(refuse: Refuse):\n    refuse("no-row")',
    ],
)
def test_a_code_without_a_row_is_found(source):
    assert len(looked_at({"some.py": ast.parse(source)})[1]) == 1


def test_reasons_are_no_errors():
    assert set(REASON_CODES) & set(ERROR_CODES) == set()
    assert list(REASON_CODES) == sorted(REASON_CODES)


@pytest.mark.parametrize("code", REASON_CODES)
def test_a_reason_is_words_with_dashes_and_means_one_sentence_of_the_reference(code):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
    assert re.fullmatch(r"[A-Z`].*\.", REASON_CODES[code])
    assert f"| `{code}` | {REASON_CODES[code]} |" in page()
