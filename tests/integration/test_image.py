"""What the image installs: resolved against the registry's metadata, and run as the image runs it, without Docker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = "3.11"
"""The Python of the base image; a unit test holds it against the Dockerfile."""

pytestmark = [pytest.mark.integration]


def resolved(directory: Path, extras: str, *requirements: str) -> subprocess.CompletedProcess[str]:
    """What a resolver makes of the wheel with these extras, the requirements and the pins; every package on a line."""
    wanted = directory / "requirements.in"
    wanted.write_text("\n".join([f"statecore[{extras}] @ {ROOT.as_uri()}", *requirements]))
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-annotate", "--no-header"]
    command = [*uv, "--python-version", PYTHON, "--constraint", str(ROOT / "constraints.txt"), str(wanted)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


def installed_extras() -> str:
    (extras,) = re.findall(r"extras=\$\{2:-([a-z0-9,]+)\}", (ROOT / "docker" / "install.sh").read_text())
    return str(extras)


def test_the_pins_decide_every_package_that_the_image_installs_and_agree_with_each_other(tmp_path: Path) -> None:
    """The slim base image holds Airflow and what it needs, so what the resolver names is all there is in the image."""
    requirements = (ROOT / "docker" / "requirements.txt").read_text().splitlines()
    done = resolved(tmp_path, installed_extras(), *(line for line in requirements if not line.startswith("#")))
    assert done.returncode == 0, done.stderr
    found = [line.partition(" ;")[0] for line in done.stdout.splitlines() if "==" in line]
    pins = set((ROOT / "constraints.txt").read_text().splitlines())
    assert len(found) > 100
    assert [line for line in found if line not in pins] == []


@pytest.mark.full
def test_pins_that_do_not_agree_are_found(tmp_path: Path) -> None:
    """Why it is the slim image: the extras of the full one cannot be had at these pins."""
    done = resolved(tmp_path, "airflow", "boto3", "apache-airflow[aiobotocore]==3.3.2")
    assert done.returncode != 0
    assert "aiobotocore" in done.stderr


@pytest.mark.long
def test_the_steps_of_the_image_make_an_installation_that_has_its_kernels_compiled(tmp_path: Path) -> None:
    """``docker/install.sh`` in a fresh environment; some minutes, because everything is installed again."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL", "NUMBA"))
    }
    environment |= {"PATH": f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{environment['PATH']}"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    source = tmp_path / "source"  # what .dockerignore lets in
    for line in (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines():
        name = line.removeprefix("!").partition("/")[0]
        if not line.startswith("!") or (source / name).exists():
            continue
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    command = ["bash", str(source / "docker" / "install.sh"), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import statecore.spark.warm as warm, sys; warm.main(); sys.exit('numba' in sys.modules)"
    python = str(tmp_path / "venv" / "bin" / "python")
    warm = subprocess.run(
        [python, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert warm.returncode == 0, f"kernels were compiled once more: {warm.stderr}"
