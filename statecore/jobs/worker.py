"""One worker process of :mod:`statecore.jobs.processes`: ``python -m statecore.jobs.worker TRACE MODULE...``.

It loads the modules, their kernels too, then answers batches until its pipe ends. ``TRACE`` is the file in which a
crash in machine code leaves the Python lines that led to it.
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

from statecore.jobs.pipeline.preloading import preload
from statecore.jobs.processes import receive, send


def main(trace: str, *preloaded: str) -> int:
    """Work until the driver lets go of the pipe."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what a library prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's goes to the driver, too, which ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the driver has blocked it until now
    with Path(trace).open("w") as left:
        faulthandler.enable(left)
        batches: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(asked, batches), daemon=True).start()
        gc.disable()  # modules are no garbage, and looking through them takes a quarter of loading them
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
    """Hand on what is asked; the end of the driver is the end of this process, in the middle of whatever it does."""
    while (message := receive(asked)) is not None:
        batches.put(message)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
