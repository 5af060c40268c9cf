"""The stores of an application before their kinds are decided: where they are, and what there is to decide by."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from statecore.discover.answers import Answers
from statecore.discover.changelog_inference import Changelog, changelog_of
from statecore.discover.kind_evidence import is_suppression, listed
from statecore.discover.survey import FoundStore
from statecore.discover.topology import Subtopology
from statecore.formats.kinds import StoreKind
from statecore.spec.reader import default_changelog

_GENERATED = re.compile(r"STATE-STORE-[0-9]{10}$")


@dataclass(frozen=True)
class OpenStore:
    """A store of which a person has to decide something.

    Attributes:
        store: its name.
        subtopology: of its tasks; -1 for a global store.
        kinds: the kinds it may be of, sorted; one when that is decided.
        changelogs: what its changelog may be, when that is open; else empty.
        seen: what was looked at.
    """

    store: str
    subtopology: int
    kinds: tuple[StoreKind, ...]
    changelogs: tuple[str, ...]
    seen: tuple[str, ...]

    @property
    def line(self) -> str:
        """It in one line."""
        where = "a global store" if self.subtopology < 0 else f"subtopology {self.subtopology}"
        open_ = []
        if len(self.kinds) != 1:
            open_.append(f"kind {listed(frozenset(self.kinds))}" if self.kinds else "kind unknown")
        if self.changelogs:
            open_.append(f"changelog {' or '.join(self.changelogs)}")
        seen = f" (seen: {'; '.join(self.seen)})" if self.seen else ""
        return f"  {self.store} ({where}): {', '.join(open_)}{seen}"

    def to_json(self) -> dict[str, Any]:
        """It as a JSON object."""
        return {
            "store": self.store,
            "subtopology": self.subtopology,
            "kinds": [str(kind) for kind in self.kinds],
            "changelogs": list(self.changelogs),
            "seen": list(self.seen),
        }


@dataclass
class Notes:
    """What a person should know of a discovered spec.

    Attributes:
        general: lines above everything.
        beside: comments by store name or top-level key.
        open: what a person has to decide.
    """

    general: list[str] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)
    open: list[OpenStore] = field(default_factory=list)

    def add(self, name: str, remark: str) -> None:
        """Append a remark to what stands beside a name."""
        self.beside[name] = f"{self.beside[name]}; {remark}" if name in self.beside else remark


class Draft(NamedTuple):
    """A store before its kind is decided: where it is, and what there is to decide by.

    Attributes:
        name: its name.
        subtopology: of its tasks; -1 for a global store.
        changelog: what it is restored from.
        topology: the named topology, or ``None``.
        found: its directory, or ``None``.
        processors: the names of the processors that use it.
        in_memory: why it is taken to be in memory; empty when it is not.
        reprocess: whether a processor of the application fills it, as it may a global store.
    """

    name: str
    subtopology: int
    changelog: Changelog
    topology: str | None = None
    found: FoundStore | None = None
    processors: frozenset[str] = frozenset()
    in_memory: str = ""
    reprocess: bool = False


class Drafts:
    """Stores as far as topology, state directory and the names of topics tell them."""

    def __init__(
        self, application_id: str, topics: set[str], found: list[FoundStore], notes: Notes, told: Answers
    ) -> None:
        self.application_id, self.topics, self.notes, self.told = application_id, topics, notes, told
        self.found = found
        self.by_name = {store.name: store for store in found}
        self.tasks = {store.subtopology for store in found}

    def of_directory(self) -> list[Draft]:
        """Stores that have a directory; those in memory cannot be seen."""
        drafts = []
        for store in self.found:
            if store.subtopology < 0:
                drafts += self._global_of_directory(store)
            else:
                topic = self._changelog(store.name, store, None)
                drafts.append(Draft(store.name, store.subtopology, topic, store.topology, store))
        self.notes.general.append("Written from a state directory: stores that are only in memory are not in it.")
        return drafts

    def of_topology(self, subtopologies: list[Subtopology]) -> list[Draft]:
        """Stores that the topology names."""
        drafts: list[Draft] = []
        for subtopology in subtopologies:
            for name, sources in subtopology.stores.items():
                if subtopology.is_global:
                    drafts += self._global(subtopology, name, sources)
                    continue
                found = self.by_name.get(name)
                memory = self._in_memory(name, subtopology.number)
                # Nothing is restored into a store in memory, so it does not matter which topic it has.
                usual = Changelog(self._usual(name, found))
                topic = usual if memory else self._changelog(name, found, subtopology)
                processors = frozenset(subtopology.processors[name])
                named = found.topology if found is not None else None
                drafts.append(Draft(name, subtopology.number, topic, named, found, processors, memory))
        for name in sorted(self.by_name.keys() - {draft.name for draft in drafts}):
            self.notes.general.append(f"{name} has a state directory but is not in the topology: left out.")
        return drafts

    def _global(self, subtopology: Subtopology, name: str, sources: set[str]) -> list[Draft]:
        if not sources:
            self.notes.general.append(f"Global store {name} was left out: its source topic is not to be seen.")
            return []
        own = not subtopology.may_be_global_table(name)
        if own:
            self.notes.add(name, "filled by a processor of the application (Topology.addGlobalStore): restore refuses "
                                 "it, Kafka Streams rebuilds it")  # fmt: skip
        else:
            self._note_global(name)
        return [Draft(name, -1, Changelog(min(sources)), found=self.by_name.get(name), reprocess=own)]

    def _global_of_directory(self, store: FoundStore) -> list[Draft]:
        topics = sorted(store.topics & self.topics)
        if len(topics) != 1:
            self.notes.general.append(f"Global store {store.name} was left out: its source topic is not to be seen.")
            return []
        self._note_global(store.name)
        return [Draft(store.name, -1, Changelog(topics[0]), found=store)]

    def _note_global(self, name: str) -> None:
        if not _GENERATED.search(name):  # a name that only globalTable generates
            self.notes.add(name, "taken for a globalTable; add 'reprocess: true' if addGlobalStore fills it")

    def _in_memory(self, name: str, subtopology: int) -> str:
        """Why a store is taken to be in memory; empty when it is not."""
        if name in self.told.kinds:
            return "in memory, as was said" if self.told.kinds[name] is StoreKind.IN_MEMORY else ""
        found = self.by_name.get(name)
        if found is not None and found.subtopology != subtopology:
            self.notes.add(name, f"the state directory has it in subtopology {found.subtopology}: another version?")
        if found is not None:
            return ""
        if is_suppression(name):
            return "in memory by its name"
        if subtopology in self.tasks:
            return "in memory, because its tasks have a directory and it has none; unless it was added since"
        return ""

    def _usual(self, name: str, found: FoundStore | None) -> str:
        return default_changelog(self.application_id, name, found.topology if found is not None else None)

    def _changelog(self, name: str, found: FoundStore | None, subtopology: Subtopology | None) -> Changelog:
        """The topic a store is restored from, ``none`` or ``?``; what is not certain is noted."""
        if name in self.told.changelogs:
            return Changelog(self.told.changelogs[name])
        changelog = changelog_of(name, self._usual(name, found), self.topics, found, subtopology)
        if changelog.remark:
            self.notes.add(name, changelog.remark)
        return changelog


def distinct(drafts: list[Draft], notes: Notes) -> list[Draft]:
    """One store of a name in a subtopology's number, which is all that a spec can hold; the others are said."""
    kept: dict[tuple[int, str], Draft] = {}
    for draft in drafts:
        first = kept.setdefault((draft.subtopology, draft.name), draft)
        if first is not draft:
            notes.general.append(
                f"{draft.name} of topology {draft.topology} was left out: topology {first.topology} has one of that "
                "name in a subtopology of that number; write a second spec for it."
            )
    return list(kept.values())
