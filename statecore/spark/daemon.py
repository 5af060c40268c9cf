"""The Python daemon of the executors, which loads the heavy modules before it forks workers.

Spark starts one daemon per executor and forks every Python worker from it. PySpark's own daemon imports nothing, so
each worker would load numpy, Numba and the compiled kernels: more than a second of CPU time each. Here they are loaded
once and inherited.

Two rules make forking safe. No thread may run when a worker is forked: OpenBLAS is configured to start none, and
pyarrow, which starts one, is imported by the workers only. And the daemon never opens a RocksDB database: a process
forked from one that did hangs at its first flush.

``statecore.spark.session`` sets it as ``spark.python.daemon.module``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from statecore.jobs.engine.preloading import WITHOUT_THREADS, preload

PRELOADED = (*WITHOUT_THREADS, "pyspark.worker")
"""Modules that every task needs and that start no thread."""


def main() -> None:
    """Preload the modules, then run PySpark's daemon."""
    try:
        sys.path[:] = without_zips(sys.path)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        preload(PRELOADED)
    except Exception as error:  # the workers get the same error and report it to the job
        sys.stderr.write(f"statecore: the kernels could not be preloaded: {error}\n")
    from pyspark import daemon

    daemon.manager()


def without_zips(path: list[str]) -> list[str]:
    """Python's path without the zip files of an installed PySpark.

    Spark puts ``pyspark/python/lib/*.zip`` first, and every process compiles modules from a zip again: half of the time
    until the first task. Zip files of a Spark installed elsewhere stay, because they belong to its release.
    """
    zips = [Path(entry) for entry in path if entry.endswith(".zip")]
    installed = {one.parent for one in zips if one.name == "pyspark.zip" and _installs(one, path)}
    return [entry for entry in path if not (entry.endswith(".zip") and Path(entry).parent in installed)]


def _installs(zipped: Path, path: list[str]) -> bool:
    """Whether a zip is in a PySpark package on Python's path, with py4j installed next to it."""
    if len(zipped.parents) < 4:
        return False
    package = zipped.parents[2]
    return str(package.parent) in path and package.name == "pyspark" and (package.parent / "py4j").is_dir()


if __name__ == "__main__":
    main()
