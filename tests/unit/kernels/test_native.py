"""Kernels are compiled once, and later processes load machine code without Numba, or compile again where they must.

A small library of its own: one of the real ones takes many seconds to compile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.case_selection import one_of

ADD = """
import sys
from statecore.kernels.library import KernelLibrary
library = KernelLibrary("mill.source")
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
{before}
sum_ = library.run("add", left=2, right=40)
assert sum_ == 42, sum_
print("compiled" if "numba" in sys.modules else "loaded")
"""

TWO_LIBRARIES = "KernelLibrary('mill.other').run('double', number=1)"


class Mill:
    """A package with a small library of kernels, and a cache directory for it."""

    def __init__(self, directory: Path) -> None:
        self.cache = directory / "cache"
        self.home = directory / "home"
        self.beside = directory / "site" / "mill" / "__pycache__"
        self.beside.parent.mkdir(parents=True)
        (self.beside.parent / "__init__.py").write_text("")
        (self.beside.parent / "constants.py").write_text("ZERO = 0\n")
        (self.beside.parent / "source.py").write_text(
            '__all__ = ["add"]\nfrom mill.constants import ZERO\n'
            "def add(left, right):\n    return left + right + ZERO\n"
        )
        (self.beside.parent / "other.py").write_text(
            '__all__ = ["double"]\ndef double(number):\n    return 2 * number\n'
        )

    def only_the_user_cache(self) -> None:
        """Files in the way of the other directories: they stop root too, which permissions do not."""
        self.beside.write_text("")
        self.cache.write_text("")

    def run(self, *, umask: int = -1, before: str = "") -> tuple[str, str]:
        """Add two numbers in a new process: whether the kernel was compiled, and what the process said."""
        env = {
            "PATH": os.environ["PATH"],
            "NUMBA_CACHE_DIR": str(self.cache),
            "XDG_CACHE_HOME": str(self.home),
            "PYTHONPATH": str(self.beside.parents[1]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-c", ADD.format(before=before)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200, umask=umask, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    def kernels(self, directory: Path) -> list[Path]:
        return list(directory.glob("*.kernel"))


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path)


@pytest.mark.full
def test_the_second_process_does_not_need_numba(mill: Mill) -> None:
    assert mill.run() == ("compiled", "")
    (file,) = mill.kernels(mill.cache)
    assert mill.run() == ("loaded", "")
    good = file.read_bytes()
    file.write_bytes(good[:-100] + b"\xcc" * 100)
    assert mill.run()[0] == "compiled"  # a damaged file is never run
    assert file.read_bytes() == good
    (mill.beside.parent / "constants.py").write_text("ZERO = 0  # another\n")
    assert mill.run()[0] == "compiled"  # what the source imports may be in the machine code


@pytest.mark.parametrize("open_to_others", one_of(["file", "directory"]))
def test_machine_code_that_others_can_change_is_not_run(mill: Mill, open_to_others: str) -> None:
    """The directory too: who can write there can put another file in the place of this one."""
    mill.run()
    (file,) = mill.kernels(mill.cache)
    mode = {"file": (0o666, 0o700), "directory": (0o644, 0o777)}[open_to_others]
    for path, bits in zip((file, mill.cache), mode, strict=True):
        path.chmod(bits)
    before = file.stat()
    assert mill.run()[0] == "compiled"
    assert (file.stat().st_ino == before.st_ino) is (
        open_to_others == "directory"
    )  # it is not trusted for writing, too
    for path, bits in ((file, 0o644), (mill.cache, 0o700)):
        if path.exists():
            path.chmod(bits)
    assert mill.run()[0] == "loaded"


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file away")
@pytest.mark.parametrize("given", one_of(["file", "directory"]))
def test_machine_code_of_another_user_is_not_run(mill: Mill, given: str) -> None:
    mill.run()
    (file,) = mill.kernels(mill.cache)
    os.chown(file if given == "file" else mill.cache, 12345, -1)
    assert mill.run()[0] == "compiled"


@pytest.mark.full
def test_a_directory_that_is_missing_is_made_private_whatever_the_umask(mill: Mill) -> None:
    for umask in (0o002, 0o077):
        assert mill.run(umask=umask) == ("compiled", "")
        assert mill.cache.stat().st_mode & 0o777 == 0o700
        assert mill.run(umask=umask) == ("loaded", "")
        shutil.rmtree(mill.cache)


@pytest.mark.full
def test_whatever_the_umask_the_user_cache_is_private_and_used(mill: Mill) -> None:
    mill.only_the_user_cache()
    user = mill.home / "statecore"
    for umask in (0o002, 0o077):
        assert mill.run(umask=umask)[0] == "compiled"
        assert user.stat().st_mode & 0o777 == 0o700
        assert len(mill.kernels(user)) == 1
        assert mill.run(umask=umask)[0] == "loaded"
        shutil.rmtree(mill.home)
    # As an earlier release made it, where the umask let the group write.
    user.mkdir(parents=True)
    user.chmod(0o775)
    assert mill.run()[0] == "compiled"
    assert mill.run()[0] == "loaded"


def test_an_unusable_cache_directory_is_reported_once_with_the_remedy(mill: Mill) -> None:
    mill.cache.mkdir()
    mill.cache.chmod(0o775)
    compiled, said = mill.run(before=TWO_LIBRARIES)
    assert compiled == "compiled"
    (line,) = said.splitlines()
    assert f"{mill.cache} can be written" in line
    assert "(mode 0775)" in line
    assert f"chmod 700 {mill.cache}" in line
    assert f"cached in {mill.beside}" in line
    assert mill.cache.stat().st_mode & 0o777 == 0o775  # it is the user's
    assert mill.run(before=TWO_LIBRARIES) == ("loaded", "")
    mill.cache.chmod(0o700)
    shutil.rmtree(mill.beside)
    assert mill.run() == ("compiled", "")


def test_without_a_cache_directory_kernels_work_with_one_warning(mill: Mill) -> None:
    mill.only_the_user_cache()
    mill.home.write_text("")
    compiled, said = mill.run(before=TWO_LIBRARIES)
    assert compiled == "compiled"
    (line,) = said.splitlines()
    assert "cannot be cached" in line
    for directory in (mill.cache, mill.beside, mill.home / "statecore"):
        assert f"{directory} " in line
    assert "Set NUMBA_CACHE_DIR" in line


REFUSED = """
from statecore.errors import Invalid
try:
    {code}
except Invalid as error:
    print(error)
    sys.exit()
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.modules['numba'] = None; library.warm()", "because Numba cannot be imported (ModuleNotFoundError"),
        ("sys.modules['llvmlite'] = None; library.warm()", "because llvmlite cannot be imported (ModuleNotFoundError"),
        (
            "import platform, llvmlite.binding as llvm\n"
            "    def unknown(): raise RuntimeError('No available targets are compatible with triple \"vax\"')\n"
            "    llvm.Target.from_default_triple = unknown; platform.machine = lambda: 'vax'; library.warm()",
            "no kernels for this machine's CPU (vax), because LLVM does not know it: No available targets",
        ),
        (
            "import platform; sys.byteorder = 'big'; platform.machine = lambda: 's390x'; library.warm()",
            "no kernels for this machine's CPU (s390x), because they need a 64-bit little-endian machine",
        ),
    ],
    ids=["no Numba", "no llvmlite", "unknown CPU", "another byte order"],
)
def test_what_keeps_kernels_from_being_made_is_one_clear_sentence(mill: Mill, code: str, said: str) -> None:
    printed, complained = mill.run(before=REFUSED.format(code=code))
    assert said in printed
    assert (len(printed.splitlines()), complained) == (1, "")
    assert any(word in printed for word in ("Run this on x86-64", "pip install --force-reinstall"))


def test_kernels_that_need_more_than_memory_are_refused(mill: Mill) -> None:
    (mill.beside.parent / "source.py").write_text(
        '__all__ = ["add"]\ndef add(left, right):\n    return len([left]) + right\n'
    )
    with pytest.raises(AssertionError, match=r"where Numba is imported|NRT required"):
        mill.run()
