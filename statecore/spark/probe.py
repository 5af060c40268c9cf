"""The program that every executor runs before the first task, to check whether its Python can run tasks.

The text of this file is passed to the executors' interpreter, which may be any: it uses the standard library only, and
imports statecore only to check for it. It reads one JSON object on standard input, the question, and prints its answer
as one line, ``STATECORE_PROBE`` and a JSON object. ``statecore.spark.executor_check`` sends and reads them.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

OUTPUT_PREFIX = "STATECORE_PROBE "


def main() -> None:
    question = json.load(sys.stdin)
    sys.path[:0] = question["sys_path"]
    answer = {
        "python": list(sys.version_info[:2]),
        "executable": sys.executable,
        "token": None if question["token"] is None else _token(question["token"]),
        "writable": question["token"] is None or os.access(Path(question["token"]).parent, os.W_OK | os.X_OK),
        "user": os.getuid(),
        "files": [path for path in question["files"] if not os.access(path, os.R_OK)],
        "brokers": unreachable(question["brokers"], question["seconds"]),
    }
    answer.update(_library(question["modules"]))
    sys.stdout.write("\n" + OUTPUT_PREFIX + json.dumps(answer) + "\n")


def _library(modules: Sequence[str]) -> dict[str, str | None]:
    """The version of statecore, and why its kernels cannot be loaded; compiles kernels if needed."""
    try:
        import statecore
    except ImportError as error:
        return {"statecore": None, "why": str(error)}
    why = None
    try:
        for name in modules:
            warm = getattr(importlib.import_module(name), "warm", None)
            if warm is not None:
                warm()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return {"statecore": statecore.__version__, "why": why}


def _token(path: str) -> str | None:
    """The content of the driver's token file here; ``None`` if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return None


def unreachable(addresses: Iterable[str], seconds: float) -> dict[str, str]:
    """The addresses (``host:port``) that accept no connection, with the reason; all are tried concurrently."""
    failed: dict[str, str] = {}

    def reach(address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
        except OSError as error:
            failed[address] = error.strerror or str(error)

    tries = [threading.Thread(target=reach, args=(address,), daemon=True) for address in addresses]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    return failed


if __name__ == "__main__":
    main()
