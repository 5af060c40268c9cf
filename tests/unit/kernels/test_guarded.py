"""No kernel reads or writes outside of the memory it was given."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from statecore.images.kernels import kernel
from tests.unit.kernels.guard import between_guards, guarded
from tests.unit.kernels.libraries import LIBRARIES

ROOT = Path(__file__).parents[3]


def campaign(seed: int, cases: int) -> set[str]:
    """Work so many cases of each scenario; the kernels that were called."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.kernels.campaign", str(seed), str(cases)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return set(json.loads(done.stdout))


@pytest.mark.full
def test_every_kernel_stays_between_guard_pages() -> None:
    every = {f"{library.source}.{name}" for library in LIBRARIES for name in library.kernels}
    assert len(every) > 25
    assert campaign(1, 40) == every


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 5000, 1000))
def test_every_kernel_stays_between_guard_pages_in_thousands_of_cases(seed: int) -> None:
    assert len(campaign(seed, 250)) > 25


@pytest.mark.parametrize("at_end", [True, False])
def test_a_kernel_that_reads_one_byte_too_far_is_noticed(at_end: bool) -> None:
    code = (
        "from tests.unit.kernels.guard import guarded; from statecore.images.kernels import kernel\n"
        f"array = guarded(9, at_end={at_end}, fill=1)\n"
        "kernel.run('xxh64', address=array, length=9, seed=0); print('inside', flush=True)\n"
        f"kernel.run('xxh64', address=int(array.ctypes.data) - {int(not at_end)}, length=10, seed=0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("inside\n", -signal.SIGSEGV)


def test_a_kernel_writes_between_the_guards_of_its_buffers() -> None:
    sums = np.zeros(2, np.uint64)
    rows = {"key_offsets": np.array([0, 1]), "keys": np.frombuffer(b"k", np.uint8), "valid": None, "count": 1}
    rows |= {"value_offsets": np.array([0, 1]), "values": np.frombuffer(b"v", np.uint8), "seed_a": 0, "seed_b": 1}
    with between_guards(random.Random(1), kernel) as called:
        kernel.run("add_rows", sums=sums, **rows)
    assert called == {"statecore.images.kernels.kernel_source.add_rows"}
    assert sums.all()


def test_guarded_memory_ends_where_it_says() -> None:
    for count in (0, 1, 511, 512, 513):
        array = guarded(count, np.int64, fill=7)
        assert len(array) == count
        assert (array.ctypes.data + array.nbytes) % 4096 == 0
        assert guarded(count, np.int64, at_end=False).ctypes.data % 4096 == 0
