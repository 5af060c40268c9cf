"""Where things lie in a repository: the one place that makes names.

::

    repository.json                           the mark (repository.py)
    apps/<application id>/
      head                                    pointer: which snapshots count (head.py)
      manifests/<snapshot>.json               a snapshot (manifest.py)
      parts/<sha256>                          parts of manifests, one a task, as many as one job has written
      files/<2 hex>/<sha256>                  a run, or a file that RocksDB wrote
      packs/<sha256>                          small ones of these, one after the other (upload.py)
      contents/<identity>.json                what a store holds, once somebody has read all of it (contents.py)
      jobs/<request>.<what>                   pointers: plans and words of jobs that have no state directory; swept
      jobs/checkpoint.under-way               said by a checkpoint that takes long (statecore.jobs.in_progress_marker)
      staging/<plan>/...                      what the tasks of a job tell one another; swept

Everything but ``head``, ``jobs`` and ``staging`` is named by what it holds, or by an id that no other has, and is never
changed. All hashes are SHA-256 of the bytes as they lie there.
"""

from __future__ import annotations

from statecore.errors import Invalid

APPLICATIONS = "apps"

NEWEST = "newest"
"""Names the newest snapshot where a snapshot is asked for; no id is it."""

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Layout:
    """The names of what one application has in a repository.

    Args:
        application_id: Kafka Streams' ``application.id``.

    Raises:
        Invalid: no application can have that id.
    """

    def __init__(self, application_id: str) -> None:
        if not application_id or application_id in (".", "..") or not _LEGAL.issuperset(application_id):
            raise Invalid(
                f"{application_id!a} is no application id.",
                code="application-id-invalid",
                action="Give Kafka Streams' application.id: letters, digits, dots, dashes and underscores.",
                application_id=application_id,
            )
        self.application_id = application_id
        self._root = f"{APPLICATIONS}/{application_id}"

    @property
    def root(self) -> str:
        """What the names of all that the application has begin with."""
        return f"{self._root}/"

    @property
    def head(self) -> str:
        """The pointer that says which snapshots count."""
        return f"{self._root}/head"

    @property
    def manifests(self) -> str:
        """What the names of all manifests begin with."""
        return f"{self._root}/manifests/"

    def manifest(self, snapshot: str) -> str:
        """A snapshot."""
        return f"{self.manifests}{snapshot}.json"

    def parts(self, sha256: str) -> str:
        """The parts of manifests that one job has written."""
        return f"{self._root}/parts/{sha256}"

    def file(self, sha256: str) -> str:
        """A run, or a file that RocksDB wrote."""
        return f"{self._root}/files/{sha256[:2]}/{sha256}"

    def pack(self, sha256: str) -> str:
        """Small files, one after the other."""
        return f"{self._root}/packs/{sha256}"

    def content(self, identity: str) -> str:
        """What a store of this identity holds."""
        return f"{self._root}/contents/{identity}.json"

    @property
    def requests(self) -> str:
        """What the names of all pointers of jobs begin with."""
        return f"{self._root}/jobs/"

    def job(self, request: str, what: str) -> str:
        """A pointer of a job: ``plan``, ``attempt`` or ``report``."""
        return f"{self.requests}{request}.{what}"

    @property
    def under_way(self) -> str:
        """The word of a checkpoint that takes long."""
        return f"{self.requests}checkpoint.under-way"

    @property
    def stagings(self) -> str:
        """What the names of all staging begin with."""
        return f"{self._root}/staging/"

    def staging(self, plan_id: str) -> str:
        """What the names of a plan's staging begin with, without the last ``/``."""
        return f"{self.stagings}{plan_id}"
