"""Pointers in S3: objects that are replaced with ``If-Match`` and made with ``If-None-Match: *``.

The version is the object's ETag. Not every server that speaks S3 keeps these conditions, and some keep them only when
nobody else asks at the same time; ``statecore.blobs.s3_probe`` finds out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from statecore.blobs.base import checked_name
from statecore.blobs.pointers import Pointed, Pointers
from statecore.blobs.s3_errors import CONFLICT, EXISTS, s3_error, status_of, was_sent_again
from statecore.blobs.s3_location import S3Location, encryption_of, make_client
from statecore.errors import Retryable

_TRIES = 8
_FIRST_PAUSE = 0.05
_ABSENT = 404


class S3Pointers(Pointers):
    """Pointers below a prefix of a bucket.

    Args:
        location: the place; the bucket must exist.
        client: a boto3 client; one is made when the first request is sent.
        sleep: waits so many seconds.
        uniform: a random number between two.
    """

    def __init__(
        self,
        location: S3Location,
        client: Any = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._location = location
        self._made = client
        self._sleep = sleep
        self._uniform = uniform
        self._encryption = encryption_of(location)

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = make_client(self._location)
        return self._made

    def read(self, name: str) -> Pointed | None:
        """See :meth:`Pointers.read`."""
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

        key = self._location.key(checked_name(name))
        for attempt in range(_TRIES):
            try:
                response = self._client.get_object(Bucket=self._location.bucket, Key=key, **self._encryption.using)
                with closing(response["Body"]) as body:
                    return Pointed(bytes(body.read()), str(response["ETag"]))
            except ClientError as error:
                if status_of(error) == _ABSENT and error.response["Error"]["Code"] == "NoSuchKey":
                    return None
                raise s3_error(self._location, "read", name, error, self._made) from error
            except (HTTPClientError, IncompleteReadError, BotoCoreError) as error:
                broken = s3_error(self._location, "read", name, error, self._made)
                if not isinstance(broken, Retryable) or attempt + 1 == _TRIES:
                    raise broken from error
            self._pause(attempt)
        raise AssertionError("each try returns or raises")

    def swap(self, name: str, content: bytes, expected: str | None) -> str | None:
        """See :meth:`Pointers.swap`."""
        from botocore.exceptions import BotoCoreError, ClientError

        key = self._location.key(checked_name(name))
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        unsure = False
        for attempt in range(_TRIES):
            try:
                put = self._client.put_object(
                    Bucket=self._location.bucket, Key=key, Body=content, **condition, **self._encryption.making
                )
                return str(put["ETag"])
            except ClientError as error:
                status = status_of(error)
                unsure = unsure or was_sent_again(error)
                if status in (EXISTS, _ABSENT) and error.response["Error"]["Code"] != "NoSuchBucket":
                    return self._ours(name, content) if unsure else None
                if status != CONFLICT:
                    raise s3_error(self._location, "put", name, error, self._made) from error
            except BotoCoreError as error:
                raise s3_error(self._location, "put", name, error, self._made) from error
            self._pause(attempt)
        raise Retryable(
            f"The pointer {name} in {self._location} could not be replaced: others do so again and again.",
            action="Try again.",
            pointer=name,
        )

    def _ours(self, name: str, content: bytes) -> str:
        """The version after a swap whose reply may have been lost, if the pointer has its content.

        Raises:
            Retryable: it has another one, and that may have come after this one.
        """
        now = self.read(name)
        if now is not None and now.content == content:
            return now.version
        raise Retryable(
            f"A reply was lost, and nobody knows whether the pointer {name} in {self._location} was replaced before "
            "another one did so.",
            action="Read it, and look whether what was wanted is in it.",
            pointer=name,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """The location alone: neither connections nor keys travel."""
        return S3Pointers, (self._location,)

    def _pause(self, attempt: int) -> None:
        self._sleep(self._uniform(0, _FIRST_PAUSE * 2**attempt))
