"""The wheel as a user has it: built from this checkout, installed with its extras into environments elsewhere.

PySpark comes as a source archive that takes most of a minute to build, so its wheel is kept in ``.build``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.jars import BUILD

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("statecore", "dags", "plugins", "spark_jobs", "pyproject.toml", "README.md")
CONSTRAINTS = ROOT / "constraints.txt"

_UV = str(Path(sys.executable).with_name("uv"))


def build_wheel(directory: Path) -> Path:
    """Build the wheel from a copy of the sources, so that nothing but what is declared gets into it."""
    sources = directory / "sources"
    sources.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, sources / name)
    _run(_UV, "build", "--quiet", "--wheel", "--out-dir", str(directory / "dist"), str(sources))
    (wheel,) = (directory / "dist").glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path, *extras: str) -> Path:
    """Install the wheel with extras into a new environment, at the pinned versions; its interpreter."""
    _run(_UV, "venv", "--quiet", "--python", sys.executable, str(environment))
    python = environment / "bin" / "python"
    named = f"statecore[{','.join(extras)}]" if extras else "statecore"
    links = ("--find-links", str(_pyspark().parent)) if "spark" in extras else ()
    command = (_UV, "pip", "install", "--quiet", "--python", str(python), "-c", str(CONSTRAINTS), *links)
    _run(*command, f"{named} @ {wheel.as_uri()}")
    return python


def compiled_kernels(directory: Path) -> Path:
    """A directory of this checkout's compiled kernels, for ``NUMBA_CACHE_DIR``: compiling them takes half a minute."""
    directory.mkdir(mode=0o755)
    for file in (ROOT / "statecore").rglob("__pycache__/*.kernel"):
        shutil.copy2(file, directory / file.name)
    return directory


def _pyspark() -> Path:
    """The wheel of the pinned PySpark."""
    (pinned,) = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("pyspark==")]
    directory = BUILD / "wheels"
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"pyspark-{pinned.partition('==')[2]}-py2.py3-none-any.whl"
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wheel.exists():
            made = directory / f"made.{os.getpid()}"
            _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(made), pinned)
            (built,) = made.iterdir()
            built.rename(wheel)
            made.rmdir()
    return wheel


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
