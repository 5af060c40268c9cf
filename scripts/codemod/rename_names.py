# ruff: noqa
"""Renames top-level names and every use of them: ``python scripts/codemod/rename_names.py``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from names import N

FILES = [
    Path(one) for one in subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
]
BY_MODULE = {f"statecore.{module}": names for module, names in N.items()}
DOTTED = {f"{module}.{old}": f"{module}.{new}" for module, names in BY_MODULE.items() for old, new in names.items()}
DOTTED_RE = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, sorted(DOTTED, key=len, reverse=True))) + r")(?!\w)")
MODULES = {".".join(f.with_suffix("").parts).removesuffix(".__init__"): f for f in FILES if f.suffix == ".py"}
# Names of classes that are one thing everywhere, for prose.
COUNT = defaultdict(set)
for module, file in MODULES.items():
    if module.startswith("statecore"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                COUNT[node.name].add(module)
PROSE = {
    old: new
    for names in BY_MODULE.values()
    for old, new in names.items()
    if len(COUNT[old]) == 1 and re.fullmatch(r"[A-Z][a-z]+[A-Z]\w+|Shelf|[a-z]+_[a-z_]+", old)
}
PROSE_RE = re.compile(r"(?<=[`~.])(" + "|".join(map(re.escape, sorted(PROSE, key=len, reverse=True))) + r")(?=[`.(])")


def exported(module: str, name: str, seen: frozenset[str] = frozenset()) -> str | None:
    """New name of what a module has under a name, defined there or imported."""
    if module in BY_MODULE and name in BY_MODULE[module]:
        return BY_MODULE[module][name]
    return None


def spots(module: str, text: str):
    tree = ast.parse(text)
    bound: dict[str, str] = {}
    mods: dict[str, str] = {}
    found = []
    if module in BY_MODULE:
        bound |= BY_MODULE[module]
    lines = text.split("\n")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                new = exported(node.module, alias.name)
                if node.module == "statecore":
                    new = PUBLIC.get(alias.name)
                if new:
                    found.append((alias.lineno, alias.col_offset, alias.name, new))
                    if alias.asname is None:
                        bound[alias.name] = new
                elif whole in BY_MODULE:
                    mods[alias.asname or alias.name] = whole
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "statecore":
                    mods["statecore"] = "statecore"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in bound:
            found.append((node.lineno, node.col_offset, node.id, bound[node.id]))
        elif (
            isinstance(node, (ast.ClassDef, ast.FunctionDef))
            and module in BY_MODULE
            and node.name in BY_MODULE[module]
            and node in tree.body
        ):
            word = "class " if isinstance(node, ast.ClassDef) else "def "
            found.append((node.lineno, node.col_offset + len(word), node.name, BY_MODULE[module][node.name]))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in mods:
            new = (
                PUBLIC.get(node.attr)
                if mods[node.value.id] == "statecore"
                else BY_MODULE[mods[node.value.id]].get(node.attr)
            )
            if new and node.end_lineno is not None:
                found.append((node.end_lineno, node.end_col_offset - len(node.attr), node.attr, new))
        elif (isinstance(node, ast.arg) and node.arg in bound) or (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in bound
        ):
            print("SHADOWED", module, getattr(node, "arg", getattr(node, "id", "")), node.lineno)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno == node.end_lineno:
            if node.value in bound and re.match(r"[A-Z]", node.value):  # annotations in quotes, __all__
                found.append((node.lineno, node.col_offset + 1, node.value, bound[node.value]))
    return found


PUBLIC = {}
init = Path("statecore/__init__.py").read_text()
for names in BY_MODULE.values():
    for old, new in names.items():
        if f'"{old}"' in init:
            PUBLIC[old] = new


def main() -> None:
    for file in FILES:
        if not file.is_file() or file.suffix not in {".py", ".md", ".toml", ".yml"} or "codemod" in file.name:
            continue
        text = old_text = file.read_text()
        if file.suffix == ".py":
            module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
            lines = [line.encode() for line in text.split("\n")]
            for lineno, col, old, new in sorted(set(spots(module, text)), reverse=True):
                line = lines[lineno - 1]
                if line[col : col + len(old)].decode() != old:
                    print("??", file, lineno, old, line.decode()[:100])
                    continue
                lines[lineno - 1] = line[:col] + new.encode() + line[col + len(old) :]
            text = b"\n".join(lines).decode()
            if file.as_posix() in ("statecore/__init__.py", "tests/unit/test_public_names.py"):
                for old, new in PUBLIC.items():
                    text = text.replace(f'"{old}"', f'"{new}"')
        text = DOTTED_RE.sub(lambda f: DOTTED[f[1]], text)
        text = PROSE_RE.sub(lambda f: PROSE[f[1]], text)
        if text != old_text:
            file.write_text(text)


if __name__ == "__main__":
    main()
