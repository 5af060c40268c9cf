"""The Python daemon of the executors, with the heavy modules loaded before it forks its workers.

Spark starts one daemon an executor and forks every Python worker from it. PySpark's own daemon imports nothing, so
each worker would load numpy, Numba and the compiled kernels for itself: more than a second of processor time each, on
the path of a job that should take ten. Here they are loaded once and inherited.

Two rules make forking safe. No thread may run when a worker is forked: OpenBLAS is told to start none, and pyarrow,
which starts one, is left to the workers. And the daemon never opens a RocksDB database: a process forked from one that
did hangs at its first flush.

Set by ``statecore.spark.session`` as ``spark.python.daemon.module``.
"""

from __future__ import annotations

import os
import sys

from statecore.jobs.preloading import WITHOUT_THREADS, preload

PRELOADED = (*WITHOUT_THREADS, "pyspark.worker")
"""Modules that every task needs and that start no thread."""


def main() -> None:
    """Preload, then serve as PySpark's daemon does."""
    try:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        preload(PRELOADED)
    except Exception as error:  # a worker will meet the same error and report it to the job
        sys.stderr.write(f"statecore: the kernels could not be preloaded: {error}\n")
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
