"""``python -m statecore.spark.warm``: compile every kernel that is not cached for this CPU.

Kernels are compiled for the CPU model (:mod:`statecore.kernels.native`), and the machine that builds a container image
may have another one than the machine that runs it. So an image runs this when it is built and again when it starts,
which is quick if the cache fits; ``NUMBA_CACHE_DIR`` names a directory that outlives the container. It fails if kernels
cannot be cached.
"""

from __future__ import annotations

import importlib
import sys
import time

from statecore.kernels.native import uncached_libraries

KERNELS = (
    "statecore.changelog.batch_scan",
    "statecore.images.runs",
    "statecore.images.runs_digest",
    "statecore.images.kernels.reconcile_kernel",
    "statecore.images.versions.build",
)
"""Modules whose ``warm`` functions together load all kernels."""


def main() -> int:
    """Load all kernels and print how long it took; 1 if they cannot be cached."""
    began = time.monotonic()
    for name in KERNELS:
        importlib.import_module(name).warm()
    sys.stderr.write(f"kernels: ready in {time.monotonic() - began:.1f} s\n")
    return 1 if uncached_libraries else 0


if __name__ == "__main__":
    sys.exit(main())
