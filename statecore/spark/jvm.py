"""Options of the driver's JVM. Imports no PySpark, so that whoever only submits jobs may use it.

The class archive (class data sharing, ``-XX:ArchiveClassesAtExit``) keeps Spark's classes parsed and verified between
starts. The JVM refuses one that another build made, or whose jars have changed since, so it lies in the user's cache
under a name that says for which it is, and is made by ``python -m statecore.spark.jvm`` (``make setup`` does)::

    spark-<environment>-<JVM and jars>.jsa       two hashes; a new one takes the place of the environment's older ones,
                                                 and of all that no JVM was started with for KEPT_SECONDS

Without it the JVM starts as ever, some seconds later.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

KEPT_SECONDS = 30 * 86_400.0
"""How long an archive stays that no JVM is started with."""


def quick_start_options() -> list[str]:
    """JVM options for a driver that only schedules, with the class archive when there is one."""
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    archive = archive_path()
    if archive is not None and archive.exists():
        with suppress(OSError):  # of another user
            os.utime(archive)  # its time says when it was used: an environment that is deleted uses its own no more
        options.append(f"-XX:SharedArchiveFile={archive}")
    return options


def archive_path() -> Path | None:
    """Where the class archive for the present JVM and PySpark lies, or ``None`` without one of them."""
    identity, jars = jvm_identity(), _jars()
    if identity is None or not jars:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "statecore" / f"spark-{_hash(sys.prefix)}-{_hash(identity, *jars)}.jsa"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _jars() -> list[str]:
    """PySpark's jars as the JVM tells them apart: by size and time. A PySpark that is a client alone has none."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        return []
    try:
        found = [(entry.name, entry.stat()) for entry in os.scandir(Path(pyspark.origin).with_name("jars"))]
    except OSError:
        return []
    return sorted(f"{name} {of.st_size} {of.st_mtime_ns}" for name, of in found)


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    from shutil import which

    return which("java")


def jvm_identity() -> str | None:
    """What tells one JVM build from another, without starting it: the release file beside its ``bin``."""
    java = _java()
    if java is None:
        return None
    release = Path(java).resolve().parents[1] / "release"
    try:
        return f"{release}\n{release.read_text()}"
    except OSError:
        return None


def make_archive() -> Path | None:
    """Run one tiny Spark job and archive the classes it loaded.

    Returns:
        The archive, or ``None`` when this JVM cannot make one (older than 13, or no room); nothing depends on it.
    """
    archive = archive_path()
    identity = jvm_identity()
    if archive is None or identity is None or archive.exists():
        return archive
    major = re.search(r'JAVA_VERSION="(\d+)', identity)
    if major is None or int(major.group(1)) < 17:
        return None
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # kernels lie there too, and only in a private place
    partial = archive.with_name(f"{archive.name}.{os.getpid()}")
    job = (
        "from pyspark import SparkConf, SparkContext\n"
        "c = SparkContext(conf=SparkConf().setMaster('local[2]').set('spark.ui.enabled', 'false')"
        ".set('spark.driver.host', '127.0.0.1').set('spark.driver.bindAddress', '127.0.0.1'))\n"
        "c.parallelize(range(4), 4).map(str).collect()\n"
        "c.stop()\n"
    )
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={partial} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    done = subprocess.run([sys.executable, "-c", job], env=environment, capture_output=True, check=False)
    # The JVM writes the archive while it exits, a moment after Python has gone.
    if done.returncode != 0 or not _wait_until_complete(partial):
        partial.unlink(missing_ok=True)
        return None
    partial.replace(archive)
    forget_unused(archive)
    return archive


def forget_unused(archive: Path) -> None:
    """Delete the archives that a new one takes the place of. A JVM that has one open keeps its content.

    Args:
        archive: the new one.
    """
    mine, before = archive.name.rpartition("-")[0], time.time() - KEPT_SECONDS
    for older in archive.parent.glob("spark-*.jsa*"):  # also what a killed process had begun
        with suppress(OSError):
            is_older = older.suffix == ".jsa" and older.name.rpartition("-")[0] == mine and older != archive
            if is_older or older.stat().st_mtime < before:
                older.unlink()


def _wait_until_complete(path: Path, seconds: float = 30.0) -> bool:
    size, deadline = -1, time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = path.stat().st_size if path.exists() else -1
        if now > 0 and now == size:
            return True
        size = now
        time.sleep(1.0)
    return False


if __name__ == "__main__":
    made = make_archive()
    sys.stderr.write(f"class archive: {made or 'none'}\n")
