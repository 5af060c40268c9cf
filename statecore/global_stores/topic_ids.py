"""Of which topics, by id, the databases in ``global/`` are built: nothing in a database says it.

What is remembered is of one database, by the name that RocksDB gave it when it was made (``IDENTITY``) and that it
keeps for life. A database that somebody else put there, or that Kafka Streams built, is not judged by it.
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
class _BuiltOf:
    """What a database is built of.

    Attributes:
        topic: the topic.
        topic_id: its id, 32 hex digits.
        database: RocksDB's name of the database.
    """

    topic: str
    topic_id: str
    database: str


@dataclass(frozen=True)
class _Topics:
    """What the databases are built of.

    Attributes:
        stores: by store.
    """

    stores: dict[str, _BuiltOf]


_DOCUMENT = DocumentType("record of global topics", 2, _Topics, action="Delete it; the stores are built anew.")


class RememberedTopics:
    """Which topics, by id, the databases in ``global/`` are built of.

    Args:
        directory: the application's state directory, locked.
        faults: points at which a test lets the process die.
    """

    def __init__(self, directory: StateDirectory, faults: FaultPoints) -> None:
        self._directory, self._faults = directory, faults
        self._path = directory.work_path / GLOBAL_TOPICS
        self._stores: dict[str, _BuiltOf] = {}
        self.unreadable = False
        """Whether a file is there that says nothing any more."""
        with suppress(FileNotFoundError):
            try:
                self._stores = dict(_DOCUMENT.decode(self._path.read_bytes()).stores)
            except (Invalid, OSError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                self.unreadable = True

    def of(self, store: str, topic: str, database: str) -> str | None:
        """The id of the topic that a database is built of.

        Args:
            store: the store.
            topic: its topic.
            database: RocksDB's name of the database.

        Returns:
            ``None`` where nobody knows it: of another database, or of another topic.
        """
        known = self._stores.get(store)
        if known is None or not database or (known.topic, known.database) != (topic, database):
            return None
        return known.topic_id

    def remember(self, store: str, topic: str, topic_id: str, database: str) -> None:
        """Write down of which topic the database of a store is built, in the place of any other of that store.

        Raises:
            Capacity, Invalid, Retryable: it cannot be written.
        """
        said = _BuiltOf(topic, topic_id, database)
        if self._stores.get(store) == said and not self.unreadable:
            return
        self._directory.check_locked()
        stores = {**self._stores, store: said}
        self._faults.reach("global.before-topics")
        try:
            write_durably(self._path, _DOCUMENT.encode(_Topics(stores)))
            self._directory.ownership.give(self._path)
        except OSError as error:
            raise system_error(
                error, f"{self._path} cannot be written", action=RUN_AS_APPLICATION, path=str(self._path)
            ) from error
        self._stores = stores
