"""Blobs and pointers in S3, or in any compatible server that honours conditional writes.

A blob is an object, put with ``If-None-Match: *``: of several concurrent puts of one name exactly one wins, on AWS and
on the servers that ``statecore repo init`` accepts. A small blob is one request. A large one is a multipart upload,
with the condition on the request that completes it; until then it is invisible::

    PutObject                 up to 16 MiB
    CreateMultipartUpload  →  UploadPart * n, 4 at once  →  CompleteMultipartUpload (If-None-Match)

Every request carries a CRC-32 of its body, which the server verifies and returns in the object's metadata. A damaged
object is replaced by the same requests without the condition. botocore retries failed requests, with random pauses.
After a lost reply the retry finds the first request's object: each put stores a token in the object's metadata, by
which it recognises its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from statecore.errors import NotFound, Retryable
from statecore.objectstore.base import Blob, Blobs, checked_name, checked_range
from statecore.objectstore.checksum import Checksum
from statecore.objectstore.content import Content, bytes_of, check_content, size_of
from statecore.objectstore.pointers import Pointers, PointerValue
from statecore.objectstore.s3_errors import (
    CONFLICT,
    EXISTS,
    MISSING,
    NO_RANGE,
    NOT_THERE,
    not_s3,
    status_of,
    was_sent_again,
)
from statecore.objectstore.s3_location import S3Location
from statecore.objectstore.s3_requests import TRIES, S3Requests

PART = 16 << 20
"""Bytes of a part, and the maximum of a blob that is put by one request."""

_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 4
_TOKEN = "statecore-put"
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")  # Storage classes; GLACIER_IR is read at once
_STATUS_OF_REFUSAL = {"AccessDenied": 403, "SlowDown": 503, "InternalError": 500}
"""HTTP status for an error of one object in the answer to a request for many."""


class S3Blobs(S3Requests, Blobs):
    """Blobs below a prefix of a bucket."""

    def __init__(self, location: S3Location, client: Any = None, *, part: int = PART, **options: Any) -> None:
        super().__init__(location, client, **options)
        self._part = part

    def put_if_absent(self, name: str, content: Content) -> bool:
        key = self._location.key(checked_name(name))
        check_content(content)
        size = size_of(content)
        with self._translated("put", name):
            if size > self._part and self._is_there(key):  # saves the upload
                return False
            token = uuid.uuid4().hex
            return self._put(name, key, token, lambda: self._send(key, content, size, token, IfNoneMatch="*"))

    def replace(self, name: str, content: Content) -> None:
        key = self._location.key(checked_name(name))
        check_content(content)
        size = size_of(content)
        token = uuid.uuid4().hex
        with self._translated("put", name):
            self._put(name, key, token, lambda: self._send(key, content, size, token))

    def _put(self, name: str, key: str, token: str, send: Callable[[], None]) -> bool:
        """Send a blob, and retry after a conflict with a concurrent request for its key."""
        from botocore.exceptions import ClientError

        unsure = False
        for attempt in range(TRIES):
            try:
                send()
            except ClientError as error:
                unsure = unsure or was_sent_again(error)
                if status_of(error) == EXISTS:
                    return unsure and self._token_of(key) == token
                if error.response["Error"]["Code"] == "NoSuchUpload" and self._token_of(key) == token:
                    return True  # it was completed, and the reply was lost
                if status_of(error) != CONFLICT:
                    raise
                self._pause(attempt)
            else:
                return True
        raise Retryable(
            f"The blob {name} in {self._location} could not be put: other processes kept writing it at the same time.",
            code="write-conflict",
            action="Run this again.",
            blob=name,
        )

    def _send(self, key: str, content: Content, size: int, token: str, **condition: str) -> None:
        arguments = {"Bucket": self._bucket, "Key": key, "Metadata": {_TOKEN: token}, **self._encryption.create}
        if size > self._part:
            self._send_parts(arguments, content, size, condition)
        else:
            self._client.put_object(Body=bytes_of(content, 0, size), **condition, **arguments)

    def _send_parts(self, arguments: dict[str, Any], content: Content, size: int, condition: dict[str, str]) -> None:
        client = self._client
        upload = client.create_multipart_upload(ChecksumAlgorithm="CRC32", **arguments)
        of = {"Bucket": self._bucket, "Key": arguments["Key"], "UploadId": upload["UploadId"]}
        part = self._part_of(size)

        def send(number: int) -> dict[str, Any]:
            body = bytes_of(content, number * part, min(size, (number + 1) * part))
            sent = client.upload_part(
                Body=body, PartNumber=number + 1, ChecksumAlgorithm="CRC32", **of, **self._encryption.access
            )
            checksum = {name: sent[name] for name in ("ChecksumCRC32",) if name in sent}
            return {"PartNumber": number + 1, "ETag": sent["ETag"], **checksum}

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE, "statecore-part") as pool:
                sending = [pool.submit(send, number) for number in range(-(-size // part))]
                try:
                    parts = [one.result() for one in sending]
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
            client.complete_multipart_upload(
                MultipartUpload={"Parts": parts}, **condition, **of, **self._encryption.access
            )
        except BaseException:
            with suppress(Exception):  # leftover parts take space until a lifecycle rule removes them
                client.abort_multipart_upload(**of)
            raise

    def _part_of(self, size: int) -> int:
        return max(self._part, -(-size // _MOST_PARTS))

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        from botocore.exceptions import ClientError

        checked_range(start, end)
        checked_name(name)
        if end == start:
            self.head(name)
            return b""
        last = "" if end is None else end - 1
        span = {} if (start, end) == (0, None) else {"Range": f"bytes={start}-{last}"}
        with self._translated("read", name):
            try:
                return self._read(name, **span)[0]
            except ClientError as error:
                if status_of(error) == NO_RANGE:
                    return b""
                raise

    def head(self, name: str) -> Blob:
        key = self._location.key(checked_name(name))
        with self._translated("read", name):
            found = self._client.head_object(
                Bucket=self._bucket, Key=key, ChecksumMode="ENABLED", **self._encryption.access
            )
        if not {"ContentLength", "LastModified"} <= found.keys():
            raise not_s3(self._location, "read", name, "its answer has no length or no time", self._client)
        size = found["ContentLength"]
        checksum = self._checksum(found.get("ChecksumCRC32"), size)
        return Blob(name, size, found["LastModified"].timestamp(), checksum, _is_archived(found))

    def _checksum(self, checksum: str | None, size: int) -> Checksum | None:
        """A comparable checksum: of the whole, or of parts of the size that this client would send."""
        value, _, parts = (checksum or "").partition("-")
        if not parts:
            return Checksum(value) if value else None
        part = self._part_of(size)
        return Checksum(value, part) if int(parts) == -(-size // part) else None

    def list(self, prefix: str = "") -> Iterator[Blob]:
        prefix_length = len(self._location.key(""))
        for page in self._pages(prefix, Prefix=self._location.key(prefix)):
            for found in page.get("Contents", ()):
                modified = found["LastModified"].timestamp()
                yield Blob(found["Key"][prefix_length:], found["Size"], modified, is_archived=_is_archived(found))

    def directories(self, above: str) -> Iterator[str]:
        prefix = self._location.key(f"{checked_name(above)}/")
        for page in self._pages(above, Prefix=prefix, Delimiter="/"):
            for found in page.get("CommonPrefixes", ()):
                yield found["Prefix"].removeprefix(prefix).rstrip("/")

    def _pages(self, of: str, **which: str) -> Iterator[dict[str, Any]]:
        """The pages of a listing. Any other document would look like an empty one, so each has to say what it is."""
        with self._translated("listed", of):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **which):
                if not {"Name", "KeyCount", "IsTruncated"} & page.keys():
                    raise not_s3(self._location, "listed", of, "its answer is no listing", self._client)
                yield page

    def delete(self, name: str) -> None:
        key = self._location.key(checked_name(name))
        with self._translated("deleted", name):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def delete_all(self, names: Sequence[str]) -> None:
        """See :meth:`Blobs.delete_all`: one request."""
        from botocore.exceptions import ClientError

        keys = [{"Key": self._location.key(checked_name(name))} for name in names]
        if not keys:
            return
        with self._translated("deleted", names[0]):
            try:
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True})
            except ClientError as error:
                if error.response["Error"]["Code"] != "NotImplemented":
                    raise
                super().delete_all(names)
                return
        for refused in answer.get("Errors", ())[:1]:
            status = {"ResponseMetadata": {"HTTPStatusCode": _STATUS_OF_REFUSAL.get(refused["Code"], 500)}}
            name = next((name for name in names if self._location.key(name) == refused.get("Key")), names[0])
            with self._translated("deleted", name):
                raise ClientError({"Error": refused, **status}, "DeleteObjects")

    def keeps_versions(self) -> bool:
        """See :meth:`Blobs.keeps_versions`; it needs the right ``s3:GetBucketVersioning``."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return self._client.get_bucket_versioning(Bucket=self._bucket).get("Status") in ("Enabled", "Suspended")
        except (BotoCoreError, ClientError):
            return False

    def local_path(self, name: str) -> None:
        """See :meth:`Blobs.local_path`; always ``None``."""
        self.head(name)

    def _is_there(self, key: str) -> bool:
        return self._token_of(key) is not None

    def _token_of(self, key: str) -> str | None:
        """The token of the put that created an object, empty if it has none; ``None`` if there is no object."""
        from botocore.exceptions import ClientError

        try:
            found = self._client.head_object(Bucket=self._bucket, Key=key, **self._encryption.access)
        except ClientError as error:
            if status_of(error) == MISSING:  # of a gateway, too: whoever asks has a condition on the put
                return None
            raise
        return str(found.get("Metadata", {}).get(_TOKEN, ""))


def _is_archived(found: Mapping[str, Any]) -> bool:
    """Whether the answer to a HEAD, or an entry of a listing, names an archive; a restored object still does."""
    return found.get("StorageClass") in _ARCHIVES or "ArchiveStatus" in found


class S3Pointers(S3Requests, Pointers):
    """Pointers below a prefix of a bucket: objects replaced with ``If-Match``, whose version is their ETag.

    Not every compatible server honours these conditions, and some do only without concurrency (``s3_probe.py``).
    """

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
                    if status == EXISTS or error.response["Error"]["Code"] in NOT_THERE:
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
