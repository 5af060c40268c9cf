"""What a finding depends on beside what lies on disk: the application's guarantee, and who is to open the directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.views import StoreView
from statecore.formats.offsets import OFFSET_UNKNOWN
from statecore.formats.releases import CURRENT, Release
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.offset_files import OffsetsRead
from statecore.statedir.store_places import changelog_at


@dataclass(frozen=True)
class CheckContext:
    """Under which a directory is judged.

    Attributes:
        application_id: whose it is.
        guarantee: the application's, or ``None`` where nobody said it: then the worse of the two counts.
        release: which release of Kafka Streams is to open the directory.
        spec: what is declared, or ``None``.
        cleanup_max_age_ms: the application's ``state.cleanup.dir.max.age.ms``, or ``None``.
        now_ms: the time, for what is too old.
        transactional: whether that release runs it with transactional state stores (KIP-892).
    """

    application_id: str
    guarantee: ProcessingGuarantee | None = None
    release: Release = CURRENT
    spec: ApplicationSpec | None = None
    cleanup_max_age_ms: int | None = None
    now_ms: int = 0
    transactional: bool = False

    def severity(self, at_least_once: Severity, exactly_once: Severity) -> Severity:
        """How bad something is under the application's guarantee."""
        if self.guarantee is None:
            return max(at_least_once, exactly_once, key=lambda one: one.rank)
        return exactly_once if self.is_exactly_once else at_least_once

    def without_offset(self, at_least_once: Severity) -> Severity:
        """How bad it is that a store of a task has no offset; without transactions exactly-once wipes the task."""
        return at_least_once if self.transactional else self.severity(at_least_once, Severity.ERROR)

    def wiping(self) -> str:
        """What exactly-once does to the task of a store without an offset, as the end of a sentence, or nothing."""
        return "" if self.transactional else ", and under exactly-once wipes its task"

    @property
    def is_exactly_once(self) -> bool:
        """Whether it is known to be exactly-once."""
        return self.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    @property
    def is_at_least_once(self) -> bool:
        """Whether it is known to be at-least-once."""
        return self.guarantee is ProcessingGuarantee.AT_LEAST_ONCE

    def changelog_of(self, store: StoreView) -> str:
        """The topic of a store as declared, else as Kafka Streams names it; empty where it has none."""
        return changelog_at(self.application_id, store.task, store.store, store.declared) if store.logged else ""

    def entries_of(self, store: StoreView, file: OffsetsRead) -> dict[TopicPartition, int]:
        """What a task's ``.checkpoint`` says of a store: by the partitions that it names itself, else by its topic.

        A source topic in the place of a changelog may have any name. So a store that has no offset, and whose changelog
        nobody has declared, is given the entries that are no changelogs by their names.
        """
        topic = self.changelog_of(store)
        own = {part: offset for part, offset in file.offsets.items() if part in store.offsets or part.topic == topic}
        if own or store.offsets or store.has_decided_changelog:
            return own
        return {part: offset for part, offset in file.offsets.items() if not self.is_changelog(part.topic)}

    def is_changelog(self, topic: str) -> bool:
        """Whether a topic is one of the application's changelogs, by its name."""
        return topic.startswith(f"{self.application_id}-") and topic.endswith("-changelog")

    def is_taken_over(self, store: StoreView, file: OffsetsRead) -> bool:
        """Whether 4.3 or later gives a store, which has no offset of its own, that of the task's ``.checkpoint``."""
        return any(offset != OFFSET_UNKNOWN for offset in self.entries_of(store, file).values())


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


def foreign(store: StoreView, offsets_of: Sequence[TopicPartition], how: CheckContext) -> Finding:
    """A store has offsets of partitions that are none of its changelog, and no others."""
    what = (
        f"has the offset of {offsets_of[0]}, which is not its changelog: the directory is of another task or "
        "application; "
    )
    if how.transactional:
        what += "Kafka Streams restores the store over these rows, under either guarantee"
    else:
        what += "at-least-once Kafka Streams restores the store over these rows, under exactly-once it wipes the task"
    severity = how.without_offset(Severity.LOSS if store.rows else Severity.WARNING)
    named = [str(one) for one in dict.fromkeys(offsets_of)]
    return of_store(store, "offset-foreign", severity, what, repair=Repair.REBUILD, partitions=named)
