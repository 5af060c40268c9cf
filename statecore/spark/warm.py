"""``python -m statecore.spark.warm``: compile every kernel that is not on disk for this CPU, before a job waits for it.

Kernels are compiled for the very CPU (:mod:`statecore.kernels.native`): the machine that builds an image is not always
the one that runs it. So the image is warmed when it is built, and once more, in no time where that fits, when it
starts; ``NUMBA_CACHE_DIR`` names a directory that outlives the container. Where they cannot be kept it fails.
"""

from __future__ import annotations

import importlib
import sys
import time

from statecore.kernels.native import compiled_in_vain

KERNELS = (
    "statecore.changelog.kernel",
    "statecore.images.runs",
    "statecore.images.runs_digest",
    "statecore.images.kernels.reconcile_kernel",
    "statecore.images.versions.build",
)
"""Modules whose ``warm`` loads kernels; together they load them all."""


def main() -> int:
    """Load all kernels and say how long it took; 1 where they cannot be kept, so that this was of no use."""
    began = time.monotonic()
    for name in KERNELS:
        importlib.import_module(name).warm()
    sys.stderr.write(f"kernels: ready in {time.monotonic() - began:.1f} s\n")
    return 1 if compiled_in_vain else 0


if __name__ == "__main__":
    sys.exit(main())
