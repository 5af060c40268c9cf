"""Kernels are compiled once, and later processes load machine code without Numba, or compile again where they must."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

import statecore

WARM = """
import sys
from statecore.changelog import kernel
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
kernel.warm()
print("compiled" if "numba" in sys.modules else "loaded")
"""


def _warm(package: Path, cache: Path, *, umask: int = -1, **environment: str) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "NUMBA_CACHE_DIR": str(cache),
        "XDG_CACHE_HOME": str(cache / "home"),
        "PYTHONPATH": os.pathsep.join([str(package), *site.getsitepackages()]),
        **environment,
    }
    # Without `site` and from elsewhere: an editable installation or this directory would come before the copy.
    command = [sys.executable, "-S", "-c", WARM]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=120, umask=umask)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def fresh_source(tmp_path: Path) -> Path:
    """The package where nothing was compiled yet, as in a fresh installation."""
    target = tmp_path / "site"
    shutil.copytree(Path(statecore.__file__).parent, target / "statecore", ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_the_second_process_does_not_need_numba(tmp_path: Path, fresh_source: Path) -> None:
    cache = tmp_path / "cache"
    assert _warm(fresh_source, cache) == "compiled"
    assert len(list(cache.glob("*.kernel"))) == 1
    assert _warm(fresh_source, cache) == "loaded"


def test_a_damaged_file_is_compiled_again_and_never_run(tmp_path: Path, fresh_source: Path) -> None:
    cache = tmp_path / "cache"
    _warm(fresh_source, cache)
    (file,) = cache.glob("*.kernel")
    good = file.read_bytes()
    file.write_bytes(good[:-100] + b"\xcc" * 100)
    assert _warm(fresh_source, cache) == "compiled"
    assert file.read_bytes()[:8] == good[:8]
    assert _warm(fresh_source, cache) == "loaded"


def test_machine_code_that_others_can_write_is_not_run(tmp_path: Path, fresh_source: Path) -> None:
    cache = tmp_path / "cache"
    _warm(fresh_source, cache)
    (file,) = cache.glob("*.kernel")
    file.chmod(0o666)
    assert _warm(fresh_source, cache) == "compiled"


def test_an_installation_that_cannot_be_written_falls_back_to_the_user_cache(
    tmp_path: Path, fresh_source: Path
) -> None:
    # Files in the way of the directories: they stop root too, which permissions do not.
    (fresh_source / "statecore" / "changelog" / "__pycache__").write_text("")
    (tmp_path / "cache").write_text("")
    home = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    assert _warm(fresh_source, tmp_path / "cache", **home) == "compiled"
    assert len(list((tmp_path / "home" / "statecore").glob("*.kernel"))) == 1
    assert _warm(fresh_source, tmp_path / "cache", **home) == "loaded"


def test_whatever_the_umask_the_user_cache_is_private_and_used(tmp_path: Path, fresh_source: Path) -> None:
    # Files in the way of the other directories.
    (fresh_source / "statecore" / "changelog" / "__pycache__").write_text("")
    (tmp_path / "cache").write_text("")
    home = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    for umask in (0o002, 0o077):
        assert _warm(fresh_source, tmp_path / "cache", umask=umask, **home) == "compiled"
        assert (tmp_path / "home" / "statecore").stat().st_mode & 0o777 == 0o700
        assert _warm(fresh_source, tmp_path / "cache", umask=umask, **home) == "loaded"
        shutil.rmtree(tmp_path / "home")
    # As an earlier release made it, where the umask let the group write.
    (tmp_path / "home" / "statecore").mkdir(parents=True)
    (tmp_path / "home" / "statecore").chmod(0o775)
    assert _warm(fresh_source, tmp_path / "cache", **home) == "compiled"
    assert _warm(fresh_source, tmp_path / "cache", **home) == "loaded"


def test_without_any_place_to_write_it_still_works(tmp_path: Path, fresh_source: Path) -> None:
    (fresh_source / "statecore" / "changelog" / "__pycache__").write_text("")
    (tmp_path / "cache").write_text("")
    assert _warm(fresh_source, tmp_path / "cache", XDG_CACHE_HOME=str(tmp_path / "cache")) == "compiled"
