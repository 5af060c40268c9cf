"""Tests an S3-compatible server: conditions on multipart uploads, checksums, encryption.

Some accept bytes that do not match their checksum, and some accept encryption headers and encrypt nothing.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from statecore.objectstore import probe as of_all
from statecore.objectstore.probe import ensure
from statecore.objectstore.s3 import S3Blobs, S3Pointers
from statecore.objectstore.s3_errors import EXISTS, s3_error, status_of
from statecore.objectstore.s3_location import Encryption, S3Location, encryption_arguments, make_client

PREFIX = "statecore-probe"
"""Prefix of the test objects."""

_REFUSED, _ABSENT = 400, 404


def probe(location: S3Location, client: Any = None) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    client = make_client(location) if client is None else client
    below = location.below(PREFIX, uuid.uuid4().hex)
    of_all.probe(f"The server of {location}", S3Blobs(below, client), S3Pointers(below, client))
    of = {"Bucket": below.bucket, "Key": below.key("of-s3")}
    try:
        encrypted = client.put_object(Body=b"first", **of, **encryption_arguments(location).create)
        ensure(
            _is_encrypted(location, encrypted),
            f"The server of {location}",
            f"accepts encryption={location.encryption} and does not encrypt",
            "encryption",
        )
        ensure(
            _keeps_large_ones(location, client, of),
            f"The server of {location}",
            "replaced an object by a multipart upload (If-None-Match on CompleteMultipartUpload)",
            "conditional-multipart",
        )
        ensure(
            _refuses_wrong_checksums(client, below),
            f"The server of {location}",
            "accepts bytes that do not match their checksum",
            "checksum",
        )
    except (BotoCoreError, ClientError) as error:
        raise s3_error(location, "tested", "", error, client) from error
    finally:
        with suppress(BotoCoreError, ClientError):
            client.delete_object(**of)
            client.delete_object(Bucket=below.bucket, Key=below.key("damaged"))


def _is_encrypted(location: S3Location, put: Any) -> bool:
    """Whether the answer to a put confirms the requested encryption."""
    if location.encryption is Encryption.SSE_C:
        return bool(put.get("SSECustomerAlgorithm") == "AES256")
    return not location.encryption or bool(put.get("ServerSideEncryption") == location.encryption.value)


def _keeps_large_ones(location: S3Location, client: Any, of: dict[str, str]) -> bool:
    from botocore.exceptions import ClientError

    arguments = encryption_arguments(location)
    upload = {**of, "UploadId": client.create_multipart_upload(**of, **arguments.create)["UploadId"]}
    try:
        part = client.upload_part(Body=b"second", PartNumber=1, **upload, **arguments.access)
        client.complete_multipart_upload(
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}, IfNoneMatch="*", **upload
        )
    except ClientError as error:
        with suppress(ClientError):
            client.abort_multipart_upload(**upload)
        if status_of(error) == EXISTS:
            return True
        raise
    return False


def _refuses_wrong_checksums(client: Any, below: S3Location) -> bool:
    from botocore.exceptions import ClientError

    of, arguments = {"Bucket": below.bucket, "Key": below.key("damaged")}, encryption_arguments(below)
    try:
        client.put_object(Body=b"some bytes", ChecksumCRC32="AAAAAA==", **of, **arguments.create)
    except ClientError as error:
        if status_of(error) != _REFUSED:
            raise
    else:
        return False
    try:
        client.head_object(**of, **arguments.access)
    except ClientError as error:
        if status_of(error) != _ABSENT:
            raise
        return True
    return False
