"""What a standby task knows of its changelogs, saved beside its stores from one process to the next.

An offset alone does not tell whether further records may be appended to a store: the topic may have been recreated, the
log truncated, a delete compacted away (:mod:`statecore.changelog.soundness`). So for each changelog the id of its
topic, the leader epoch of the position, and a time at which no record existed beyond it are saved.

For a store that is read for the first time that is the time before its first fetch. Compaction removes a row from the
log at once with the delete that it keeps for ``delete.retention.ms``. So a delete beyond what was read has removed its
row before the store could read it, or stays for that long from this time on.

The file is written before the first fetch, and after each commit, never before one: a file that is behind its store is
still valid, and one that is ahead would vouch for rows that the store has not.

A saved state is of the databases that it names (RocksDB's ``IDENTITY``) only: a copy that was moved aside may be put
back where another one has been begun since. Of several segments one that is named is enough.

A directory that Kafka Streams wrote has no such file, and is taken as it is. One whose file is damaged is not: the
topics of its rows were known, and cannot be compared with the present ones. Its changelogs are **doubted**, in the file
too, until their stores were emptied.
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
    """What is known of a changelog partition."""

    topic: str
    partition: int
    topic_id: str  # the id of its topic
    end: int  # the first offset that the store has not; -1 where the changelog is doubted
    leader_epoch: int  # the epoch that this end was read under; -1 where unknown
    # a time at which no record existed beyond the end, or before the store's first record was fetched, in ms since the
    # epoch; None where unknown
    read_at_ms: int | None
    databases: tuple[str, ...] = ()  # the identities of the store's databases; empty where unknown
    # how long deletes were kept at that time at least; None where unknown, and then the time is not by the cluster's
    # clock
    delete_retention_ms: int | None = None

    @property
    def age(self) -> tuple[int | None, int | None]:
        """The time, and how long deletes were kept then."""
        return self.read_at_ms, self.delete_retention_ms


@dataclass(frozen=True)
class _StandbyLogStates:
    logs: tuple[StandbyLogState, ...]


_DOCUMENT = DocumentType(
    "record of followed changelogs",
    3,
    _StandbyLogStates,
    "Let a standby task run, which rebuilds its stores.",
    older={
        1: lambda fields: fields,
        2: lambda fields: fields,
    },  # without the databases, and without the delete retention
    is_sealed=True,
)
_DAMAGED = -1


class StandbyLogStates:
    """The saved states of one task's changelogs; the file's directory exists when it is written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[TopicPartition, StandbyLogState] = {}
        self._written: Mapping[TopicPartition, StandbyLogState] | None = None

    def read(self, changelogs: Iterable[TopicPartition] = ()) -> None:
        """Read the file of an earlier process; empty where there is none."""
        try:
            logs = _DOCUMENT.decode(self._file.read_bytes()).logs
        except FileNotFoundError:
            logs = ()
        except Invalid:
            logs = tuple(StandbyLogState(at.topic, at.partition, "", _DAMAGED, -1, None) for at in changelogs)
        except OSError as error:
            raise system_error(
                error, f"{self._file} cannot be read", action="Check its owner, and the disk.", path=str(self._file)
            ) from error
        self._known = {TopicPartition(one.topic, one.partition): one for one in logs}

    def is_damaged(self, changelog: TopicPartition) -> bool:
        """Whether the state of a changelog was damaged, and its store has not been emptied since."""
        known = self._known.get(changelog)
        return known is not None and known.end == _DAMAGED

    def end_of(self, changelog: TopicPartition, position: int, databases: Set[str] = frozenset()) -> BaseEnd:
        """What is known of a position; for another one than the saved only what holds of any.

        The rows of a store may be ahead of its position, where a process was killed before it committed that: then the
        saved position is the store's, because the file is written after the commit.
        """
        known = self._state_of(changelog, databases)
        if known is None:
            return BaseEnd(changelog, "", position, -1, None)
        if known.end == position:
            return BaseEnd(changelog, known.topic_id, position, known.leader_epoch, *known.age)
        if known.end < position:  # killed between commit and file: no record was beyond the earlier end then
            return BaseEnd(changelog, known.topic_id, position, -1, *known.age)
        return BaseEnd(changelog, known.topic_id, position, -1, None)

    def has_started(self, changelog: TopicPartition, databases: Set[str] = frozenset()) -> bool:
        """Whether a first read into these databases has begun without any known commit."""
        known = self._state_of(changelog, databases)
        return known is not None and known.end == 0

    def epochs(self) -> dict[TopicPartition, int]:
        """The leader epoch of each changelog that is known."""
        return {at: known.leader_epoch for at, known in self._known.items() if known.leader_epoch >= 0}

    def record_end(self, end: BaseEnd, databases: Set[str] = frozenset()) -> None:
        """Set the end of a store of these databases, where they are known."""
        at = end.topic_partition
        state = (end.topic_id, end.end, end.leader_epoch, end.read_at_ms)
        self._known[at] = StandbyLogState(
            at.topic, at.partition, *state, tuple(sorted(databases)), end.delete_retention_ms
        )

    def forget(self, changelog: TopicPartition) -> None:
        """Forget the changelog of an emptied store."""
        self._known.pop(changelog, None)

    def _state_of(self, changelog: TopicPartition, databases: Set[str]) -> StandbyLogState | None:
        """The state of a changelog, unless it is of other databases."""
        known = self._known.get(changelog)
        is_of_other_databases = (
            known is not None and known.databases and databases and databases.isdisjoint(known.databases)
        )
        return None if is_of_other_databases else known

    def write(self) -> None:
        """Write the file, if anything has changed."""
        if self._known == self._written:
            return
        try:
            write_durably(self._file, _DOCUMENT.encode(_StandbyLogStates(tuple(self._known.values()))))
        except OSError as error:
            raise system_error(
                error,
                f"{self._file} cannot be written",
                action="Free space, and check its owner.",
                path=str(self._file),
            ) from error
        self._written = dict(self._known)
