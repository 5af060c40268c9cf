"""Imports point up the table of rooms in ``docs/architecture.md``, and each room knows what the table says it knows."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import statecore

PACKAGE = Path(statecore.__file__).parent
TABLE = PACKAGE.parent / "docs" / "architecture.md"

EVERYBODY_S = {"choices", "errors", "isolation", "progress", "faults", "filesystem", "system_errors", "documents"}
"""The row of modules that know nobody: everybody may know them."""


def rows() -> Iterator[tuple[list[str], str]]:
    """The rooms of each row of the table, and what they know in words."""
    (table,) = re.findall(r"\| package \|.*\n\|---.*\n((?:\|.*\n)+)", TABLE.read_text())
    for line in table.splitlines():
        names, _, knows = (cell.strip() for cell in line.strip("|").split(" | "))
        yield re.findall(r"`(\w+)(?:\.py|/)`", names), knows.strip("| ")


ROOMS = {room: (number, knows) for number, (rooms, knows) in enumerate(rows()) for room in rooms}


@cache
def known(room: str) -> Mapping[str, list[str]]:
    """Other room → the places where this one imports it."""
    found = defaultdict(list)
    single = PACKAGE / f"{room}.py"
    for file in [single] if single.is_file() else sorted((PACKAGE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                one = [f"statecore.{name.name}" for name in node.names if name.name != "__version__"]
                modules = one if node.module == "statecore" else [node.module]
            elif isinstance(node, ast.Import):
                modules = [name.name for name in node.names]
            for module in modules:
                package, _, rest = module.partition(".")
                if package == "statecore" and rest and rest.partition(".")[0] != room:
                    found[rest.partition(".")[0]].append(f"{file.relative_to(PACKAGE)}:{node.lineno}")
    return found


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
