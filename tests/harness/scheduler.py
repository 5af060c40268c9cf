"""Runs functions concurrently, one at a time, in an order that a seed determines.

Each runs in a thread of its own, and holds still at every :meth:`Scheduler.pause` until it is drawn again. Nothing else
decides what comes first, so one seeded generator gives the same run again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

_PATIENCE = 60.0


class Scheduler:
    """Draws whose turn it is.

    Args:
        chance: what it is drawn from.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._waiting: list[_Player] = []
        self._mine = threading.local()

    def start(self, function: Callable[[], None]) -> None:
        """Have a function take part; it does nothing until it is drawn."""
        self._waiting.append(_Player(function, self._mine))

    def pause(self) -> None:
        """Let others have their turn; does nothing for who takes no part."""
        player = getattr(self._mine, "player", None)
        if player is not None:
            player.hold()

    def step(self) -> bool:
        """Let one go on to its next pause, or to its end; whether there was one.

        Raises:
            BaseException: whatever the function raised.
        """
        if not self._waiting:
            return False
        player = self._chance.choice(self._waiting)
        player.go_on()
        if player.has_ended:
            self._waiting.remove(player)
            if player.raised is not None:
                raise player.raised
        return True


class _Player:
    def __init__(self, function: Callable[[], None], mine: threading.local) -> None:
        self.has_ended = False
        self.raised: BaseException | None = None
        self._function, self._mine = function, mine
        self._go, self._held = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._held.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        self._mine.player = self
        try:
            self._function()
        except BaseException as error:
            self.raised = error
        self.has_ended = True
        self._held.release()

    def hold(self) -> None:
        self._held.release()
        self._go.acquire()

    def go_on(self) -> None:
        self._go.release()
        if not self._held.acquire(timeout=_PATIENCE):
            raise TimeoutError("a function neither paused nor ended")
        if self.has_ended:
            self._thread.join()
