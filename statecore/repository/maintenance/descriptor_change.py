"""Swaps the repository descriptor for a changed one, for promotions, key rotations and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from statecore.documents import encode_json
from statecore.errors import Fenced
from statecore.objectstore.pointers import SWAP_TRIES
from statecore.repository.descriptor import DESCRIPTOR, DESCRIPTOR_NAME, RepositoryDescriptor, Role
from statecore.repository.repository import Repository


def change_descriptor(
    repository: Repository, change: Callable[[RepositoryDescriptor], RepositoryDescriptor | None]
) -> Repository:
    """Swap the descriptor for what ``change`` makes of it; the repository as it is then.

    Raises ``Fenced`` if it is another repository's by now, or if ``change`` returns ``None`` for what is there, and
    ``Invalid`` if a newer release has to write it.
    """
    object_store = repository.object_store
    for _ in range(SWAP_TRIES):
        found = object_store.pointers.read(DESCRIPTOR_NAME)
        if found is None:
            break
        document = DESCRIPTOR.read(found.content)
        document.value.needs.check_writable(f"The repository at {object_store.url}")
        changed = change(document.value) if document.value.id == repository.descriptor.id else None
        if changed is None:
            break
        content = encode_json(DESCRIPTOR.sealed(DESCRIPTOR.rewritten(document, changed)))
        if changed == document.value or object_store.pointers.swap(DESCRIPTOR_NAME, content, found.version):
            return Repository(object_store, changed)
    raise Fenced(
        f"The descriptor of the repository at {object_store.url} was replaced by another process.",
        code="repository-replaced",
        action="Check which process writes there, and run this again.",
        repository=object_store.url,
    )


def add_needs(replica: Repository, source: Repository) -> Repository:
    """Let the descriptor of a replica need what that of its source needs; to be called before anything is copied.

    What only the replica needs stays: what is there may need it. Raises ``Fenced`` if it is no replica any more.
    """

    def change(found: RepositoryDescriptor) -> RepositoryDescriptor | None:
        needs = found.needs.and_also(source.descriptor.needs)
        return replace(found, needs=needs) if found.role is Role.REPLICA else None

    return replica if change(replica.descriptor) == replica.descriptor else change_descriptor(replica, change)
