"""Names of blobs and pointers in a repository; ``docs/repository-format.md`` lists them.

Everything but ``HEAD``, ``verified``, ``retention``, ``diverged``, ``jobs`` and ``staging`` is named by its content, or
by a unique id, and is never changed. All hashes are SHA-256 of the content; names in an encrypted repository have a
keyed hash of that. The names of files, packs and task manifests end with the collection number of the head under which
they were put (:mod:`statecore.repository.maintenance.garbage`): a name that was ever deleted is never made again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from statecore.errors import Invalid
from statecore.objectstore.base import LONGEST_PART, Blob, Blobs, is_name

APPLICATIONS = "apps"

NEWEST = "newest"  # Stands for the newest snapshot where a snapshot id is expected; no id equals it
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


_HASH = "[0-9a-f]{64}"
_FORMS = {
    "HEAD": "",
    "verified": "",
    "retention": "",
    "diverged": "",
    "garbage": rf"/\d{{6,}}-\d{{12,}}-{_HASH}",
    "manifests": r"/[^/]+\.json",
    "contents": rf"/{_HASH}\.json",
    "files": rf"/([0-9a-f]{{2}})/(?=\1){_HASH}\.\d+",
    "packs": rf"/{_HASH}\.\d+",
    "task-manifests": rf"/{_HASH}\.\d+",
    "jobs": r"/(in-progress/[^/]+|[^/]+\.(plan|attempt|report|damaged|in-progress))",
    "staging": r"/[^/]+/.+",
}
"""What follows each kind in the names of its blobs; names of any other form are not of this release."""

_KINDS = {kind: re.compile(form, re.ASCII) for kind, form in _FORMS.items()}


def _itself(sha256: str) -> str:
    return sha256


def is_application_id(text: str) -> bool:
    return is_name(text) and _LEGAL.issuperset(text)


class Layout:
    """Names of one application's blobs and pointers.

    Args:
        application_id: the application.
        collection: new names end with it.
        hash_in_name: what a name has in place of a SHA-256 (:meth:`statecore.objectstore.base.Blobs.hash_in_name`).
    """

    def __init__(self, application_id: str, collection: int = 0, hash_in_name: Callable[[str], str] = _itself) -> None:
        if not is_application_id(application_id):
            raise Invalid(
                f"{application_id!a} is not a valid application id.",
                code="application-id-invalid",
                action="Give Kafka Streams' application.id: letters, digits, dots, dashes and underscores, at most "
                f"{LONGEST_PART}.",
                application_id=application_id,
            )
        self.application_id, self.collection = application_id, collection
        self._root, self._hash_in_name = f"{APPLICATIONS}/{application_id}", hash_in_name

    @property
    def root(self) -> str:
        """Prefix of all names of the application."""
        return f"{self._root}/"

    def kind_of(self, name: str) -> str:
        """The kind of a blob of the application, the first part of its name: ``files``, ``packs``, ``manifests``, …

        Empty if this release makes no such name: whoever put it, it is left alone.
        """
        rest = name.removeprefix(self.root)
        kind = rest.partition("/")[0]
        form = _KINDS.get(kind)
        is_own = form is not None and form.fullmatch(rest, len(kind)) and is_name(name)
        return kind if is_own else ""

    def listed(self, blobs: Blobs, kind: str) -> Iterator[Blob]:
        """The blobs of one kind, in the order of their names."""
        return (blob for blob in blobs.list(f"{self.root}{kind}/") if self.kind_of(blob.name) == kind)

    @property
    def head(self) -> str:
        """The pointer to the published snapshots."""
        return f"{self._root}/HEAD"  # sorts first: a copy in the order of names has all that its head names

    @property
    def manifests(self) -> str:
        """Prefix of all manifests."""
        return f"{self._root}/manifests/"

    def manifest(self, snapshot: str) -> str:
        return f"{self.manifests}{snapshot}.json"

    def task_manifests(self, sha256: str) -> str:
        """Blob of the task manifests that one job has written."""
        return f"{self._root}/task-manifests/{self._hash_in_name(sha256)}.{self.collection}"

    def file(self, sha256: str) -> str:
        """A run, or a file that RocksDB wrote."""
        named = self._hash_in_name(sha256)
        return f"{self._root}/files/{named[:2]}/{named}.{self.collection}"

    def pack(self, sha256: str) -> str:
        """Blob of concatenated small files."""
        return f"{self._root}/packs/{self._hash_in_name(sha256)}.{self.collection}"

    def content(self, identity: str) -> str:
        """Content digest of a store, by its identity."""
        return f"{self._root}/contents/{self._hash_in_name(identity)}.json"

    @property
    def requests(self) -> str:
        """Prefix of all pointers of jobs."""
        return f"{self._root}/jobs/"

    def job(self, request: str, what: str) -> str:
        """A pointer of a job: ``plan``, ``attempt``, ``report``, or ``damaged`` of a checkpoint."""
        return f"{self.requests}{request}.{what}"

    @property
    def in_progress_markers(self) -> str:
        """Prefix of all in-progress markers."""
        return f"{self.requests}in-progress/"

    def in_progress_marker(self, request: str) -> str:
        """In-progress marker of a job."""
        return f"{self.in_progress_markers}{request}"

    @property
    def verified(self) -> str:
        """The pointer to what was verified when."""
        return f"{self._root}/verified"

    @property
    def retention(self) -> str:
        """The pointer to the pins and the retention, for a head that is lost."""
        return f"{self._root}/retention"

    @property
    def diverged(self) -> str:
        """In a replica, the pointer to which head of it the source was found not to go on with."""
        return f"{self._root}/diverged"

    @property
    def records(self) -> tuple[str, ...]:
        """The pointers that an application always keeps."""
        return self.head, self.verified, self.retention, self.diverged

    @property
    def garbage_lists(self) -> str:
        """Prefix of all lists of garbage."""
        return f"{self._root}/garbage/"

    def garbage_list(self, epoch: int, generation: int, sha256: str) -> str:
        """The list of what no head reaches from this epoch and generation on."""
        return f"{self.garbage_lists}{epoch:06}-{generation:012}-{sha256}"

    @property
    def stagings(self) -> str:
        """Prefix of all staging blobs."""
        return f"{self._root}/staging/"

    def staging(self, plan_id: str) -> str:
        """Prefix of a plan's staging blobs, without the last ``/``."""
        return f"{self.stagings}{plan_id}"


def printable(name: str) -> str:
    """A name as it can be printed: that of a file may have bytes that are no text."""
    return name.encode(errors="backslashreplace").decode()


def collection_of(name: str) -> int | None:
    """The collection number at the end of a blob's name; ``None`` if it has none."""
    _, dot, number = name.rpartition("/")[2].rpartition(".")
    return int(number) if dot and number.isascii() and number.isdigit() else None


def hash_of(name: str) -> str:
    """The hash in the name of a blob that is named by its content, as ``Blobs.hash_in_name`` gives it."""
    return name.rpartition("/")[2].partition(".")[0]


def is_collected(name: str, collection: int) -> bool:
    """Whether a blob may be deleted unless the head reaches it: it was put before the collection before this one."""
    number = collection_of(name)
    return number is not None and number < collection - 1
