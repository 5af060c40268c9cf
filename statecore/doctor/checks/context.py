"""Context of checks: the application's guarantee, spec and release, which the directory alone does not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from statecore.doctor.finding_catalog import Repair, Severity
from statecore.doctor.findings import Finding
from statecore.doctor.inspection import StoreView, TaskView
from statecore.formats.releases import CURRENT, GLOBAL, Release
from statecore.formats.task_id import TaskId
from statecore.formats.topic_partition import TopicPartition
from statecore.spec.model import ApplicationSpec, ProcessingGuarantee
from statecore.statedir.checkpoint_overlay import entries_of, migrated
from statecore.statedir.exactly_once_wipe import StoreAtStart, has_offset, why_wiped
from statecore.statedir.known_files import OffsetFileContent
from statecore.statedir.store_places import changelog_at, changelog_owner


@dataclass(frozen=True)
class CheckContext:
    """Under what conditions a directory is checked.

    Attributes:
        guarantee: the application's, or ``None`` if unknown: then the worse of the two counts.
        release: the release of Kafka Streams that will open the directory.
        cleanup_max_age_ms: the application's ``state.cleanup.dir.max.age.ms``, or ``None``.
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
        """The severity under the application's guarantee."""
        if self.guarantee is None:
            return max(at_least_once, exactly_once, key=lambda one: one.rank)
        return exactly_once if self.is_exactly_once else at_least_once

    def severity_without_offset(self, at_least_once: Severity) -> Severity:
        """Severity of a store without an offset; without transactional stores exactly-once wipes its task."""
        return at_least_once if self.transactional else self.severity(at_least_once, Severity.ERROR)

    def wipe_clause(self) -> str:
        """End of a sentence about a store without an offset; empty with transactional stores."""
        return "" if self.transactional else ", and under exactly-once wipes its task"

    @property
    def is_exactly_once(self) -> bool:
        """Whether the guarantee is known to be exactly-once."""
        return self.guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    @property
    def is_at_least_once(self) -> bool:
        """Whether the guarantee is known to be at-least-once."""
        return self.guarantee is ProcessingGuarantee.AT_LEAST_ONCE

    def changelog_of(self, store: StoreView) -> str:
        """The changelog of a store: declared, else the name that Kafka Streams uses; empty if it has none."""
        return changelog_at(self.application_id, store.task, store.store, store.declared) if store.logged else ""

    def entries_of(self, store: StoreView, file: OffsetFileContent) -> dict[TopicPartition, int]:
        """Entries of a task's ``.checkpoint`` for a store: those of its own partitions, else of its changelog.

        A source topic used as changelog may have any name. So a store with neither an offset nor a declared changelog
        gets the entries whose topics are not named like changelogs.
        """
        topic = self.changelog_of(store)
        own = entries_of(file.offsets, store.offsets, {topic}, TaskId.parse(store.task).partition)
        if own or store.offsets or store.has_decided_changelog:
            return own
        return {part: offset for part, offset in file.offsets.items() if not self.is_changelog(part.topic)}

    def is_changelog(self, topic: str) -> bool:
        """Whether a topic is named like a changelog of the application."""
        return topic.startswith(f"{self.application_id}-") and topic.endswith("-changelog")

    def finds_offset(self, store: StoreView, task: TaskView, release: Release = CURRENT) -> bool:
        """Whether a start finds an offset of a store, right or wrong, or an unreadable file."""
        file = task.stores.get(store.store)
        if file is not None and file.unreadable and not store.kind.manages_offsets:
            return True
        return has_offset(self._at_start(store, task, lambda _: True), release)

    def is_wiped(self, store: StoreView, task: TaskView) -> bool:
        """Whether an exactly-once start deletes the task of a store for it; ``False`` if the guarantee is another."""
        if self.is_at_least_once or store.in_use or store.task == GLOBAL or len(store.readable) < len(store.databases):
            return False  # with an unreadable store the start fails instead
        at_start = self._at_start(store, task, lambda part: not self.is_foreign(store, part, task))
        return why_wiped(at_start, self.release, transactional=self.transactional) is not None

    def is_every_task_wiped(self, store: StoreView, task: TaskView) -> bool:
        """Whether an exactly-once start ends at a store, and deletes all tasks: an open segment is after a closed one.

        The start leaves the segments before it open, and cannot open them again in that process.
        """
        opened = [one.is_open for one in store.databases]
        return not self.transactional and self.is_wiped(store, task) and True in opened and not opened[0]

    def is_foreign(self, store: StoreView, part: TopicPartition, task: TaskView) -> bool:
        """Whether an offset is of a changelog partition that is not the store's; topic prefixes are configurable.

        Without a spec it is another store's of the task if its name ends with that one's.
        """
        if part.partition != TaskId.parse(store.task).partition:
            return True
        if store.has_decided_changelog:
            return part.topic != self.changelog_of(store)
        others = task.store_names if self.spec is None and not _is_named_after(part.topic, store.store) else ()
        if any(_is_named_after(part.topic, name) for name in others):
            return True
        return changelog_owner(part.topic, self.application_id, (store.store,)) is not None

    def _at_start(self, store: StoreView, task: TaskView, counts: Callable[[TopicPartition], bool]) -> StoreAtStart:
        """What a start finds of a store, of the offsets that count."""

        def counted(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            return {part: offset for part, offset in offsets.items() if counts(part)}

        file = task.stores.get(store.store)
        return StoreAtStart(
            [replace(one.state, offsets=counted(one.offsets)) for one in store.readable],
            None,
            None,
            store.kind,
            segmented=store.segmented,
            logged=store.logged,
            own_file={} if file is None else counted(file.offsets),
            task_file=counted(self.entries_of(store, task.checkpoint)),
        )

    def has_older_segments(self, store: StoreView, task: TaskView) -> bool:
        """Whether some segments keep an offset, and others have rows and no place for one.

        Kafka Streams goes by those that have one. With an offset in ``.checkpoint`` it gives that to all of them.
        """
        older = any(one.rows and not one.has_offsets_family for one in store.readable)
        return (
            older
            and any(one.offsets for one in store.readable)
            and not self.adopts_checkpoint_offset(store, task.checkpoint)
        )

    def adopts_checkpoint_offset(self, store: StoreView, file: OffsetFileContent) -> bool:
        """Whether 4.3 or later reads the offset of a store without one from the task's ``.checkpoint``."""
        return bool(migrated(self.entries_of(store, file)))


def _is_named_after(topic: str, store: str) -> bool:
    return topic.endswith(f"-{store}-changelog")


_UNLOGGED_REMEDY = (
    "A store without a changelog cannot be rebuilt: put a copy of its directory back, or move it away, and Kafka "
    "Streams creates an empty one."
)
_SPEC_MAY_BE_WRONG = frozenset({"kind-mismatch", "segment-missing"})


def store_finding(
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
    """A finding about a store; the store is the subject of its sentence."""
    if partition is None and len(store.offsets) == 1:
        partition = next(iter(store.offsets))
    remedy = ""
    if repair is Repair.REBUILD and not store.logged:
        repair = None  # nothing to rebuild it from
        remedy = "" if code in _SPEC_MAY_BE_WRONG else _UNLOGGED_REMEDY
    return Finding(code, what, severity, store.task, store.store, segment, partition, evidence, repair, remedy)


def foreign_offsets(store: StoreView, offsets_of: Sequence[TopicPartition], context: CheckContext) -> Finding:
    """Finding: a store has offsets only of partitions that are not its changelog."""
    what = (
        f"has the offset of {offsets_of[0]}, which is not its changelog: the directory belongs to another store, task "
        "or application; "
    )
    if context.transactional:
        what += "Kafka Streams restores the store over these rows, under either guarantee"
    else:
        what += "at-least-once Kafka Streams restores the store over these rows, under exactly-once it wipes the task"
    severity = context.severity_without_offset(Severity.LOSS if store.rows else Severity.WARNING)
    named = [str(one) for one in dict.fromkeys(offsets_of)]
    return store_finding(store, "offset-foreign", severity, what, repair=Repair.REBUILD, partitions=named)
