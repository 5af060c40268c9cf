"""Drafts of an application's stores before their kinds are decided, with their changelogs and evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from statecore.discover.answers import Answers
from statecore.discover.directory_stores import DirectoryStore
from statecore.discover.kind_evidence import is_suppression, listed
from statecore.discover.topology import Subtopology
from statecore.formats.kinds import StoreKind
from statecore.spec.model import NO_CHANGELOG, UNKNOWN_CHANGELOG, default_changelog
from statecore.spec.reader import is_store_name
from statecore.statedir.store_places import changelog_owner


class Changelog(NamedTuple):
    """The changelog of a store.

    Attributes:
        topic: the topic, ``none`` or ``?``.
        remark: a comment for the spec; empty for the default topic.
        candidates: possible changelogs, if it is ``?``.
    """

    topic: str
    remark: str = ""
    candidates: tuple[str, ...] = ()


def infer_changelog(
    store: str,
    default_changelog: str,
    existing: Collection[str],
    found: DirectoryStore | None,
    subtopology: Subtopology | None,
    owner_of: Callable[[str], tuple[str, str] | None],
) -> Changelog:
    """Infer the changelog of a store; ``owner_of`` names the other application and store of a topic, if any."""
    if found is not None:
        named = sorted(topic for topic in found.topics if topic in existing)
        foreign = [topic for topic in named if owner_of(topic) is not None]
        if foreign and default_changelog in existing and default_changelog not in named:
            return _of_other_application(default_changelog, foreign, owner_of)
        if len(named) == 1:
            return Changelog(named[0], _named_like(named[0], owner_of) if foreign else "")
        if found.unlogged:
            return _of_no_offset(default_changelog, existing)
    if default_changelog in existing:
        return Changelog(default_changelog)
    tables = sorted(topic for topic in subtopology.tables_of(store) if topic in existing) if subtopology else []
    if len(tables) == 1:
        return Changelog(
            tables[0],
            f"restored from {tables[0]}, whose table it is, as {default_changelog} does not exist "
            "(topology.optimization); write 'changelog: none' if it is not logged",
        )
    candidates = [NO_CHANGELOG]
    if subtopology is not None:
        candidates += sorted(topic for topic in subtopology.possible_store_inputs(store) if topic in existing)
    other = "".join(f", {topic} if it is restored from that topic" for topic in candidates[1:])
    return Changelog(
        UNKNOWN_CHANGELOG,
        f"its changelog is unknown, {default_changelog} does not exist: 'changelog: none' if the application does not "
        f"log it{other}",
        tuple(candidates),
    )


def _of_other_application(
    usual: str, foreign: list[str], owner_of: Callable[[str], tuple[str, str] | None]
) -> Changelog:
    named = "; ".join(_named_like(topic, owner_of) for topic in foreign)
    remark = (
        f"its directory has offsets of another application, though {usual} exists ({named}): is the directory a copy "
        "of that application's? Then do not use it"
    )
    return Changelog(UNKNOWN_CHANGELOG, remark, (usual, *foreign))


def _named_like(topic: str, owner_of: Callable[[str], tuple[str, str] | None]) -> str:
    application_id, store = owner_of(topic) or ("", "")
    return f"{topic} is by its name of the application {application_id} (its store {store})"


def _of_no_offset(usual: str, existing: Collection[str]) -> Changelog:
    closed = "its databases were closed and have no offset"
    if usual not in existing:
        return Changelog(NO_CHANGELOG, f"not logged: {closed}, and {usual} does not exist")
    remark = f"{closed}, though {usual} exists: 'changelog: none' if the application does not log it any more"
    return Changelog(UNKNOWN_CHANGELOG, remark, (NO_CHANGELOG, usual))


_FEW_KINDS = 4

_GENERATED = re.compile(r"STATE-STORE-[0-9]{10}$")


@dataclass(frozen=True)
class OpenStore:
    """A store with open questions for a person.

    Attributes:
        subtopology: of its tasks; -1 for a global store.
        kinds: possible kinds, sorted; one if decided.
        changelogs: possible changelogs if open; else empty.
        observations: the evidence used.
    """

    store: str
    subtopology: int
    kinds: tuple[StoreKind, ...]
    changelogs: tuple[str, ...]
    observations: tuple[str, ...]

    @property
    def line(self) -> str:
        """The open questions in one line, with every kind that can be answered."""
        return self._line(len(StoreKind))

    @property
    def note(self) -> str:
        """The same, without the kinds where there are too many to read."""
        return self._line(_FEW_KINDS)

    def _line(self, most: int) -> str:
        where = "a global store" if self.subtopology < 0 else f"subtopology {self.subtopology}"
        open_ = []
        if len(self.kinds) != 1:
            few = 0 < len(self.kinds) <= most
            open_.append(f"kind {listed(frozenset(self.kinds))}" if few else "kind unknown")
        if self.changelogs:
            open_.append(f"changelog {' or '.join(self.changelogs)}")
        seen = f" (seen: {'; '.join(self.observations)})" if self.observations else ""
        return f"  {self.store} ({where}): {', '.join(open_)}{seen}"

    def to_json(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "subtopology": self.subtopology,
            "kinds": [str(kind) for kind in self.kinds],
            "changelogs": list(self.changelogs),
            "seen": list(self.observations),
        }


@dataclass
class Notes:
    """Notes to a discovered spec.

    Attributes:
        general: lines above everything.
        by_name: comments by store name or top-level key.
        open: open questions.
    """

    general: list[str] = field(default_factory=list)
    by_name: dict[str, str] = field(default_factory=dict)
    open: list[OpenStore] = field(default_factory=list)

    @property
    def questions(self) -> list[str]:
        """What the '?' of the spec stand for, as lines; empty without one."""
        what = "Replace every '?' before restoring: only the application's code shows it (kinds: docs/stores.md)."
        return [what, *(one.note for one in self.open)] if self.open else []

    def add(self, name: str, remark: str) -> None:
        """Append a remark to the comment of a name."""
        self.by_name[name] = f"{self.by_name[name]}; {remark}" if name in self.by_name else remark


class Draft(NamedTuple):
    """A store before its kind is decided.

    Attributes:
        subtopology: of its tasks; -1 for a global store.
        found: its directory, or ``None``.
        processors: names of the processors that use it.
        in_memory: why it is assumed to be in memory; empty if it is not.
        reprocess: whether a processor of the application fills it, as is possible for a global store.
    """

    name: str
    subtopology: int
    changelog: Changelog
    found: DirectoryStore | None = None
    processors: frozenset[str] = frozenset()
    in_memory: str = ""
    reprocess: bool = False


class DraftFactory:
    """Drafts stores from topology, state directory and names of topics."""

    def __init__(
        self, application_id: str, topics: set[str], found: list[DirectoryStore], notes: Notes, answers: Answers
    ) -> None:
        self.application_id, self.topics, self.notes, self.answers = application_id, topics, notes, answers
        self.left_out: set[str] = set()
        self.found = [store for store in found if self._can_be_declared(store.name, store.subtopology < 0)]
        self.by_name = {store.name: store for store in self.found}
        self.names = set(self.by_name)
        self.tasks = {store.subtopology for store in found}

    def of_directory(self) -> list[Draft]:
        """Drafts of stores with a directory; those in memory have none."""
        drafts = []
        for store in self.found:
            if store.subtopology < 0:
                drafts += self._global_of_directory(store)
            else:
                topic = self._changelog(store.name, store, None)
                drafts.append(Draft(store.name, store.subtopology, topic, store))
        self.notes.general.append("Written from a state directory: stores that are only in memory are not in it.")
        return drafts

    def of_topology(self, subtopologies: list[Subtopology]) -> list[Draft]:
        """Drafts of the stores that the topology names."""
        drafts: list[Draft] = []
        self.names.update(*(subtopology.stores for subtopology in subtopologies))
        for subtopology in subtopologies:
            for name, sources in subtopology.stores.items():
                if not self._can_be_declared(name, subtopology.is_global):
                    continue
                if subtopology.is_global:
                    drafts += self._global(subtopology, name, sources)
                    continue
                found = self.by_name.get(name)
                memory = self._in_memory(name, subtopology.number)
                # Nothing is restored into a store in memory, so its topic does not matter.
                usual = Changelog(self._usual(name))
                topic = usual if memory and is_store_name(name) else self._changelog(name, found, subtopology)
                processors = frozenset(subtopology.processors[name])
                drafts.append(Draft(name, subtopology.number, topic, found, processors, memory))
        for name in sorted(self.by_name.keys() - {draft.name for draft in drafts}):
            self.notes.general.append(f"{name} has a state directory but is not in the topology: left out.")
        return drafts

    def _global(self, subtopology: Subtopology, name: str, sources: set[str]) -> list[Draft]:
        if not sources:
            self.notes.general.append(f"Global store {name} was left out: its source topic is unknown.")
            return []
        own = not subtopology.may_be_global_table(name)
        if own:
            self.notes.add(name, "filled by a processor of the application (Topology.addGlobalStore): restore refuses "
                                 "it, Kafka Streams rebuilds it")  # fmt: skip
        else:
            self._note_global(name)
        return [Draft(name, -1, Changelog(min(sources)), found=self.by_name.get(name), reprocess=own)]

    def _global_of_directory(self, store: DirectoryStore) -> list[Draft]:
        topics = sorted(store.topics & self.topics)
        if len(topics) != 1:
            self.notes.general.append(f"Global store {store.name} was left out: its source topic is unknown.")
            return []
        self._note_global(store.name)
        return [Draft(store.name, -1, Changelog(topics[0]), found=store)]

    def _note_global(self, name: str) -> None:
        if not _GENERATED.search(name):  # a name that only globalTable generates
            self.notes.add(name, "assumed to be a globalTable; add 'reprocess: true' if addGlobalStore fills it")

    def _in_memory(self, name: str, subtopology: int) -> str:
        """Why a store is assumed to be in memory; empty if it is not."""
        if name in self.answers.kinds:
            return "in memory, as given" if self.answers.kinds[name] is StoreKind.IN_MEMORY else ""
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

    def _can_be_declared(self, name: str, is_global: bool) -> bool:
        """Whether a spec can have this name; if not, it is noted once."""
        if not is_store_name(name, is_logged=is_global) and name not in self.left_out:
            self.left_out.add(name)
            self.notes.general.append(f"The store {name!r} was left out: a spec cannot have a store of such a name.")
        return name not in self.left_out

    def _usual(self, name: str) -> str:
        return default_changelog(self.application_id, name)

    def _changelog(self, name: str, found: DirectoryStore | None, subtopology: Subtopology | None) -> Changelog:
        if name in self.answers.changelogs:
            return Changelog(self.answers.changelogs[name])
        if is_store_name(name):
            changelog = infer_changelog(
                name,
                self._usual(name),
                self.topics,
                found,
                subtopology,
                lambda topic: changelog_owner(topic, self.application_id, self.names),
            )
        else:
            changelog = Changelog(NO_CHANGELOG, "not logged: no topic can have such a name")
        if changelog.remark:
            self.notes.add(name, changelog.remark)
        return changelog
