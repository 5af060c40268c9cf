"""A home of its own for Airflow inside a test process, set before Airflow is first imported.

Airflow reads AIRFLOW_HOME when it is imported, and writes its configuration there. Every pytest process therefore gets
a directory of its own, which goes when the process does. Nothing is imported and nothing migrated until a test asks.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def settle() -> None:
    """Point Airflow to a fresh home; later calls in the same process change nothing."""
    if "STATECORE_TEST_AIRFLOW_PID" in os.environ and os.environ["STATECORE_TEST_AIRFLOW_PID"] == str(os.getpid()):
        return
    if "airflow" in sys.modules:
        raise RuntimeError("Airflow was imported before its home was set")
    home = tempfile.mkdtemp(prefix="statecore-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in [name for name in os.environ if name.startswith(("AIRFLOW", "STATECORE_S", "STATECORE_R"))]:
        del os.environ[name]
    os.environ.update(
        {
            "STATECORE_TEST_AIRFLOW_PID": str(os.getpid()),
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,vera:viewer",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of this test process alone, and longer than the " + "64 bytes " * 4,
        }
    )


@cache
def migrate() -> None:
    """Make Airflow's database in this process's home, once."""
    from airflow.utils.db import initdb

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        initdb()
