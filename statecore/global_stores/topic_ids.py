"""Saves the ids of the topics that the databases in ``global/`` are built of, which the databases do not record.

An id is saved for one database, by RocksDB's ``IDENTITY``, which it keeps for life. A database that was copied there,
or that Kafka Streams built, is not validated by it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from statecore.documents import DocumentType
from statecore.errors import Invalid
from statecore.faults import FaultPoints
from statecore.filesystem import write_durably
from statecore.statedir.state_directory import StateDirectory
from statecore.statedir.work_directory import GLOBAL_TOPICS
from statecore.system_errors import RUN_AS_APPLICATION, system_error


@dataclass(frozen=True)
class _DatabaseTopic:
    """Topic, its id (32 hex digits), and RocksDB's identity of a database."""

    topic: str
    topic_id: str
    database: str


@dataclass(frozen=True)
class _Topics:
    """Topics of databases, by store."""

    stores: dict[str, _DatabaseTopic]


_DOCUMENT = DocumentType("record of global topics", 2, _Topics, action="Delete it; the stores are rebuilt.")


class TopicIds:
    """The ids of the topics that the databases in ``global/`` are built of."""

    def __init__(self, directory: StateDirectory, faults: FaultPoints) -> None:
        self._directory, self._faults = directory, faults
        self._path = directory.work_path / GLOBAL_TOPICS
        self._stores: dict[str, _DatabaseTopic] = {}
        self.unreadable = False  # Whether the file exists and cannot be read
        with suppress(FileNotFoundError):
            try:
                self._stores = dict(_DOCUMENT.decode(self._path.read_bytes()).stores)
            except (Invalid, OSError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                self.unreadable = True

    def get(self, store: str, topic: str, database: str) -> str | None:
        """The id of the topic that a database is built of; ``None`` where unknown: of another database or topic."""
        known = self._stores.get(store)
        if known is None or not database or (known.topic, known.database) != (topic, database):
            return None
        return known.topic_id

    def save(self, store: str, topic: str, topic_id: str, database: str) -> None:
        """Save the topic of a store's database, in place of any other of that store."""
        built_of = _DatabaseTopic(topic, topic_id, database)
        if self._stores.get(store) == built_of and not self.unreadable:
            return
        self._directory.check_locked()
        stores = {**self._stores, store: built_of}
        self._faults.reach("global.before-topics")
        try:
            write_durably(self._path, _DOCUMENT.encode(_Topics(stores)))
            self._directory.ownership.apply(self._path)
        except OSError as error:
            raise system_error(
                error, f"{self._path} cannot be written", action=RUN_AS_APPLICATION, path=str(self._path)
            ) from error
        self._stores = stores
