"""Without the extra packages: what the stores need works, and all else says in one sentence what to install."""

from __future__ import annotations

import ast
import json
import pickle
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import Invalid, Retryable
from statecore.extras import EXTRAS, MissingExtra, explained, is_installed, require

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "statecore").rglob("*.py")
)

WITHOUT = f"""
import sys
for name in {[package for packages in EXTRAS.values() for package in packages] + ["pandas"]}:
    sys.modules[name] = None
"""
"""As on a machine where only the base package is installed: importing any of these fails."""

IMPORT_ALL = """
import importlib, json
said = {}
for name in %r:
    try:
        importlib.import_module(name)
    except BaseException as error:
        said[name] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""

SPEC = """\
application_id: a
bootstrap_servers: localhost:1
processing_guarantee: at_least_once
subtopologies: {0: {stores: {s: {kind: key-value}}}}
"""

BASE_PACKAGES = ("stores", "tasks", "global_stores", "standby", "spec", "cli", "extras")
BASE = (
    *("errors", "isolation", "metrics", "telemetry", "progress", "faults"),
    *("formats.checkpoint", "formats.kinds", "formats.offsets", "formats.position", "formats.segments"),
    *("changelog.client", "changelog.cluster", "changelog.groups", "changelog.model", "changelog.sockets"),
    *(
        "doctor.diagnosis",
        "jobs.history.instance_history",
        "jobs.history.report_index",
        "jobs.restore.request",
    ),
)


FOLLOW_CHANGELOGS = {
    "statecore.tasks.active_task",
    "statecore.tasks.standby_task",
    "statecore.tasks.restoration.columnar_records",
    *(f"statecore.global_stores.{name}" for name in ("databases", "manager", "reader", "store")),
    *(f"statecore.standby.assignment.{name}" for name in ("assignor", "balance", "leader")),
    *(
        f"statecore.standby.{name}"
        for name in ("group_member", "assigned_tasks", "service", "task_manager", "task_selection")
    ),
}
"""The modules of these packages that need the pipeline: by what they do, or by what they stand on."""


def without_extras(*code: str) -> subprocess.CompletedProcess[str]:
    whole = WITHOUT + "".join(code)
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, timeout=1200, check=False)


@cache
def refused() -> dict[str, list[str]]:
    """Every module of the package that cannot be imported without extras: kind of error, and what it says."""
    done = without_extras(IMPORT_ALL % (MODULES,))
    assert done.returncode == 0, done.stderr
    said: dict[str, list[str]] = json.loads(done.stdout)
    return said


def test_what_the_stores_need_is_in_the_base_package() -> None:
    assert {refused()[name][0] for name in FOLLOW_CHANGELOGS} == {"MissingExtra"}
    base = [name for name in MODULES if name.split(".")[1:2] and name.split(".")[1] in BASE_PACKAGES]
    base = [name for name in base if name not in FOLLOW_CHANGELOGS]
    base += [f"statecore.{name}" for name in BASE]
    assert len(base) > 60
    assert set(base) <= set(MODULES)
    assert {name: refused()[name] for name in base if name in refused() and name != "statecore.extras.pipeline"} == {}


def test_a_module_of_the_pipeline_says_which_extra_it_needs() -> None:
    lacking = {name: said for name, said in refused().items() if not name.startswith("statecore.airflow.")}
    assert {kind for kind, _ in lacking.values()} == {"MissingExtra"}
    assert {"statecore.changelog.reader", "statecore.formats.registry", "statecore.images.image"} <= set(lacking)
    for _, sentence in lacking.values():
        assert "pip install '.[pipeline]'" in sentence


def test_a_public_name_of_the_pipeline_says_so_too() -> None:
    done = without_extras(
        "from statecore import RocksDBStore, Cluster, OffsetRange\nfrom statecore import ChangelogReader"
    )
    assert done.returncode == 1
    *_, error, note = done.stderr.splitlines()
    assert error.startswith("statecore.extras.MissingExtra: ")
    assert "'.[pipeline]'" in error
    assert note == "Error code: extra-missing"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["restore", "--spec", "{spec}", "--state-dir", "{state}"], "spark"),
        (["dump", "--state-dir", "{state}", "--application-id", "a", "--store", "s"], "pipeline"),
        (["discover", "--bootstrap-servers", "h:1", "--application-id", "a", "--output", "{state}/x"], "pipeline"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else one,
)
def test_a_command_that_needs_an_extra_says_so_in_a_sentence(words: list[str], extra: str, tmp_path: Path) -> None:
    spec = tmp_path / "stores.yaml"
    spec.write_text(SPEC)
    given = [word.format(spec=spec, state=tmp_path) for word in words]
    code = f"from statecore.cli.main import main\nsys.exit(main({[*given, '--json']}))"
    done = without_extras(code)
    assert done.returncode == Invalid.exit_code, done.stderr
    document = json.loads(done.stdout)
    assert (document["error"], document["context"]["extra"]) == ("Invalid", extra)
    assert "Traceback" not in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr


def test_a_plan_needs_no_extra(tmp_path: Path) -> None:
    spec = tmp_path / "stores.yaml"
    spec.write_text(SPEC)
    words = ["restore", "--plan", "--spec", str(spec), "--state-dir", str(tmp_path), "--timeout", "1"]
    done = without_extras(f"from statecore.cli.main import main\nsys.exit(main({words}))")
    assert done.returncode == Retryable.exit_code, done.stderr  # it got as far as asking the broker, which is not there


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["restore", "--help"], ["dump", "--help"]], ids=" ".join)
def test_help_and_version_need_no_extra(words: list[str]) -> None:
    done = without_extras(f"from statecore.cli.main import main\nmain({words})")
    assert (done.returncode, done.stderr) == (0, "")
    assert "statecore" in done.stdout


@pytest.mark.parametrize("command", ["inspect", "doctor"])
def test_a_directory_can_be_inspected_without_extras(tmp_path: Path, command: str) -> None:
    code = f"""
from pathlib import Path
from statecore import RocksDBStore, StoreKind, TopicPartition
from statecore.cli.main import main
path = Path({str(tmp_path)!r}) / "app" / "0_0" / "rocksdb" / "counts"
with RocksDBStore(path, StoreKind.TIMESTAMPED_KEY_VALUE, create_if_missing=True) as store:
    store.put(b"a", bytes(8) + b"1")
    store.commit({{TopicPartition("app-counts-changelog", 0): 0}})
sys.exit(main([{command!r}, "--state-dir", {str(tmp_path)!r}, "--json"]))
"""
    done = without_extras(code)
    assert done.returncode == 0, done.stderr
    if command == "doctor":
        assert json.loads(done.stdout)["applications"][0]["findings"] == []
        return
    (store,) = json.loads(done.stdout)["applications"][0]["stores"]
    assert (store["store"], store["rows"], store["kind"]) == ("counts", 1, "timestamped-key-value")


def test_every_extra_is_one_of_the_package_s() -> None:
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - {"test"}
    declared = {re.split(r"[<>=\[]", one)[0] for one in PROJECT["optional-dependencies"]["pipeline"]}
    assert declared == set(EXTRAS["pipeline"])
    assert not declared & {re.split(r"[<>=\[]", one)[0] for one in PROJECT["dependencies"]}


def test_what_imports_a_package_of_the_pipeline_says_so_first() -> None:
    silent = []
    for path in sorted((ROOT / "statecore").rglob("*.py")):
        imported = [
            name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        ]
        heavy = [at for at, name in enumerate(imported) if name.partition(".")[0] in EXTRAS["pipeline"]]
        if heavy and "statecore.extras.pipeline" not in imported[: heavy[0]]:
            silent.append(str(path))
    assert silent == []


def test_what_is_missing_is_an_error_of_both_worlds_and_crosses_processes() -> None:
    error = MissingExtra("pipeline", "numpy", "pyarrow")
    assert isinstance(error, Invalid)
    assert isinstance(error, ModuleNotFoundError)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.context) == (MissingExtra, str(error), error.context)
    assert error.code == copy.code == "extra-missing"
    assert (error.context["extra"], list(error.context["packages"])) == ("pipeline", ["numpy", "pyarrow"])
    assert "pip install '.[pipeline]'" in error.action


def test_only_packages_of_extras_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'.[spark]'" in str(explained(ModuleNotFoundError("", name="pyspark.sql")))
    assert explained(ModuleNotFoundError("", name="of_somebody_else")) is None
    assert explained(ModuleNotFoundError("")) is None
    assert is_installed("pipeline")
    require("pipeline")
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert not is_installed("pipeline")
    with pytest.raises(MissingExtra, match="cramjam is missing"):
        require("pipeline")
