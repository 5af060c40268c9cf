"""What is said of tasks that are kept warm: what is wrong, once for all that it is wrong with, and that they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statecore.errors import StatecoreError
from statecore.words import some_of


class Messages:
    """Says each thing when it comes, and not again while it lasts.

    Args:
        say: told what an operator should read at once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._wrong: dict[str, str] = {}
        self._go_on: list[str] = []
        self._are_away = False

    def away(self, error: StatecoreError) -> None:
        """No broker tells how far any task could be followed."""
        if not self._are_away:
            self._are_away = True
            self._say(f"Nothing is followed until the brokers answer, and the copies stay as they are: {error}")

    def answered(self) -> None:
        """The brokers have told it."""
        if self._are_away:
            self._are_away = False
            self._say("The brokers answer again, and the copies are followed.")

    def wrong(self, tasks: Iterable[str], why: str) -> None:
        """Something keeps tasks from being followed, or a part of them.

        Args:
            tasks: their names.
            why: in a sentence, or several.
        """
        new = [task for task in tasks if self._wrong.get(task) != why]
        self._wrong |= dict.fromkeys(new, why)
        if new:
            self._say(f"{_named(new)}: {why}")

    def left(self, task: str, error: StatecoreError) -> None:
        """A task is left for a while."""
        if self._wrong.get(task) != str(error):
            self._wrong[task] = str(error)
            self._say(f"Task {task} is left as it is, and tried again later: {error}")

    def follows(self, task: str) -> None:
        """Nothing is wrong with a task."""
        if self._wrong.pop(task, None) is not None:
            self._go_on.append(task)

    def forget(self, task: str) -> None:
        """A task is kept no longer."""
        self._wrong.pop(task, None)

    def round_is_over(self) -> None:
        """Say which tasks go on since the last round."""
        if self._go_on:
            self._say(f"{_named(self._go_on)} {'is' if len(self._go_on) == 1 else 'are'} followed again.")
            self._go_on = []


def _named(tasks: list[str]) -> str:
    return f"Task{'' if len(tasks) == 1 else 's'} {some_of(tasks)}"
