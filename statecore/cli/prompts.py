"""Prompts for kinds and changelogs of stores that discovery could not determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TextIO

from statecore.discover.answers import Answers, parse_kind
from statecore.discover.spec_draft import OpenStore
from statecore.errors import Invalid
from statecore.formats.kinds import StoreKind
from statecore.spec.model import NO_CHANGELOG


def ask_on(answers: TextIO, say: Callable[[str], None]) -> Callable[[Sequence[OpenStore]], Answers]:
    """A function that asks for every open store, after it has listed all of them."""

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
        say("These could not be determined. Answer as the application declares them (an empty answer leaves a '?'):")
        for store in open_stores:
            say(store.line)
        for store in open_stores:
            if len(store.kinds) != 1:
                choices = ", ".join(map(str, store.kinds)) or "a kind"
                answer = asked(
                    f"Kind of {store.store}? {choices}", partial(parse_kind, store=store.store, among=store.kinds)
                )
                if answer:
                    kinds[store.store] = StoreKind(answer)
            if store.changelogs:
                # Whether the topic exists is checked later, for all answers together.
                choices = ", ".join(store.changelogs if len(store.changelogs) > 1 else (NO_CHANGELOG, "a topic"))
                answer = asked(f"Changelog of {store.store}? {choices}", str)
                if answer:
                    changelogs[store.store] = answer
        return Answers(kinds, changelogs)

    return ask
