"""What a finding depends on beside what lies on disk: the application's guarantee, and who is to open the directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CURRENT, GLOBAL, Release
from statecore.formats.topic_partition import TopicPartition
from statecore.maintenance.catalogue import Repair, Severity
from statecore.maintenance.findings import Finding
from statecore.maintenance.leftovers import OffsetsRead
from statecore.maintenance.views import StoreView
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.spec.reader import default_changelog


@dataclass(frozen=True)
class Circumstances:
    """Under which a directory is judged.

    Attributes:
        application_id: whose it is.
        guarantee: the application's, or ``None`` where nobody said it: then the worse of the two counts.
        release: which release of Kafka Streams is to open the directory.
        spec: what is declared, or ``None``.
        cleanup_max_age_ms: the application's ``state.cleanup.dir.max.age.ms``, or ``None``.
        now_ms: the time, for what is too old.
    """

    application_id: str
    guarantee: ProcessingGuarantee | None = None
    release: Release = CURRENT
    spec: ApplicationSpec | None = None
    cleanup_max_age_ms: int | None = None
    now_ms: int = 0

    def severity(self, at_least_once: Severity, exactly_once: Severity) -> Severity:
        """How bad something is under the application's guarantee."""
        if self.guarantee is None:
            return max(at_least_once, exactly_once, key=lambda one: one.rank)
        return exactly_once if self.is_exactly_once else at_least_once

    @property
    def is_exactly_once(self) -> bool:
        """Whether it is known to be exactly-once."""
        return self.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    @property
    def is_at_least_once(self) -> bool:
        """Whether it is known to be at-least-once."""
        return self.guarantee is ProcessingGuarantee.AT_LEAST_ONCE

    def changelog_of(self, store: StoreView) -> str:
        """The topic of a store as declared, else as Kafka Streams names it; empty where it has none, or is global."""
        if store.declared is not None and store.declared.is_logged:
            return store.declared.changelog
        if not store.logged or store.task == GLOBAL:
            return ""
        return default_changelog(self.application_id, store.store, store.topology)

    def entries_of(self, store: StoreView, file: OffsetsRead) -> dict[TopicPartition, int]:
        """What a task's ``.checkpoint`` says of a store: by the partitions that it names itself, else by its topic.

        A source topic in the place of a changelog is called anyhow. So a store that is not declared, and that nothing
        else speaks of, is given what is no changelog by its name.
        """
        topic = self.changelog_of(store)
        own = {part: offset for part, offset in file.offsets.items() if part in store.offsets or part.topic == topic}
        if own or store.offsets or store.declared is not None:
            return own
        return {part: offset for part, offset in file.offsets.items() if not self.is_changelog(part.topic)}

    def is_changelog(self, topic: str) -> bool:
        """Whether a topic is one of the application's changelogs, by its name."""
        return topic.startswith(f"{self.application_id}-") and topic.endswith("-changelog")

    def is_taken_over(self, store: StoreView, file: OffsetsRead) -> bool:
        """Whether 4.3 gives a store, which has no offset of its own, that of the task's ``.checkpoint``."""
        return any(offset != OFFSET_UNKNOWN for offset in self.entries_of(store, file).values())


@dataclass(frozen=True)
class TaskView:
    """The files of one task, or of ``global/``, beside its stores.

    Attributes:
        task: which.
        checkpoint: its ``.checkpoint``.
        stores: what each ``.checkpoint_<store>`` says, by store.
        positions: the stores that have a ``.position``, and why one cannot be read.
        foreign: files that neither Kafka Streams nor this library makes.
        modified_ms: when the directory was changed last.
        unusable: files and directories that the application cannot use, each with the reason.
    """

    task: str
    checkpoint: OffsetsRead
    stores: Mapping[str, OffsetsRead] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    modified_ms: int = 0
    unusable: tuple[tuple[str, str], ...] = ()


def of_store(
    store: StoreView,
    code: str,
    severity: Severity,
    what: str,
    *,
    repair: Repair | None = None,
    segment: str = "",
    partition: TopicPartition | None = None,
    **evidence: Any,
) -> Finding:
    """A finding of a store; the sentence has the store as its subject."""
    if partition is None and len(store.offsets) == 1:
        partition = next(iter(store.offsets))
    if repair is Repair.REBUILD and not store.logged:
        repair = None  # of nothing
    return Finding(code, what, severity, store.task, store.store, segment, partition, evidence, repair)


def listed(names: list[str], most: int = 5) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def counted(number: int, what: str) -> str:
    """``1 file``, ``3 files``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
