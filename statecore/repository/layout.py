"""Names of blobs and pointers in a repository; ``docs/repository-format.md`` lists them.

Everything but ``head``, ``jobs`` and ``staging`` is named by its content, or by a unique id, and is never changed. All
hashes are SHA-256 of the stored bytes.
"""

from __future__ import annotations

from statecore.errors import Invalid

APPLICATIONS = "apps"

NEWEST = "newest"  # Stands for the newest snapshot where a snapshot id is expected; no id equals it
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Layout:
    """Names of one application's blobs and pointers."""

    def __init__(self, application_id: str) -> None:
        if not application_id or application_id in (".", "..") or not _LEGAL.issuperset(application_id):
            raise Invalid(
                f"{application_id!a} is not a valid application id.",
                code="application-id-invalid",
                action="Give Kafka Streams' application.id: letters, digits, dots, dashes and underscores.",
                application_id=application_id,
            )
        self.application_id = application_id
        self._root = f"{APPLICATIONS}/{application_id}"

    @property
    def root(self) -> str:
        """Prefix of all names of the application."""
        return f"{self._root}/"

    @property
    def head(self) -> str:
        """The pointer to the published snapshots."""
        return f"{self._root}/head"

    @property
    def manifests(self) -> str:
        """Prefix of all manifests."""
        return f"{self._root}/manifests/"

    def manifest(self, snapshot: str) -> str:
        return f"{self.manifests}{snapshot}.json"

    def task_manifests(self, sha256: str) -> str:
        """Blob of the task manifests that one job has written."""
        return f"{self._root}/task-manifests/{sha256}"

    def file(self, sha256: str) -> str:
        """A run, or a file that RocksDB wrote."""
        return f"{self._root}/files/{sha256[:2]}/{sha256}"

    def pack(self, sha256: str) -> str:
        """Blob of concatenated small files."""
        return f"{self._root}/packs/{sha256}"

    def content(self, identity: str) -> str:
        """Content digest of a store, by its identity."""
        return f"{self._root}/contents/{identity}.json"

    @property
    def requests(self) -> str:
        """Prefix of all pointers of jobs."""
        return f"{self._root}/jobs/"

    def job(self, request: str, what: str) -> str:
        """A pointer of a job: ``plan``, ``attempt``, ``report``, or ``damaged`` of a checkpoint."""
        return f"{self.requests}{request}.{what}"

    @property
    def in_progress_marker(self) -> str:
        """In-progress marker of a long checkpoint."""
        return f"{self.requests}checkpoint.in-progress"

    @property
    def stagings(self) -> str:
        """Prefix of all staging blobs."""
        return f"{self._root}/staging/"

    def staging(self, plan_id: str) -> str:
        """Prefix of a plan's staging blobs, without the last ``/``."""
        return f"{self.stagings}{plan_id}"
