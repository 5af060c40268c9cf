"""The jars of the real systems (Kafka broker and Kafka Streams 4.4.0), for the demo, the tests and the benchmark only.

``python -m tests.harness.jars`` resolves what ``ivy.xml`` names, through the Ivy that ships inside pyspark, into
``.build/jars`` of the checkout. It does nothing when the directory is complete: ``complete.json`` in it lists every
jar with its size, and the digest of the two Ivy files that led to it. Two processes that fetch at once wait for each
other.

Another version of Kafka Streams, without a broker, is fetched into a directory of its own when it is asked for by name
(``tests.golden.make_older`` does), and only then.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

BUILD = ROOT / ".build"
"""Everything that is fetched or made, and may be deleted at any time."""

JARS = BUILD / "jars"

KAFKA_VERSION = "4.4.0"
"""The version of broker and Kafka Streams that ``ivy.xml`` pins."""

_HERE = Path(__file__).resolve().parent
_MODULES = _HERE / "ivy.xml"
_STREAMS = _HERE / "ivy-streams.xml"
_SETTINGS = _HERE / "ivysettings.xml"
_ATTEMPTS = 3


def pyspark_jars() -> Path:
    """The directory of pyspark's own jars, without importing pyspark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("pyspark is not installed: run make setup")
    return Path(next(iter(found.submodule_search_locations))) / "jars"


def java() -> str:
    """The java command: of ``JAVA_HOME`` where it is set, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not candidate or not Path(candidate).exists():
        raise RuntimeError("no java on the PATH: run make setup")
    return candidate


def classpath(streams_version: str = KAFKA_VERSION) -> str:
    """The class path of broker, Kafka Streams and py4j's gateway, fetched first where it is missing.

    For another version than the normal one it has no broker.
    """
    directory = fetch(streams_version=streams_version)
    py4j = sorted(pyspark_jars().glob("py4j-*.jar"))
    return os.pathsep.join(str(jar) for jar in [*sorted(directory.glob("*.jar")), *py4j])


def fetch(verbose: bool = False, streams_version: str = KAFKA_VERSION) -> Path:
    """Brings every jar into ``.build/jars`` and returns that directory; quick when nothing is missing.

    Another version of Kafka Streams comes into ``.build/streams-<version>``.

    Raises:
        RuntimeError: Ivy could not resolve everything; the message ends with what Ivy printed last.
    """
    normal = streams_version == KAFKA_VERSION
    modules, directory = (_MODULES, JARS) if normal else (_STREAMS, BUILD / f"streams-{streams_version}")
    if _complete(modules, directory):
        return directory
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "jars.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not _complete(modules, directory):
            _resolve(modules, directory, streams_version, verbose)
    return directory


def _inputs_digest(modules: Path) -> str:
    return hashlib.sha256(modules.read_bytes() + _SETTINGS.read_bytes()).hexdigest()


def _complete(modules: Path, directory: Path) -> bool:
    try:
        recorded = json.loads((directory / "complete.json").read_text())
        return bool(recorded["inputs"] == _inputs_digest(modules)) and all(
            (directory / name).stat().st_size == size for name, size in recorded["jars"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def _resolve(modules: Path, directory: Path, streams_version: str, verbose: bool) -> None:
    ivy = sorted(pyspark_jars().glob("ivy-*.jar"))
    if not ivy:
        raise RuntimeError(f"no ivy-*.jar in {pyspark_jars()}: this pyspark does not ship Ivy")
    staging = directory.with_name(f"{directory.name}.{os.getpid()}")
    command = [
        java(),
        f"-Dstatecore.ivy.cache={BUILD / 'ivy-cache'}",
        f"-Dstatecore.streams.version={streams_version}",
        *("-cp", str(ivy[-1]), "org.apache.ivy.Main"),
        *("-settings", str(_SETTINGS), "-ivy", str(modules)),
        *("-types", "jar", "bundle", "maven-plugin"),
        *("-retrieve", f"{staging}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(staging, ignore_errors=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if verbose:
            print(done.stdout, file=sys.stderr)
        # Ivy's exit code is 0 for some failures; a failed or missing module is always said in its report.
        if (
            done.returncode == 0
            and "UNRESOLVED DEPENDENCIES" not in done.stdout
            and "FAILED DOWNLOADS" not in done.stdout
        ):
            break
        if attempt == _ATTEMPTS:
            raise RuntimeError(f"Ivy could not fetch the Kafka jars in {attempt} attempts:\n{done.stdout[-3000:]}")
        time.sleep(3 * attempt)
    sizes = {jar.name: jar.stat().st_size for jar in sorted(staging.glob("*.jar"))}
    (staging / "complete.json").write_text(json.dumps({"inputs": _inputs_digest(modules), "jars": sizes}, indent=1))
    shutil.rmtree(directory, ignore_errors=True)
    staging.rename(directory)
    shutil.rmtree(BUILD / "ivy-cache", ignore_errors=True)  # a second copy of the same bytes


if __name__ == "__main__":
    started = time.monotonic()
    directory = fetch(verbose="--verbose" in sys.argv)
    print(f"{len(list(directory.glob('*.jar')))} jars in {directory} ({time.monotonic() - started:.1f} s)")
