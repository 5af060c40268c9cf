"""``S3Requests``: what blobs and pointers in S3 share: lazy client, complete reads, error translation."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from statecore.errors import Retryable
from statecore.objectstore.s3_errors import MISSING, NOT_THERE, error_in, not_s3, s3_error, status_of
from statecore.objectstore.s3_location import S3Location, encryption_arguments, make_client
from statecore.system_errors import system_error

TRIES = 8
"""Attempts at operations that botocore does not retry by itself."""

_FIRST_PAUSE = 0.05
_LARGEST_ERROR = 64 << 10  # bytes
_REFUSED_HEADS = (400, 401, 403, MISSING)
_PIECE = 1 << 20  # bytes that are read at a time of an answer that does not tell its length


class S3Requests:
    """Requests to a location."""

    def __init__(
        self,
        location: S3Location,
        client: Any = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._location = location
        self._bucket = location.bucket
        self._made = client
        self._sleep = sleep
        self._uniform = uniform
        self._encryption = encryption_arguments(location)

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = make_client(self._location)
        return self._made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the location alone: neither connections nor keys."""
        return type(self), (self._location,)

    def _read(self, name: str, **span: str) -> tuple[bytes, str]:
        """The bytes of an object, and its ETag.

        Retries after a truncated body, a wrong checksum or an error with status 200, as a proxy may send it, which
        botocore leaves to its callers. If the same wrong
        bytes come twice, the server has stored them, and they are returned: the caller knows the right hash.
        """
        from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError
        from urllib3.exceptions import HTTPError

        key = self._location.key(name)
        wrong: bytes | None = None
        for attempt in range(TRIES):
            if attempt:
                self._pause(attempt)
            response = self._client.get_object(Bucket=self._bucket, Key=key, **span, **self._encryption.access)
            pieces: list[bytes] = []
            try:
                with closing(response["Body"]) as body:  # "with body" would give the unchecked stream
                    if "ETag" not in response:
                        refusal = error_in(body.read(_LARGEST_ERROR))
                        if refusal is None:
                            raise not_s3(self._location, "read", name, "its answer has no ETag", self._client)
                        if attempt == TRIES - 1:
                            raise refusal
                        continue
                    while piece := body.read(max(1, response.get("ContentLength", _PIECE))):
                        pieces.append(piece)  # botocore compares size and checksum when nothing more comes
                    return b"".join(pieces), str(response["ETag"])
            except FlexibleChecksumError as error:
                broken: Exception = error
                if wrong == (wrong := b"".join(pieces)):
                    return wrong, str(response["ETag"])
            except (HTTPClientError, HTTPError, IncompleteReadError) as error:
                broken = error
        raise Retryable(
            f"The blob {name} in {self._location} could not be read completely in {TRIES} tries: {broken}",
            code="read-incomplete",
            action="Check the network and the object store, then run this again.",
            blob=name,
        )

    def _pause(self, attempt: int) -> None:
        self._sleep(self._uniform(0, _FIRST_PAUSE * 2**attempt))

    @contextmanager
    def _translated(self, doing: str, name: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError, RecursionError) as error:
            if _is_endless(error):
                raise not_s3(self._location, doing, name, "it redirects without end", self._made) from error
            raise s3_error(self._location, doing, name, self._with_code(error, name), self._made) from error
        except OSError as error:  # from the uploaded file
            raise system_error(
                error,
                f"The blob {name} in {self._location} could not be {doing}",
                action="Check that its file can be read.",
                blob=name,
            ) from error

    def _with_code(self, error: Exception, name: str) -> Exception:
        """The same refusal with an error code: HEAD has no body, so it cannot say why it was refused.

        Not even that there is no such object: a gateway without an object store behind it has the same answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        if getattr(error, "operation_name", "") != "HeadObject" or status_of(error) not in _REFUSED_HEADS:
            return error
        try:
            got = self._client.get_object(
                Bucket=self._bucket, Key=self._location.key(name), Range="bytes=0-0", **self._encryption.access
            )
            got["Body"].close()
        except ClientError as with_code:
            is_absent = with_code.response["Error"]["Code"] in NOT_THERE
            return error if is_absent and status_of(error) != MISSING else with_code
        except BotoCoreError:
            pass
        return error


def _is_endless(error: BaseException) -> bool:
    """Whether botocore followed redirects between buckets without end; it wraps what it meets while it sends."""
    while not isinstance(error, RecursionError):
        before = error.__cause__ or error.__context__
        if before is None:
            return False
        error = before
    return True
