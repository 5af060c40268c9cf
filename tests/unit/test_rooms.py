"""Imports point up the table of rooms in ``docs/architecture.md``, and each room knows what the table says it knows."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import statecore

PACKAGE = Path(statecore.__file__).parent
TABLE = PACKAGE.parent / "docs" / "architecture.md"

EVERYBODY_S = {
    "choices",
    "cores",
    "errors",
    "error_codes",
    "isolation",
    "progress",
    "faults",
    "filesystem",
    "system_errors",
    "documents",
    "words",
}
"""The row of modules that know nobody: everybody may know them."""


def rows() -> Iterator[tuple[list[str], str]]:
    """The rooms of each row of the table, and what they know in words."""
    (table,) = re.findall(r"\| package \|.*\n\|---.*\n((?:\|.*\n)+)", TABLE.read_text())
    for line in table.splitlines():
        names, _, knows = (cell.strip() for cell in line.strip("|").split(" | "))
        yield re.findall(r"`(\w+)(?:\.py|/)`", names), knows.strip("| ")


ROOMS = {room: (number, knows) for number, (rooms, knows) in enumerate(rows()) for room in rooms}


MODULES = {
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
}


@cache
def imported(module: str) -> Mapping[str, int]:
    """The modules of the package that one of them imports, also in a function or for its types only → in which line."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            below = [f"{node.module}.{name.name}" for name in node.names if name.name != "__version__"]
            names = [name if name in MODULES else node.module for name in below]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        for name in names:
            if name in MODULES and name != module:
                found.setdefault(name, node.lineno)
    return found


_COMMAND = re.compile(r"(?:^|\s)-m\s+(statecore(?:\.\w+)+)")


def run_by_name(tree: ast.Module) -> Mapping[str, int]:
    """The modules of the package that strings name, for who runs or loads them by name → in which line.

    That is a string that is a module's name and nothing else, or a command line with ``-m``; prose is neither.
    """
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            for name in [node.value, *_COMMAND.findall(node.value)]:
                if "." in name and name in MODULES:
                    found.setdefault(name, node.lineno)
    return found


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


@cache
def known(room: str) -> Mapping[str, list[str]]:
    """Other room → the places where this one imports it, or names it to run it."""
    found = defaultdict(list)
    for module in sorted(MODULES):
        if room_of(module) == room:
            by_name = run_by_name(ast.parse(MODULES[module].read_text()))
            for other, line in [*imported(module).items(), *by_name.items()]:
                if room_of(other) != room:
                    found[room_of(other)].append(f"{MODULES[module].relative_to(PACKAGE)}:{line}")
    return found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    TopologicalSorter({module: imported(module).keys() for module in MODULES}).prepare()  # CycleError names the circle


def test_a_module_that_is_run_by_its_name_is_known_and_one_that_prose_names_is_not() -> None:
    source = '''
"""statecore.cli.main"""
MODULE = "statecore.cli.main"
COMMAND = "python -m statecore.spark.warm --all"
WORDS = ["-m", "statecore.jobs.worker"]
def f():
    """python -m statecore.spark.daemon"""
    raise ValueError("statecore.cli.doctor says it, and statecore.cli.nowhere does not")
'''
    assert run_by_name(ast.parse(source)) == {
        "statecore.cli.main": 3,
        "statecore.spark.warm": 4,
        "statecore.jobs.worker": 5,
    }


def test_every_room_is_in_the_table() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set(ROOMS) == there


@pytest.mark.parametrize("room", sorted(set(ROOMS) - {"__init__"}))
def test_imports_point_up_the_table(room: str) -> None:
    number, _ = ROOMS[room]
    assert {other: where for other, where in known(room).items() if ROOMS[other][0] > number} == {}


LISTED = {room: set(knows.split(", ")) for room, (_, knows) in ROOMS.items() if re.fullmatch(r"\w+(, \w+)*", knows)}
"""What rooms know, where the table gives a list and no sentence. They know what those know, too."""


def reached(room: str) -> set[str]:
    direct = LISTED.get(room, set()) & set(ROOMS)
    return direct.union(*map(reached, direct))


@pytest.mark.parametrize("room", sorted(LISTED))
def test_a_room_knows_what_the_table_says(room: str) -> None:
    together = {other for other, (number, _) in ROOMS.items() if number == ROOMS[room][0]}
    assert LISTED[room] - {"nobody"} <= set().union(*map(known, together))
    found = known(room)
    assert {other: found[other] for other in found.keys() - reached(room) - EVERYBODY_S - together} == {}
