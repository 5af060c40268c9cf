"""A job that ends with the process that has started it, however that one ends.

The starter holds the job's standard input. When that ends the starter is gone, and so is the job.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, NoReturn


def end_with_the_starter() -> None:
    """From now on, end when standard input does; SIGTERM ends the process as ``sys.exit`` would."""
    signal.signal(signal.SIGTERM, _leave)  # scratch directories go on the way out
    threading.Thread(target=_listen, name="starter", daemon=True).start()


def _leave(*_: Any) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _listen() -> None:
    while os.read(0, 1024):
        pass
    os._exit(128 + signal.SIGHUP)
