from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path

import airflow
import jsonschema

from statecore.airflow.provider import get_provider_info

ROOT = Path(__file__).resolve().parents[3]


def test_airflow_accepts_the_description() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_the_modules_it_names_exist() -> None:
    info = get_provider_info()
    for part in (*info["operators"], *info["hooks"]):
        for module in part["python-modules"]:
            importlib.import_module(module)


def test_the_package_names_it_as_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["apache_airflow_provider"]["provider_info"].partition(":")
    assert getattr(importlib.import_module(module), name) is get_provider_info
    assert get_provider_info()["package-name"] == project["name"]
