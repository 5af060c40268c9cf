"""What a standby task knows of the changelogs that it follows, kept beside its stores from one process to the next.

An offset alone does not tell whether the records behind it may be put above a store: the topic may have been created
again, the log truncated, a delete compacted away (:mod:`statecore.changelog.soundness`). So for each changelog the id
of its topic, the leader epoch of the position, and a moment at which nothing lay behind it are remembered.

Of a store that is read for the first time that moment is the one before its first fetch. Compaction takes a row out of
the log at once with the delete that it keeps for ``delete.retention.ms``. So a delete behind what was read has taken
its row before the store could read it, or stays for that long from this moment on.

The record is written before the first fetch, and after each commit, never before one: a record that is behind its store
still says what is needed, and one that is ahead would say it of rows that the store has not.

A record is of the databases that it names (RocksDB's ``IDENTITY``), and says nothing of others: a copy that was moved
aside may be put back where another one has been begun meanwhile. Of several segments one that is named is enough.

A directory that Kafka Streams wrote has no record, and is taken as it is. One whose record is damaged is not: it was
known which topics its rows are of, and nobody can hold them against the topics that there are. Its changelogs are
**doubted**, in the record too, until their stores were emptied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from statecore.changelog.soundness import BaseEnd
from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.filesystem import write_durably
from statecore.formats.topic_partition import TopicPartition
from statecore.system_errors import system_error


@dataclass(frozen=True)
class StandbyLogState:
    """What is known of a changelog partition.

    Attributes:
        topic: the changelog.
        partition: its partition.
        topic_id: the id of its topic.
        end: the first offset that the store has not; -1 where the changelog is doubted.
        leader_epoch: the epoch that this end was read under; -1 where it is not known.
        read_at_ms: a moment at which nothing lay behind the end, or before the store's first record was fetched, in ms
            since the epoch; ``None`` where none is known.
        databases: the identities of the store's databases; none where they are not known.
        horizon_ms: how long deletes were kept at that moment at least; ``None`` where nobody knows it, and then the
            moment is not by the cluster's clock.
    """

    topic: str
    partition: int
    topic_id: str
    end: int
    leader_epoch: int
    read_at_ms: int | None
    databases: tuple[str, ...] = ()
    horizon_ms: int | None = None

    @property
    def age(self) -> tuple[int | None, int | None]:
        """The moment, and how long deletes were kept then."""
        return self.read_at_ms, self.horizon_ms


@dataclass(frozen=True)
class _StandbyLogStates:
    logs: tuple[StandbyLogState, ...]


_DOCUMENT = DocumentType(
    "record of followed changelogs",
    3,
    _StandbyLogStates,
    "Let statecore standby follow the task, which makes its stores anew.",
    older={1: lambda fields: fields, 2: lambda fields: fields},  # without the databases, and without the horizon
    is_sealed=True,
)
_DOUBTED = -1


class StandbyLogStates:
    """The record of one task.

    Args:
        file: where it lies; its directory exists when something is written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[TopicPartition, StandbyLogState] = {}
        self._written: Mapping[TopicPartition, StandbyLogState] | None = None

    def read(self, changelogs: Iterable[TopicPartition] = ()) -> None:
        """Take what an earlier process has left; nothing where there is none.

        Args:
            changelogs: those of the task, which are doubted where the record is damaged.

        Raises:
            Invalid, Capacity, Retryable: it is there, and the system does not let it be read.
        """
        try:
            logs = _DOCUMENT.decode(self._file.read_bytes()).logs
        except FileNotFoundError:
            logs = ()
        except Invalid:
            logs = tuple(StandbyLogState(at.topic, at.partition, "", _DOUBTED, -1, None) for at in changelogs)
        except OSError as error:
            raise system_error(
                error, f"{self._file} cannot be read", action="Check whose it is, and the disk.", path=str(self._file)
            ) from error
        self._known = {TopicPartition(one.topic, one.partition): one for one in logs}

    def is_doubted(self, changelog: TopicPartition) -> bool:
        """Whether the record of a changelog was damaged, and its store has not been emptied since."""
        known = self._known.get(changelog)
        return known is not None and known.end == _DOUBTED

    def end_of(self, changelog: TopicPartition, position: int, databases: Set[str] = frozenset()) -> BaseEnd:
        """What is known of a position; of one that is not the remembered one only what holds of any.

        Args:
            changelog: the changelog.
            position: of its store.
            databases: the identities of the store's databases, as far as they are known.

        The rows of a store may be ahead of its position, where a process was killed before it committed that: then the
        position that is remembered is the store's, because the record is written after the commit.
        """
        known = self._of(changelog, databases)
        if known is None:
            return BaseEnd(changelog, "", position, -1, None)
        if known.end == position:
            return BaseEnd(changelog, known.topic_id, position, known.leader_epoch, *known.age)
        if known.end < position:  # killed between the commit and the record: nothing lay behind the earlier end then
            return BaseEnd(changelog, known.topic_id, position, -1, *known.age)
        return BaseEnd(changelog, known.topic_id, position, -1, None)

    def has_begun(self, changelog: TopicPartition, databases: Set[str] = frozenset()) -> bool:
        """Whether a first read into these databases has begun of which nothing is known to be committed."""
        known = self._of(changelog, databases)
        return known is not None and known.end == 0

    def epochs(self) -> dict[TopicPartition, int]:
        """The leader epoch of each changelog that is known."""
        return {at: known.leader_epoch for at, known in self._known.items() if known.leader_epoch >= 0}

    def reached(self, end: BaseEnd, databases: Set[str] = frozenset()) -> None:
        """A store of these databases, where they are known, has come to this end."""
        at = end.topic_partition
        said = (end.topic_id, end.end, end.leader_epoch, end.read_at_ms)
        self._known[at] = StandbyLogState(at.topic, at.partition, *said, tuple(sorted(databases)), end.horizon_ms)

    def forget(self, changelog: TopicPartition) -> None:
        """A store was emptied."""
        self._known.pop(changelog, None)

    def _of(self, changelog: TopicPartition, databases: Set[str]) -> StandbyLogState | None:
        """The record of a changelog, unless it is of other databases."""
        known = self._known.get(changelog)
        is_of_others = known is not None and known.databases and databases and databases.isdisjoint(known.databases)
        return None if is_of_others else known

    def write(self) -> None:
        """Write the record, where it has changed.

        Raises:
            Invalid, Capacity: it cannot be written; the old one stands.
        """
        if self._known == self._written:
            return
        try:
            write_durably(self._file, _DOCUMENT.encode(_StandbyLogStates(tuple(self._known.values()))))
        except OSError as error:
            raise system_error(
                error,
                f"{self._file} cannot be written",
                action="Make room, and check whose it is.",
                path=str(self._file),
            ) from error
        self._written = dict(self._known)
