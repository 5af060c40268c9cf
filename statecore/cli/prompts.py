"""Asks a person, on a terminal, what nothing else tells of an application's stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TextIO

from statecore.discover.answers import Answers, kind_of
from statecore.discover.spec_draft import OpenStore
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.spec.model import NO_CHANGELOG


def ask_on(answers: TextIO, say: Callable[[str], None]) -> Callable[[Sequence[OpenStore]], Answers]:
    """Who asks: every open store in turn, after all of them were listed.

    Args:
        answers: where answers are read, a line each; an empty line, or the end, leaves a store undecided.
        say: says a line.
    """

    def asked(question: str, check: Callable[[str], object]) -> str:
        while True:
            say(question)
            answer = answers.readline().strip()
            if not answer:
                return ""
            try:
                check(answer)
            except Invalid as error:
                say(f"{error.what} {error.action}")
                continue
            return answer

    def ask(open_stores: Sequence[OpenStore]) -> Answers:
        kinds: dict[str, StoreKind] = {}
        changelogs: dict[str, str] = {}
        say("Nothing here tells, as the application declares it (an empty answer leaves a '?'):")
        for store in open_stores:
            say(store.line)
        for store in open_stores:
            if len(store.kinds) != 1:
                choices = ", ".join(map(str, store.kinds)) or "a kind"
                answer = asked(
                    f"Kind of {store.store}? {choices}", partial(kind_of, store=store.store, among=store.kinds)
                )
                if answer:
                    kinds[store.store] = StoreKind(answer)
            if store.changelogs:
                # Whether a topic of that name exists is checked with all answers together.
                choices = ", ".join(store.changelogs if len(store.changelogs) > 1 else (NO_CHANGELOG, "a topic"))
                answer = asked(f"Changelog of {store.store}? {choices}", str)
                if answer:
                    changelogs[store.store] = answer
        return Answers(kinds, changelogs)

    return ask
