"""The page of public names: what it names exists, is documented, and is loaded only when it is asked for."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import statecore

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

NAMED = sorted(statecore.__all__)
SOURCE = ast.parse(Path(statecore.__file__).read_text())


def imported_for_type_checkers() -> dict[str, str]:
    """Name → module, of the imports that only type checkers see."""
    block = next(node for node in SOURCE.body if isinstance(node, ast.If))
    return {
        name.name: node.module or "" for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names
    }


def test_what_type_checkers_see_is_what_is_loaded() -> None:
    assert imported_for_type_checkers() == statecore._MODULES
    assert sorted(statecore._MODULES) == NAMED


@pytest.mark.parametrize("name", NAMED)
def test_a_public_name_is_the_object_of_the_module_that_has_it(name: str) -> None:
    found = getattr(statecore, name)
    home = statecore._MODULES[name]
    assert found is getattr(importlib.import_module(home), name)
    assert found.__module__ == home


@pytest.mark.parametrize("name", NAMED)
def test_a_public_name_is_documented(name: str) -> None:
    found = getattr(statecore, name)
    documented = found.__doc__ if inspect.isclass(found) else inspect.getdoc(found)
    assert documented
    assert not documented.startswith(f"{name}("), "what dataclasses write of themselves says nothing"


@pytest.mark.parametrize("name", [name for name in NAMED if inspect.isclass(getattr(statecore, name))])
def test_the_methods_of_a_public_class_are_documented(name: str) -> None:
    found = getattr(statecore, name)
    own = {k: v for k, v in vars(found).items() if not k.startswith("_") and (callable(v) or isinstance(v, property))}
    assert [k for k in own if not inspect.getdoc(getattr(found, k))] == []


def test_all_names_are_listed() -> None:
    assert set(NAMED) <= set(dir(statecore))
    assert "__version__" in dir(statecore)


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RocksStore'"):
        statecore.RocksStore  # noqa: B018


def test_importing_the_package_loads_nothing() -> None:
    """Airflow's parser imports it for every file of Dags."""
    code = (
        "import sys, __future__\n"
        "before = set(sys.modules)\n"
        "import statecore\n"
        "dir(statecore)\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["statecore"]


def test_a_name_loads_its_module_and_no_other_name_s() -> None:
    code = (
        "import sys\nfrom statecore import StoreKind, Fenced\nprint(*(n for n in sys.modules if n[:9] == 'statecore'))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = {"statecore", "statecore.errors", "statecore.formats", "statecore.formats.kinds"}
    assert set(done.stdout.split()) == {*loaded, "statecore.formats.releases"}  # what each kind is on disk


OF_TESTS_AND_CLIENTS = {"FaultPoints", "TransactionalProducer", "Consumer"}
"""What a caller of a task never makes: fault points, and shapes that kafka-python's clients have."""


@pytest.mark.parametrize("task", [statecore.ActiveTask, statecore.StandbyTask], ids=["active", "standby"])
def test_what_a_task_is_given_and_gives_is_public(task: type) -> None:
    spoken: set[type] = set()

    def speak(of: object) -> None:
        if inspect.isclass(of) and of.__module__.partition(".")[0] == "statecore":
            spoken.add(of)
        for inner in get_args(of):
            for one in inner if isinstance(inner, list) else [inner]:
                speak(one)

    for name, member in inspect.getmembers(task):
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            for hint in get_type_hints(function).values():
                speak(hint)
    assert statecore.TaskStores in spoken
    assert {one.__name__ for one in spoken} - OF_TESTS_AND_CLIENTS <= set(NAMED)


def documented_code() -> Iterator[tuple[str, str]]:
    """Every piece of Python that the documentation shows."""
    for page in [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            yield f"{page.name}[{number}]", code
    for example in sorted((DOCS / "examples").rglob("*.py")):
        yield example.name, example.read_text()


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in documented_code()])
def test_documentation_imports_public_names_only(code: str) -> None:
    """Modules may move; what a reader copied from here must go on working."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            assert not [one.name for one in node.names if one.name.startswith("statecore.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "statecore":
            assert node.module == "statecore", ast.unparse(node)
            assert {one.name for one in node.names} <= set(NAMED), ast.unparse(node)


def test_the_library_s_page_speaks_of_public_names() -> None:
    """What is given for an argument there can be imported from here."""
    spoken = re.findall(r"`[^`\n]*?=([A-Z]\w+)", (DOCS / "library.md").read_text())
    assert {"KEEP_FILES", "OnStale"} <= set(spoken) <= {*NAMED, "True"}


CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


@pytest.mark.parametrize("page", ["global-stores.md", "standby.md"])
def test_the_classes_that_a_page_teaches_are_public(page: str) -> None:
    taught = set(re.findall(r"\b((?:Global|Startup|Active|Standby)[A-Z]\w+)\b", (DOCS / page).read_text()))
    kept = {name for path in (ROOT / "statecore").rglob("*.py") for name in CLASS.findall(path.read_text())}
    assert taught & kept
    assert taught & kept <= set(NAMED)
