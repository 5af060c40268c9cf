"""Imports follow the table of packages in ``docs/architecture.md``."""

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

IMPORTED_BY_ALL = {
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
"""The row of modules that import nothing: all may import them."""


def rows() -> Iterator[tuple[list[str], str]]:
    """The packages of each row of the table, and what they may import, in words."""
    (table,) = re.findall(r"\| package \|.*\n\|---.*\n((?:\|.*\n)+)", TABLE.read_text())
    for line in table.splitlines():
        names, _, imports = (cell.strip() for cell in line.strip("|").split(" | "))
        yield re.findall(r"`(\w+)(?:\.py|/)`", names), imports.strip("| ")


PACKAGES = {package: (number, imports) for number, (packages, imports) in enumerate(rows()) for package in packages}


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


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


@cache
def imports_of(package: str) -> Mapping[str, list[str]]:
    """Other package → the places where this one imports it, or names it to run it."""
    found = defaultdict(list)
    for module in sorted(MODULES):
        if package_of(module) == package:
            by_name = run_by_name(ast.parse(MODULES[module].read_text()))
            for other, line in [*imported(module).items(), *by_name.items()]:
                if package_of(other) != package:
                    found[package_of(other)].append(f"{MODULES[module].relative_to(PACKAGE)}:{line}")
    return found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    TopologicalSorter({module: imported(module).keys() for module in MODULES}).prepare()  # CycleError names the circle


IMPORTED_ACROSS = {("history", "report"): "a history reads the reports of all verbs, which stay beside their verbs"}
"""Package of ``jobs`` and module of others that it may import, although they import the package → why."""


def members(package: str) -> Mapping[str, set[str]]:
    """The modules and packages directly in a package → which of these each imports, as a whole."""
    found: dict[str, set[str]] = {}
    below = f"{package}."
    for module in MODULES:
        if module.startswith(below):
            member, *_ = module.removeprefix(below).split(".")
            others = (other for other in imported(module) if other.startswith(below))
            parts = (other.removeprefix(below).split(".") for other in others)
            imports = {other for other, *rest in parts if other != member and (member, *rest) not in IMPORTED_ACROSS}
            found.setdefault(member, set()).update(imports)
    return found


@pytest.mark.parametrize("package", sorted(module for module, file in MODULES.items() if file.name == "__init__.py"))
def test_modules_and_packages_in_a_package_do_not_import_each_other_in_a_circle(package: str) -> None:
    TopologicalSorter(members(package)).prepare()


def test_a_module_that_is_run_by_name_counts_as_imported_and_one_that_prose_names_does_not() -> None:
    source = '''
"""statecore.cli.main"""
MODULE = "statecore.cli.main"
COMMAND = "python -m statecore.spark.warm --all"
WORDS = ["-m", "statecore.jobs.engine.worker"]
def f():
    """python -m statecore.spark.daemon"""
    raise ValueError("statecore.cli.doctor says it, and statecore.cli.nowhere does not")
'''
    assert run_by_name(ast.parse(source)) == {
        "statecore.cli.main": 3,
        "statecore.spark.warm": 4,
        "statecore.jobs.engine.worker": 5,
    }


def test_every_package_is_in_the_table() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set(PACKAGES) == there


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"__init__"}))
def test_imports_point_up_the_table(package: str) -> None:
    number, _ = PACKAGES[package]
    assert {other: where for other, where in imports_of(package).items() if PACKAGES[other][0] > number} == {}


LISTED = {
    package: set(imports.split(", "))
    for package, (_, imports) in PACKAGES.items()
    if re.fullmatch(r"\w+(, \w+)*", imports)
}
"""What packages may import, where the table gives a list and no sentence. They may import what those may, too."""


def reached(package: str) -> set[str]:
    direct = LISTED.get(package, set()) & set(PACKAGES)
    return direct.union(*map(reached, direct))


@pytest.mark.parametrize("package", sorted(LISTED))
def test_a_package_imports_what_the_table_says(package: str) -> None:
    together = {other for other, (number, _) in PACKAGES.items() if number == PACKAGES[package][0]}
    assert LISTED[package] - {"nobody"} <= set().union(*map(imports_of, together))
    found = imports_of(package)
    assert {other: found[other] for other in found.keys() - reached(package) - IMPORTED_BY_ALL - together} == {}


RIDDLES = {
    *(
        "sight",
        "sights",
        "look",
        "looking",
        "seen",
        "judge",
        "judging",
        "upon",
        "kept",
        "news",
        "told",
        "telling",
        "said",
    ),
    *("believed", "anew", "mending", "surroundings", "circumstances", "shelf", "fold", "parent", "parents", "others"),
    *(
        "taken",
        "aside",
        "mark",
        "word",
        "moment",
        "moments",
        "instant",
        "whoever",
        "nobody",
        "hand",
        "lateness",
        "sides",
    ),
}
"""Words that no engineer would search for; ``docs/glossary.md`` has those that we use instead."""


def test_modules_are_called_by_words_that_a_reader_would_search_for() -> None:
    named = {module: set(re.split(r"[._]", module)) for module in MODULES if not module.startswith("statecore.cli.")}
    assert {module: words & RIDDLES for module, words in named.items() if words & RIDDLES} == {}


VERBS = {path.parent.name for path in (PACKAGE / "jobs").glob("*/run.py")} | {"recover_global"}
JOBS = sorted(module for module in MODULES if module.startswith("statecore.jobs."))


def verb_of(module: str) -> str | None:
    """The verb of ``statecore jobs`` that a module belongs to; ``None`` for the core, and for other packages."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["statecore", "jobs"] and len(parts) > 2 and parts[2] in VERBS else None


def test_the_core_of_jobs_imports_no_verb() -> None:
    """The history reads the reports of all verbs, and nothing else of them."""
    found = {
        module: sorted(other for other in imported(module) if verb_of(other) is not None)
        for module in JOBS
        if verb_of(module) is None
    }
    reports = {f"statecore.jobs.{verb}.report" for verb in VERBS}
    history = {module for module in found if module.startswith("statecore.jobs.history.")}
    assert {module for module in history if not reports.issuperset(found[module])} == set()
    assert {module: verbs for module, verbs in found.items() if verbs and module not in history} == {}


def test_no_request_of_a_job_imports_that_of_another() -> None:
    requests = {module for module in JOBS if module.endswith(".request")}
    assert {
        module: requests & imported(module).keys() for module in requests if requests & imported(module).keys()
    } == {}


MOST_IMPORTS = 15
"""How many modules of the package one of ``jobs`` imports at most."""


def test_a_module_of_jobs_imports_few_others() -> None:
    counts = {module: len(imported(module)) for module in JOBS}
    assert {module: count for module, count in counts.items() if count > MOST_IMPORTS} == {}


def test_modules_that_docstrings_name_exist() -> None:
    missing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r":mod:`~?(\.\w[\w.]*|statecore[\w.]*)`", path.read_text()):
            named = path.parent / name[1:] if name.startswith(".") else PACKAGE.parent / name.replace(".", "/")
            if not named.with_suffix(".py").is_file() and not (named / "__init__.py").is_file():
                missing.append((str(path.relative_to(PACKAGE)), name))
    assert missing == []
