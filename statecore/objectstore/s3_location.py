"""Where blobs are kept in S3, and how a client for it is made.

A location is a value without secrets, so it may travel with tasks and stand in reports::

    s3://bucket/prefix                                   endpoint, region and credentials as boto3 finds them
    s3://bucket/prefix?endpoint=http://host:port&region=eu-central-1&encryption=aws:kms&kms-key=KEY-ID

**Credentials** are found on each machine by boto3's own chain: environment (``AWS_ACCESS_KEY_ID``, ...), the shared
credentials file and profiles, a web identity, the container's or the instance's role. They are never part of a
location, of a task, or of Spark's configuration. The key of encryption with a key of the customer's (SSE-C) is read
from ``STATECORE_S3_CUSTOMER_KEY``, 32 bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from statecore.errors import Invalid
from statecore.extras import require
from statecore.objectstore.base import PATIENT, checked_name
from statecore.objectstore.s3_waiting import RetryNotes

CUSTOMER_KEY = "STATECORE_S3_CUSTOMER_KEY"
"""The environment variable with the key of SSE-C."""

CONNECTIONS = 32
"""Connections that a client keeps at most."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CUSTOMER_KEY_BYTES = 32


class Encryption(StrEnum):
    """Who encrypts blobs at rest."""

    DEFAULT = ""
    """As the bucket has it."""

    SSE_S3 = "AES256"
    """The server, with keys of its own (SSE-S3)."""

    SSE_KMS = "aws:kms"
    """The server, with a key of the key management service (SSE-KMS)."""

    SSE_C = "customer"
    """The server, with a key that each request brings and that it does not keep (SSE-C)."""


@dataclass(frozen=True)
class S3Location:
    """A place in a bucket.

    Attributes:
        bucket: the bucket.
        prefix: what the names of all blobs begin with, without slashes at its ends; may be empty.
        endpoint: URL of the server; ``None`` for the one boto3 finds (``AWS_ENDPOINT_URL_S3``, AWS).
        region: of the bucket; ``None`` for the one boto3 finds.
        encryption: who encrypts.
        kms_key: id of the key for :attr:`Encryption.SSE_KMS`; ``None`` for the account's own.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    encryption: Encryption = Encryption.DEFAULT
    kms_key: str | None = None

    def __post_init__(self) -> None:
        """Refuse what can be no place.

        Raises:
            Invalid: the bucket or the prefix cannot be one, or the key has no use.
        """
        if not _BUCKET.fullmatch(self.bucket):
            raise Invalid(
                f"{self.bucket!a} is no name of a bucket.",
                code="bucket-invalid",
                action="Give 3 to 63 small letters, digits, dots and dashes: s3://bucket/prefix.",
                bucket=self.bucket,
            )
        if self.prefix:
            checked_name(self.prefix)
        if self.kms_key is not None and self.encryption is not Encryption.SSE_KMS:
            raise Invalid(
                "A KMS key was given, and another encryption.",
                code="options-conflict",
                action="Give encryption=aws:kms with it.",
            )

    def __str__(self) -> str:
        """The location as people name it."""
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def url(self) -> str:
        """The location as :meth:`of_url` reads it back."""
        given = {
            "endpoint": self.endpoint,
            "region": self.region,
            "encryption": self.encryption.value,
            "kms-key": self.kms_key,
        }
        query = urlencode({name: value for name, value in given.items() if value}, safe=":/")
        return f"{self}?{query}" if query else str(self)

    def below(self, *parts: str) -> S3Location:
        """A place within this one."""
        return replace(self, prefix="/".join(filter(None, (self.prefix, *parts))))

    def key(self, name: str) -> str:
        """The key of a blob."""
        return f"{self.prefix}/{name}" if self.prefix else name

    @staticmethod
    def of_url(url: str) -> S3Location:
        """The location that a URL names.

        Raises:
            Invalid: it names none; or it has a user or a password, which do not belong there.
        """
        parts = urlsplit(url)
        action = "Give s3://bucket/prefix, and endpoint, region, encryption or kms-key behind a question mark."
        if parts.scheme != "s3" or not parts.netloc or parts.fragment:
            raise Invalid(
                f"{_without_secrets(url)!a} names no place in S3.",
                code="repository-url-invalid",
                action=action,
                url=_without_secrets(url),
            )
        if "@" in parts.netloc:
            raise Invalid(
                f"{_without_secrets(url)!a} has credentials, which do not belong into a URL.",
                code="credentials-in-url",
                action="Give them as boto3 takes them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role.",
            )
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        options = {name: given.pop(name, None) or None for name in ("endpoint", "region", "encryption", "kms-key")}
        if given:
            raise Invalid(
                f"{', '.join(sorted(given))}: no such setting of a place in S3.",
                code="repository-url-invalid",
                action=action,
                settings=sorted(given),
            )
        try:
            encryption = Encryption(options["encryption"] or "")
        except ValueError:
            raise Invalid(
                f"{options['encryption']!a} is no encryption of S3.",
                code="encryption-invalid",
                action=f"Give one of {', '.join(one.value for one in Encryption if one)}.",
            ) from None
        return S3Location(
            parts.netloc,
            parts.path.strip("/"),
            options["endpoint"],
            options["region"],
            encryption,
            options["kms-key"],
        )


def _without_secrets(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)


@dataclass(frozen=True, repr=False)
class EncryptionArguments:
    """What requests say of encryption.

    Attributes:
        making: those that make an object.
        using: those that read one, or send a part of one.
    """

    making: Mapping[str, Any]
    using: Mapping[str, Any]


def encryption_of(location: S3Location) -> EncryptionArguments:
    """What requests to a location say of encryption.

    Raises:
        Invalid: the customer's key is missing or none.
    """
    if location.encryption is Encryption.SSE_S3:
        return EncryptionArguments({"ServerSideEncryption": "AES256"}, {})
    if location.encryption is Encryption.SSE_KMS:
        key = {} if location.kms_key is None else {"SSEKMSKeyId": location.kms_key}
        return EncryptionArguments({"ServerSideEncryption": "aws:kms", "BucketKeyEnabled": True, **key}, {})
    if location.encryption is Encryption.SSE_C:
        arguments = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": _customer_key()}
        return EncryptionArguments(arguments, arguments)
    return EncryptionArguments({}, {})


def _customer_key() -> bytes:
    try:
        key = base64.b64decode(os.environ.get(CUSTOMER_KEY, ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _CUSTOMER_KEY_BYTES:
        raise Invalid(
            f"{CUSTOMER_KEY} is not a key of {_CUSTOMER_KEY_BYTES} bytes in base64.",
            code="customer-key-invalid",
            action=f"Set it on every machine that reads or writes blobs (openssl rand -base64 {_CUSTOMER_KEY_BYTES}).",
        )
    return key


def _region_of_others() -> str | None:
    """The region as other SDKs take it, where what boto3 takes is not set."""
    return None if "AWS_DEFAULT_REGION" in os.environ else os.environ.get("AWS_REGION")


def make_client(location: S3Location, attempts: int = PATIENT.attempts, timeout: float = PATIENT.timeout) -> Any:
    """A boto3 client for a location; it may be used by several threads.

    Args:
        location: the place.
        attempts: how often a request is sent at most. Between them botocore waits, longer each time and at random.
        timeout: seconds after which a connection, or an answer of which nothing comes, counts as lost.

    Raises:
        MissingExtra: boto3 is not installed.
        Invalid: a profile that does not exist, a URL that is none.
    """
    require("s3")
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    try:
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=location.endpoint,
            region_name=location.region or _region_of_others(),
            config=Config(
                retries={"mode": "standard", "total_max_attempts": attempts},
                connect_timeout=min(10.0, timeout),
                read_timeout=timeout,
                max_pool_connections=CONNECTIONS,
                # Whatever the environment says: nothing else looks at what pointers and small blobs bring.
                request_checksum_calculation="when_supported",
                response_checksum_validation="when_supported",
            ),
        )
        client.meta.events.register("needs-retry.s3", RetryNotes(attempts))
    except (BotoCoreError, ValueError) as error:
        raise Invalid(
            f"No client for {location} could be made: {error}",
            code="object-store-settings-invalid",
            action="Check the endpoint, the region and the profile (AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE).",
        ) from error
    return client
