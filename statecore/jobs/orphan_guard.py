"""End a job when the process that started it ends, for whatever reason.

The starter holds the job's standard input, which ends with it.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, NoReturn


def exit_with_parent_process() -> None:
    """From now on exit when standard input ends; SIGTERM ends the process like ``sys.exit``."""
    signal.signal(signal.SIGTERM, _leave)  # scratch directories are removed on exit
    threading.Thread(target=_listen, name="starter", daemon=True).start()


def _leave(*_: Any) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _listen() -> None:
    while os.read(0, 1024):
        pass
    os._exit(128 + signal.SIGHUP)
