"""Options of the driver's JVM, with a class archive; imports no PySpark, so processes that only submit jobs can use it.

The class archive (class data sharing, ``-XX:ArchiveClassesAtExit``) keeps Spark's classes parsed and verified between
starts. The JVM refuses an archive of another JVM build or of changed jars, so it is in the user's cache under a name
that identifies both; ``python -m statecore.spark.jvm`` makes it (``make setup`` runs that)::

    spark-<environment>-<JVM and jars>.jsa       two hashes; a new archive replaces the environment's older ones, and
                                                 all that no JVM was started with for ARCHIVE_RETENTION_SECONDS

Without an archive the JVM starts some seconds later.
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

ARCHIVE_RETENTION_SECONDS = 30 * 86_400.0
"""How long an archive is kept that no JVM is started with."""


def quick_start_options() -> list[str]:
    """JVM options for a driver that only schedules, with the class archive if there is one."""
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    archive = archive_path()
    if archive is not None and archive.exists():
        with suppress(OSError):  # of another user
            os.utime(archive)  # marks it as used: archives of deleted environments grow old and are removed
        options.append(f"-XX:SharedArchiveFile={archive}")
    return options


def archive_path() -> Path | None:
    """Path of the class archive for this JVM and PySpark; ``None`` without one of them."""
    identity, jars = jvm_identity(), _jars()
    if identity is None or not jars:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "statecore" / f"spark-{_hash(sys.prefix)}-{_hash(identity, *jars)}.jsa"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _jars() -> list[str]:
    """PySpark's jars with size and time, as the JVM compares them; none for a client-only PySpark."""
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
    """Identifies a JVM build without starting it, by its release file."""
    java = _java()
    if java is None:
        return None
    release = Path(java).resolve().parents[1] / "release"
    try:
        return f"{release}\n{release.read_text()}"
    except OSError:
        return None


def make_archive() -> Path | None:
    """Run a small Spark job and archive its classes; ``None`` if this JVM is older than 17, or there is no space."""
    archive = archive_path()
    identity = jvm_identity()
    if archive is None or identity is None or archive.exists():
        return archive
    major = re.search(r'JAVA_VERSION="(\d+)', identity)
    if major is None or int(major.group(1)) < 17:
        return None
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # private: compiled kernels are cached there too
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
    # The JVM writes the archive while it exits, after Python has exited.
    if done.returncode != 0 or not _wait_until_complete(partial):
        partial.unlink(missing_ok=True)
        return None
    partial.replace(archive)
    delete_unused_archives(archive)
    return archive


def delete_unused_archives(archive: Path) -> None:
    """Delete the archives that a new one replaces; a JVM that has one open keeps its content."""
    mine, before = archive.name.rpartition("-")[0], time.time() - ARCHIVE_RETENTION_SECONDS
    for older in archive.parent.glob("spark-*.jsa*"):  # also unfinished archives of killed processes
        with suppress(OSError):
            is_older = older.suffix == ".jsa" and older.name.rpartition("-")[0] == mine and older != archive
            if is_older or older.stat().st_mtime < before:
                older.unlink()


def _wait_until_complete(path: Path) -> bool:
    size, deadline = -1, time.monotonic() + 30.0
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
