"""One worker process of ``processes.py``: ``python -m statecore.jobs.engine.worker TRACE MODULE...``.

It loads the modules and their kernels, then runs batches until its pipe ends. ``TRACE`` is the file for the Python
frames of a crash in machine code.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import IO

from statecore.jobs.engine.preloading import preload
from statecore.jobs.engine.processes import receive, send


def main(trace: str, *preloaded: str) -> int:
    """Run batches until the driver closes the pipe."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # libraries must not print into the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver gets the terminal's SIGINT, too, and ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the driver until now
    with Path(trace).open("w") as left:
        faulthandler.enable(left)
        batches: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(asked, batches), daemon=True).start()
        gc.disable()  # modules are no garbage, and collecting takes a quarter of the loading time
        preload(preloaded)
        gc.freeze()
        gc.enable()
        while True:
            message = batches.get()
            try:
                work, batch = pickle.loads(message)
                answer = ("answers", work(batch))
            except Exception:
                answer = ("raised", traceback.format_exc())
            send(answers, answer)


def _listen(asked: IO[bytes], batches: queue.SimpleQueue[bytes]) -> None:
    """Queue batches; when the driver ends, exit at once, also in the middle of a task."""
    while (message := receive(asked)) is not None:
        batches.put(message)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
