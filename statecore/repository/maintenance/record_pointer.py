"""Records beside the head of an application: documents that a command replaces, and without which everything works.

A damaged one, or one that was copied from another repository, is replaced as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from statecore.documents import Document, DocumentType, encode_json
from statecore.errors import Retryable
from statecore.objectstore.pointers import SWAP_TRIES
from statecore.repository.application_repository import ApplicationRepository


class Record(Protocol):
    """What the content of each record has.

    Attributes:
        repository_id: id of the repository.
        application_id: Kafka Streams' ``application.id``.
        generation: rises with every swap, so no two contents are equal.
    """

    @property
    def repository_id(self) -> str: ...
    @property
    def application_id(self) -> str: ...
    @property
    def generation(self) -> int: ...


T = TypeVar("T", bound=Record)


class RecordPointer(Generic[T]):
    """The pointer to a record of an application.

    Args:
        name: of the pointer.
        document: the type of its document, open and sealed; its fields begin with those of :class:`Record`.
    """

    def __init__(self, app_repository: ApplicationRepository, name: str, document: DocumentType[T]) -> None:
        self._app_repository, self._name, self._document = app_repository, name, document
        ids = app_repository.repository.descriptor.id, app_repository.application_id
        self._empty = document.type(*ids, 0)  # type: ignore[call-arg]

    def read(self) -> T:
        """The record; an empty one where there is none. Raises ``Invalid`` if another release has written it."""
        found, _ = self._read()
        return self._empty if found is None else found.value

    def change(self, change: Callable[[T], T]) -> T:
        """Replace the record by what ``change`` makes of it; unknown fields stay. Raises as :meth:`read`.

        Nothing is written if that is the same.
        """
        for _ in range(SWAP_TRIES):
            found, version = self._read()
            before = self._empty if found is None else found.value
            changed = change(before)
            if changed == before:
                return before
            record = replace(changed, generation=before.generation + 1)  # type: ignore[type-var]
            document = self._document.to_json(record) | ({} if found is None else self._document.unknown(found.raw))
            content = encode_json(self._document.sealed(document))
            if self._app_repository.pointers.swap(self._name, content, version) is not None:
                return record
        raise Retryable(
            f"The {self._document.name} of {self._app_repository.application_id} was replaced by other processes "
            f"{SWAP_TRIES} times in turn.",
            code="write-conflict",
            action="Run this again.",
            application_id=self._app_repository.application_id,
            repository=self._app_repository.url,
        )

    def _read(self) -> tuple[Document[T] | None, str | None]:
        """The record, if it is whole and of this application; and the version of the pointer, if there is one."""
        found = self._app_repository.pointers.read(self._name)
        if found is None:
            return None, None
        document = self._document.read_intact(found.content)
        if document is None:
            return None, found.version
        ids = document.value.repository_id, document.value.application_id
        is_own = ids == (self._empty.repository_id, self._empty.application_id)
        return (document if is_own else None), found.version
