"""One calling convention: kernels are called by name, with arguments by name, as their source declares them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from statecore.images.kernels import kernel
from statecore.kernels.native import NEVER_FROZEN, dependencies
from statecore.kernels.records import field_indexes
from tests.unit.kernels.libraries import DOORS, LIBRARIES, PACKAGE

CALLS = [
    (path, call)
    for path in sorted(PACKAGE.rglob("*.py"))
    if "kernels" not in path.parts[-2:-1]
    for call in ast.walk(ast.parse(path.read_text()))
    if isinstance(call, ast.Call)
    and isinstance(call.func, ast.Attribute)
    and call.func.attr == "run"
    and ast.unparse(call.func.value).lower().endswith(("kernel", "kernels"))
]


def test_every_library_is_found() -> None:
    assert len(LIBRARIES) == len(DOORS) >= 4


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.source)
def test_a_kernel_has_the_parameters_of_its_source_and_all_are_called_with_them(library) -> None:
    signatures = {}
    for _, path in sorted(dependencies(library.source).items(), key=lambda one: one[0] == library.source):  # it wins
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.FunctionDef):
                signatures[one.name] = tuple(argument.arg for argument in one.args.args)
    assert library.kernels
    assert library.kernels == {name: signatures[name] for name in library.kernels}
    for path, call in CALLS:
        name = call.args[0].value
        if name in library.kernels and None not in (given := {one.arg for one in call.keywords}):
            assert given == set(library.kernels[name]), f"{path}:{call.lineno}"


def test_every_kernel_has_a_caller() -> None:
    called = {call.args[0].value for _, call in CALLS}
    every = {name for library in LIBRARIES for name in library.kernels}
    assert every - called == {"key_hash"}  # alone it is only for tests; data_blocks has it inside


def test_arguments_that_a_kernel_does_not_have_are_refused() -> None:
    with pytest.raises(TypeError, match=r"xxh64 .*argument 'seed'"):
        kernel.run("xxh64", address=0, length=0)
    with pytest.raises(TypeError, match=r"xxh64 .*has no parameter salt"):
        kernel.run("xxh64", address=0, length=0, seed=0, salt=1)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.run("xxh64", address=np.arange(9, dtype=np.uint8)[::2], length=5, seed=0)


class Pair(NamedTuple):
    left: int = 0
    right: int = 7


def test_a_record_has_a_number_for_each_word() -> None:
    assert field_indexes(Pair) == (0, 1)
    assert field_indexes(Pair).right == 1


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.source)
def test_what_compiling_imports_is_what_the_machine_code_depends_on(library) -> None:
    code = f"import sys, {library.source}; print(*(name for name in sys.modules if name.startswith('statecore.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name for name in done.stdout.split() if (PACKAGE.parent / name.replace(".", "/")).is_dir()}
    behind_the_library = {"statecore.kernels.native", "statecore.kernels.cache"}
    imported = {name for name in set(done.stdout.split()) - packages if not name.startswith(NEVER_FROZEN)}
    assert imported - behind_the_library == set(dependencies(library.source))


def test_imports_are_found_however_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mill"
    (package / "inner").mkdir(parents=True)
    for name in ("one", "two", "three", "four", "five", "unused", "inner/six"):
        (package / f"{name}.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("")
    (package / "source.py").write_text(
        "import numpy, os\nimport mill.one\nfrom mill.two import (\n    A,  # why\n    B,\n)\n"
        "from mill import three as x, four\ndef f():\n    from mill.inner import six\n"
    )
    (package / "four.py").write_text("from mill.five import C\nfrom mill.source import f\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = dependencies("mill.source")
    assert set(found) == {f"mill.{name}" for name in ("source", "one", "two", "three", "four", "five", "inner.six")}
    assert inspect.getmodulename(str(found["mill.inner.six"])) == "six"
