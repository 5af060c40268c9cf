"""Pointers in S3: objects replaced with ``If-Match`` and created with ``If-None-Match: *``.

The version is the object's ETag. Not every S3-compatible server honours these conditions, and some do only without
concurrency; ``statecore.objectstore.s3_probe`` tests it.
"""

from __future__ import annotations

from statecore.errors import NotFound, Retryable
from statecore.objectstore.base import checked_name
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.objectstore.s3_errors import CONFLICT, EXISTS, not_s3, status_of, was_sent_again
from statecore.objectstore.s3_requests import TRIES, S3Requests

_ABSENT = 404


class S3Pointers(S3Requests, Pointers):
    """Pointers below a prefix of a bucket; arguments as of :class:`S3Requests`."""

    def read(self, name: str) -> PointerValue | None:
        try:
            with self._translated("read", checked_name(name)):
                return PointerValue(*self._read(name))
        except NotFound:
            return None

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        from botocore.exceptions import ClientError

        key = self._location.key(checked_name(name))
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        unsure = False
        with self._translated("put", name):
            for attempt in range(TRIES):
                try:
                    put = self._client.put_object(
                        Bucket=self._bucket, Key=key, Body=content, **condition, **self._encryption.create
                    )
                    if "ETag" not in put:
                        raise not_s3(self._location, "put", name, "its answer has no ETag", self._client)
                    return str(put["ETag"])
                except ClientError as error:
                    status = status_of(error)
                    unsure = unsure or was_sent_again(error)
                    if status in (EXISTS, _ABSENT) and error.response["Error"]["Code"] != "NoSuchBucket":
                        return self._own_version(name, content) if unsure else None
                    if status != CONFLICT:
                        raise
                self._pause(attempt)
        raise Retryable(
            f"The pointer {name} in {self._location} could not be replaced: other processes kept replacing it.",
            code="write-conflict",
            action="Run this again.",
            pointer=name,
        )

    def _own_version(self, name: str, content: bytes) -> str:
        """The version after a swap whose reply may have been lost, if the pointer has its content."""
        now = self.read(name)
        if now is not None and now.content == content:
            return now.version
        raise Retryable(
            f"A reply was lost, so it is unknown whether the pointer {name} in {self._location} was replaced before "
            "another process replaced it.",
            code="write-outcome-unknown",
            action="Read the pointer, and check whether it includes the change.",
            pointer=name,
        )
