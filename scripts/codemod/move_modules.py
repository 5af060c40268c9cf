# ruff: noqa
"""Moves modules and their tests, and rewrites every mention of them: ``python scripts/codemod/move_modules.py`` in a clean checkout.

``MOVES`` (beside it) says what goes where, by the names of modules below ``statecore``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mapping import PACKAGES, M

ROOT = Path.cwd()
STAY = {"processor", "stores", "images", "repository", "airflow"}
"""Packages whose tests stay where they are not a moved module's."""

TEST_FILES = {
    "maintenance/stored.py": "doctor/stored.py",
    "runtime/test_checkpoint_kills.py": "tasks/test_checkpoint_kills.py",
    "runtime/conftest.py": "forks_conftest.py",
    "jobs/support.py": "jobs/support.py",
    "jobs/published.py": "jobs/published.py",
    "jobs/test_unfinished_creations.py": "standby/promote/test_unfinished_creations.py",
}

BARE = {"statecore/__init__.py", "tests/unit/test_extras.py", "tests/unit/test_public_names.py"}
"""Files that name modules without the package."""

WIDTH = 120

KEPT = "\x00"
"""Stands for the dot after ``statecore`` in what was rewritten already."""
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".cfg", ".txt", ".json", ".html", ""}


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    return [Path(one) for one in names]


FILES = tracked()
MODULES = {
    ".".join(one.with_suffix("").parts).removesuffix(".__init__")
    for one in FILES
    if one.suffix == ".py" and one.parts[0] == "statecore"
}
MOVES = {f"statecore.{old}": f"statecore.{new}" for old, new in M.items() if old != new}


def path_of(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def new_package_of(test: Path, text: str) -> str | None:
    """The package whose tests a file of ``tests/unit/<package>/`` is among after the moves; ``None``: it stays."""
    package = ".".join(test.parts[2:-1])
    stem = test.stem.removeprefix("test_")
    names = [f"{package}.{stem}", *(f"{package}.{stem.rsplit('_', n)[0]}" for n in (1, 2, 3))]
    for name in names:
        if name in M:
            return M[name]
    seen: Counter[str] = Counter()
    for found in re.findall(r"statecore\.([a-z_0-9.]+)", text):
        for old, new in M.items():
            if (found == old or found.startswith(f"{old}.")) and old.rsplit(".", 1)[0] == package:
                seen[new.rsplit(".", 1)[0]] += 1
    if seen and package not in STAY:
        return f"{seen.most_common(1)[0][0]}."
    return None


def test_moves() -> dict[Path, Path]:
    moved: dict[Path, Path] = {}
    whole = {
        "blobs": "objectstore",
        "placement": "statedir",
        "processor": "tasks",
        "maintenance.conversion": "conversion",
        "maintenance.checks": "doctor.checks",
        "runtime.assignment": "standby.assignment",
    }
    taken = {one for one in FILES}
    touched = {old.rsplit(".", 1)[0] for old, new in M.items() if old != new}
    for one in FILES:
        if one.parts[:2] != ("tests", "unit") or len(one.parts) < 4 or one.name == "__init__.py":
            continue
        package = ".".join(one.parts[2:-1])
        if package not in touched:
            continue
        if (name := "/".join(one.parts[2:])) in TEST_FILES:
            moved[one] = Path("tests/unit", TEST_FILES[name])
            continue
        stem, target = one.name, None
        where = new_package_of(one, one.read_text()) if one.suffix == ".py" else None
        if where is None:
            if package in whole:
                target = Path("tests/unit", *whole[package].split("."), stem)
        elif where.endswith("."):
            target = Path("tests/unit", *where[:-1].split("."), stem)
        else:
            pkg, new = where.rsplit(".", 1)
            plain = one.stem.removeprefix("test_")
            old = next(o for o in (plain, *(plain.rsplit("_", n)[0] for n in (1, 2, 3))) if f"{package}.{o}" in M)
            rest = plain[len(old) :]
            prefix = "test_" if one.stem.startswith("test_") else ""
            target = Path("tests/unit", *pkg.split("."), f"{prefix}{new}{rest}.py")
        if target is None or target == one:
            continue
        if target in moved.values() or (target in taken and target not in moved):
            target = target.with_name(one.name)
        moved[one] = target
    return moved


WHOLE = {
    "statecore.blobs": "statecore.objectstore",
    "statecore.placement": "statecore.statedir",
    "statecore.maintenance.conversion": "statecore.conversion",
    "statecore.maintenance.checks": "statecore.doctor.checks",
    "statecore.runtime.assignment": "statecore.standby.assignment",
}
"""Packages that are named as such, and moved whole."""

TESTS = test_moves()
MOVES |= {
    ".".join(a.with_suffix("").parts): ".".join(b.with_suffix("").parts) for a, b in TESTS.items() if a.suffix == ".py"
}
NAMES = {**WHOLE, **MOVES}
DOTTED = re.compile(
    r"(?<![\w.])(" + "|".join(re.escape(one) for one in sorted(NAMES, key=len, reverse=True)) + r")(?!\w)"
)
PATHS = {"/".join(a.split(".")) + ".py": "/".join(b.split(".")) + ".py" for a, b in MOVES.items()}
SHORT = {
    a.removeprefix("statecore/"): b.removeprefix("statecore/") for a, b in PATHS.items() if a.startswith("statecore/")
}
PATH = re.compile(r"(?<![\w/])(" + "|".join(re.escape(one) for one in sorted(PATHS, key=len, reverse=True)) + r")")
SHORT_PATH = re.compile(
    r"(?<![\w/])(" + "|".join(re.escape(one) for one in sorted(SHORT, key=len, reverse=True)) + r")"
)


def imports(text: str) -> str:
    """Rewrite ``from package import module``."""
    lines = text.split("\n")
    for node in sorted(
        (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)), key=lambda n: -n.lineno
    ):
        if node.module is None or node.level:
            continue
        moved = [one for one in node.names if f"{node.module}.{one.name}" in MOVES]
        if not moved:
            continue
        indent = lines[node.lineno - 1][: node.col_offset]
        kept = [one for one in node.names if one not in moved]
        said = []
        if kept:
            names = ", ".join(one.name + (f" as {one.asname}" if one.asname else "") for one in kept)
            said.append(f"{indent}from {node.module} import {names}")
        for one in moved:
            package, name = MOVES[f"{node.module}.{one.name}"].rsplit(".", 1)
            shown = one.asname or one.name
            as_ = "" if name == shown else f" as {shown}"
            said.append(f"{indent}from {package.replace('.', KEPT)} import {name}{as_}")
        end = node.end_lineno or node.lineno
        tail = lines[end - 1][node.end_col_offset or 0 :]
        said[-1] += tail
        lines[node.lineno - 1 : end] = said
    return "\n".join(lines)


def rewritten(path: Path, text: str) -> str:
    if path.suffix == ".py":
        text = imports(text)
    if path.as_posix() in BARE:
        text = re.sub(r'"([a-z_.0-9]+)"', lambda found: f'"{M.get(found[1], found[1])}"', text)
    text = DOTTED.sub(lambda found: NAMES[found[1]].replace(".", KEPT), text)
    text = PATH.sub(lambda found: PATHS[found[1]], text)
    if path.suffix in {".md", ".py"}:
        text = SHORT_PATH.sub(lambda found: SHORT[found[1]], text)
    text = text.replace(KEPT, ".")
    return wrapped(text) if path.suffix == ".py" else text


def wrapped(text: str) -> str:
    """The text with lines of prose that became too long broken, what is left over put before the next line."""
    lines = text.split("\n")
    prose = {number for number, line in enumerate(lines) if line.lstrip().startswith("# ")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose |= (
                set(range(node.lineno - 1, (node.end_lineno or node.lineno) - 1))
                if node.end_lineno != node.lineno
                else set()
            )
    if not any(len(lines[number]) > WIDTH for number in prose):
        return text
    at = 0
    while at < len(lines):
        line = lines[at]
        indent = line[: len(line) - len(line.lstrip())]
        if at in prose and len(line) > WIDTH and '"""' not in line:
            cut = line.rfind(" ", 0, WIDTH + 1)
            lead = "# " if line.lstrip().startswith("# ") else ""
            rest, lines[at] = line[cut + 1 :], line[:cut]
            below = lines[at + 1] if at + 1 < len(lines) else ""
            same = (
                below.startswith(indent + lead)
                and below[len(indent) : len(indent) + 1].strip()
                and '"""' not in below[: len(indent) + 3]
            )
            hanging = below[: len(below) - len(below.lstrip())] if re.match(r"\w+: ", line.lstrip()) else indent
            if re.match(r"\w+: ", line.lstrip()) and len(hanging) > len(indent):
                lines[at + 1] = f"{hanging}{rest} {below.lstrip()}"
            elif re.match(r"\w+: ", line.lstrip()):
                prose = {one + (one > at) for one in prose} | {at + 1}
                lines.insert(at + 1, f"{indent}    {rest}")
            elif same:
                lines[at + 1] = f"{indent}{lead}{rest} {below[len(indent + lead) :]}"
            else:
                prose = {one + (one > at) for one in prose} | {at + 1}
                lines.insert(at + 1, f"{indent}{lead}{rest}")
        at += 1
    return "\n".join(lines)


def main() -> None:
    moves = {path_of(old): path_of(new) for old, new in MOVES.items() if not old.startswith("tests.")} | TESTS
    moves[Path("statecore/maintenance/conversion/__init__.py")] = Path("statecore/conversion/__init__.py")
    for one in FILES:
        if one.suffix in TEXT and one.is_file() and one.parts[0] not in {".library"} and "codemod" not in one.name:
            try:
                text = one.read_text()
                if one.name == "pyproject.toml":
                    text = text.replace("statecore/blobs/", "statecore/objectstore/")
            except UnicodeDecodeError:
                continue
            new = rewritten(one, text)
            if one in TESTS and (deeper := len(TESTS[one].parts) - len(one.parts)):
                new = re.sub(
                    r"(__file__\)(?:\.resolve\(\))?\.parents\[)(\d)\]", lambda f: f"{f[1]}{int(f[2]) + deeper}]", new
                )
            if new != text:
                one.write_text(new)
    # Two steps, for a name may be free only when what had it has gone.
    for old, new in moves.items():
        old.rename(old.with_name(old.name + ".moving"))
    for old, new in moves.items():
        new.parent.mkdir(parents=True, exist_ok=True)
        if new.exists():
            raise SystemExit(f"{new} is there already")
        old.with_name(old.name + ".moving").rename(new)
    for package, idea in PACKAGES.items():
        if package == "conversion":
            continue  # has a text of its own
        file = Path("statecore", *package.split("."), "__init__.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'"""{idea}"""\n')
    for folder in Path("tests/unit").rglob("*"):
        if folder.is_dir() and any(folder.glob("*.py")):
            for up in (folder, *[p for p in folder.parents if p.is_relative_to("tests/unit")]):
                (up / "__init__.py").touch()
    for top in ("statecore", "tests/unit"):
        for folder in sorted(Path(top).rglob("*"), reverse=True):
            if folder.is_dir() and folder.name != "__pycache__":
                left = [one for one in folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts]
                if all(one.name == "__init__.py" for one in left):
                    for one in left:
                        one.unlink()
    subprocess.run(["git", "add", "-A"], check=True)


if __name__ == "__main__":
    main()
